//! The life of one session: opening, being used, idling, and its end, whatever brings that about.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::opening::{Key, Opening};
use super::slot::{Slot, State};
use super::{Connect, Inner, Session};
use crate::protocol::Reason;
use crate::upstream::outcome;

/// The supervisor's hold on its slot: whatever ends the supervisor, the slot is given up.
pub(super) struct Tenancy<C: Connect> {
    pub(super) sessions: Arc<Inner<C>>,
    pub(super) key: Key,
    pub(super) slot: Arc<Slot<C::Session>>,
}

impl<C: Connect> Tenancy<C> {
    /// The whole life of a session.
    pub(super) async fn run(self, opening: Opening) {
        let connected = tokio::select! {
            connected = self.sessions.connector.connect(&opening) => connected,
            () = self.slot.dismissed.cancelled() => Err(outcome::never_sent()),
            () = self.sessions.closing.cancelled() => Err(outcome::stopping()),
        };
        let principal = &opening.caller.principal;
        match &connected {
            Ok(_) => principal.taken(),
            Err(failure) if failure.reason == Reason::Unauthorized => principal.refused(),
            Err(_) => {}
        }
        drop(opening);
        let session = match connected {
            Ok(session) => session,
            Err(failure) => {
                // Given up first, so that whoever learns of the failure may try again at once.
                self.give_up();
                self.sessions.counts.refused.fetch_add(1, Ordering::Relaxed);
                self.slot.state.send_replace(State::Failed(failure));
                return;
            }
        };
        self.sessions.counts.opened.fetch_add(1, Ordering::Relaxed);
        self.slot.state.send_replace(State::Open(session.clone()));
        tokio::select! {
            () = session.over() => {
                self.sessions.counts.lost.fetch_add(1, Ordering::Relaxed);
            }
            () = self.idle() => tracing::debug!(server = %self.sessions.server.name, "an idle session is closed"),
            () = self.slot.dismissed.cancelled() => {}
            () = self.sessions.closing.cancelled() => {}
        }
        self.give_up();
        session.close().await;
    }

    /// Resolves when nobody has used the session for `session_idle`; it is out of the table then.
    ///
    /// It looks when the session may have been idle for long enough, so that no call has to wake it.
    async fn idle(&self) {
        let patience = self.sessions.server.session_idle;
        let mut look = Instant::now() + patience;
        loop {
            let unwanted = tokio::select! {
                () = tokio::time::sleep_until(look) => false,
                () = self.slot.unwanted.notified() => true,
            };
            let is_over = |since: Instant| unwanted || since.elapsed() >= patience;
            if self.take_out(|slot| slot.idle_since().is_some_and(is_over)) {
                return;
            }
            if unwanted && !self.slot.is_for_owner.swap(false, Ordering::SeqCst) {
                // A call came first.
                self.sessions.make_room();
            }
            look = self.slot.idle_since().unwrap_or_else(Instant::now) + patience;
        }
    }

    /// Takes the slot out of the table if `wanted` says so, and whether it was taken.
    fn take_out(&self, wanted: impl Fn(&Slot<C::Session>) -> bool) -> bool {
        let rows = &self.sessions.rows;
        let taken = rows.update(&self.key, |row| {
            let before = row.len();
            row.retain(|slot| !Arc::ptr_eq(slot, &self.slot) || !wanted(slot));
            row.len() < before
        });
        rows.remove_if(&self.key, Vec::is_empty);
        taken.unwrap_or(false)
    }

    fn give_up(&self) {
        self.take_out(|_| true);
        self.slot.retire();
    }
}

impl<C: Connect> Drop for Tenancy<C> {
    fn drop(&mut self) {
        self.give_up();
        let broken = outcome::not_started(&self.sessions.server.name, "connecting broke off");
        self.slot.state.send_if_modified(|state| {
            let connecting = matches!(state, State::Connecting);
            if connecting {
                *state = State::Failed(broken);
            }
            connecting
        });
    }
}
