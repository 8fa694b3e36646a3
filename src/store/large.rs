//! Outcomes in files that are being read: each is in memory once, however many ask for it, and all together take no more
//! than so many bytes. Otherwise clients that ask for results and never read them would fill the memory. Owners
//! share that room: who reads slowly waits for itself only.

mod room;

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use self::room::{Room, Space};
use super::ReadError;
use crate::protocol::Json;
use crate::shared_map::SharedMap;
use crate::task::{Owner, TaskId};

/// The large outcomes in use.
#[derive(Debug)]
pub(super) struct LargeOutcomes {
    room: Room,
    patience: Duration,
    known: SharedMap<TaskId, Weak<Outcome>>,
}

/// One that is in use, or asked for. Whoever has the lock loads it; the others wait for that.
type Outcome = Mutex<Weak<Held>>;

/// The text of one. It gives its room back when the last piece of it was sent or thrown away.
#[derive(Debug)]
struct Held {
    text: Json,
    _room: Space,
    /// Found by its name as long as the text is in use.
    _outcome: Arc<Outcome>,
}

/// The owner of bytes that are sent.
struct Share(Arc<Held>);

/// Outcomes from this size on are large.
pub(super) const LARGE: u64 = 1 << 20;

/// Names of outcomes that nobody uses any more may be remembered up to this number.
const IDLE: usize = 256;

impl LargeOutcomes {
    /// Room for this many kibibytes, all of which is for the `local` user while there is no other; a read waits for so
    /// long.
    pub(super) fn new(kibibytes: usize, patience: Duration, local: Owner) -> Self {
        Self { room: Room::new(kibibytes, local), patience, known: SharedMap::default() }
    }

    /// The outcome of the owner's task `id`, which has `len` bytes: the one in use, or else what `load` gives.
    pub(super) async fn get(
        &self,
        owner: &Owner,
        id: TaskId,
        len: u64,
        load: impl Future<Output = Result<Json, ReadError>>,
    ) -> Result<Json, ReadError> {
        let until = Instant::now() + self.patience;
        let outcome = self.outcome(id);
        let mut turn = timeout_at(until, outcome.lock()).await.map_err(|_| ReadError::Busy)?;
        if let Some(held) = turn.upgrade() {
            return Ok(share(held));
        }
        let kibibytes = usize::try_from(len / 1024 + 1).unwrap_or(usize::MAX);
        let room = timeout_at(until, self.room.wait(owner, kibibytes)).await.map_err(|_| ReadError::Busy)?;
        let held = Arc::new(Held { text: load.await?, _room: room, _outcome: Arc::clone(&outcome) });
        *turn = Arc::downgrade(&held);
        Ok(share(held))
    }

    fn outcome(&self, id: TaskId) -> Arc<Outcome> {
        if self.known.len() > IDLE {
            self.known.retain(|_, outcome| outcome.strong_count() > 0);
        }
        self.known.update_or_insert(id, Weak::new, |known| {
            known.upgrade().unwrap_or_else(|| {
                let outcome = Arc::default();
                *known = Arc::downgrade(&outcome);
                outcome
            })
        })
    }
}

impl AsRef<[u8]> for Share {
    fn as_ref(&self) -> &[u8] {
        self.0.text.bytes()
    }
}

/// The text, whose bytes keep it in use.
fn share(held: Arc<Held>) -> Json {
    held.text.clone().carried_by(Bytes::from_owner(Share(held)))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::clock::Timestamp;

    const ANN: Owner = Owner::from_parts(1, [1; 32]);
    const BO: Owner = Owner::from_parts(1, [2; 32]);

    fn large(kibibytes: usize) -> LargeOutcomes {
        LargeOutcomes::new(kibibytes, Duration::from_secs(1), Owner::from_parts(1, [0; 32]))
    }

    fn id(at: u64) -> TaskId {
        TaskId::generate(Timestamp::from_millis(at))
    }

    fn text() -> std::future::Ready<Result<Json, ReadError>> {
        std::future::ready(Ok(Json::string(&"x".repeat(100))))
    }

    fn never() -> std::future::Pending<Result<Json, ReadError>> {
        std::future::pending()
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_in_use_is_not_loaded_again_and_gives_its_room_back_with_its_last_piece() {
        let large = large(4);
        let (one, two) = (id(1), id(2));
        let first = large.get(&ANN, one, 3 << 10, text()).await.unwrap();
        let second = large.get(&ANN, one, 3 << 10, never()).await.unwrap();
        assert_eq!(first.bytes().as_ptr(), second.bytes().as_ptr());
        let piece = second.bytes().slice(1..5);
        drop((first, second));
        let before = Instant::now();
        assert!(matches!(large.get(&ANN, two, 1 << 10, text()).await, Err(ReadError::Busy)));
        assert_eq!(before.elapsed().as_secs(), 1);
        drop(piece);
        large.get(&ANN, two, 1 << 40, text()).await.unwrap();
        assert_eq!(format!("{:?}", large.room), "Room { most: 4, taken: 0, .. }");
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_ask_for_an_outcome_before_it_is_loaded_have_the_same_one() {
        let (large, one) = (large(16), id(1));
        let (loaded, loading) = tokio::sync::oneshot::channel();
        let load = async { loading.await.unwrap() };
        let mut first = Box::pin(large.get(&ANN, one, 8 << 10, load));
        assert!(first.as_mut().now_or_never().is_none());
        let mut others: Vec<_> = (0..100).map(|_| Box::pin(large.get(&ANN, one, 8 << 10, never()))).collect();
        assert!(others.iter_mut().all(|other| other.as_mut().now_or_never().is_none()));
        loaded.send(text().await).unwrap();
        let first = first.await.unwrap();
        for other in others {
            assert_eq!(other.await.unwrap().bytes().as_ptr(), first.bytes().as_ptr());
        }
        assert_eq!(format!("{:?}", large.room), "Room { most: 16, taken: 9, .. }");
    }

    #[tokio::test(start_paused = true)]
    async fn who_loads_and_leaves_or_fails_leaves_it_to_the_next() {
        let (large, one) = (large(16), id(1));
        let mut gone = Box::pin(large.get(&ANN, one, 8 << 10, never()));
        assert!(gone.as_mut().now_or_never().is_none());
        let fails = std::future::ready(Err(ReadError::Damaged));
        let (mut failing, mut next) =
            (Box::pin(large.get(&ANN, one, 8 << 10, fails)), Box::pin(large.get(&ANN, one, 8 << 10, text())));
        assert!(failing.as_mut().now_or_never().is_none() && next.as_mut().now_or_never().is_none());
        drop(gone);
        assert!(matches!(failing.await, Err(ReadError::Damaged)));
        assert!(next.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_who_reads_nothing_keeps_no_other_waiting() {
        let large = large(64);
        let mut unread = Vec::new();
        while let Some(read) = large.get(&ANN, id(unread.len() as u64), 12 << 10, text()).now_or_never() {
            unread.push(read.unwrap());
        }
        let mut more: Vec<_> = (0..50).map(|_| Box::pin(large.get(&ANN, id(2), 12 << 10, text()))).collect();
        assert!(more.iter_mut().all(|one| one.as_mut().now_or_never().is_none()));
        assert!(large.get(&BO, id(3), 30 << 10, text()).now_or_never().is_some());
    }
}
