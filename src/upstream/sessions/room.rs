//! Room for another session, which one that is idle has to make.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::slot::Slot;
use super::{Connect, Inner};
use crate::protocol::Principal;

impl<C: Connect> Inner<C> {
    /// Has the session of this owner closed that has been idle for longest, if there is one.
    pub(super) fn make_room_of(&self, owner: &Principal) -> bool {
        let idle = self.idlest(|slot| slot.owner.sharer() == owner.sharer());
        if let Some(slot) = &idle {
            slot.is_for_owner.store(true, Ordering::SeqCst);
            slot.unwanted.notify_one();
        }
        idle.is_some()
    }

    /// Has the session that has been idle for longest closed, or else the first that is used no more.
    pub(super) fn make_room(&self) {
        self.pressed.store(true, Ordering::SeqCst);
        if let Some(slot) = self.idlest(|_| true)
            && self.pressed.swap(false, Ordering::SeqCst)
        {
            slot.unwanted.notify_one();
        }
    }

    /// The session that has been idle for longest, of those that are wanted.
    fn idlest(&self, wanted: impl Fn(&Slot<C::Session>) -> bool) -> Option<Arc<Slot<C::Session>>> {
        let mut longest: Option<(Instant, Arc<Slot<C::Session>>)> = None;
        self.rows.for_each(|_, row| {
            for slot in row.iter().filter(|slot| wanted(slot)) {
                if let Some(since) = slot.idle_since()
                    && longest.as_ref().is_none_or(|(other, _)| since < *other)
                {
                    longest = Some((since, Arc::clone(slot)));
                }
            }
        });
        longest.map(|(_, slot)| slot)
    }
}
