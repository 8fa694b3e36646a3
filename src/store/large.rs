//! Large outcomes that are being read: each is in memory once, however many ask for it, and all together take no more
//! than so many bytes. Otherwise clients that ask for large results and never read them would fill the memory.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ReadError;
use crate::protocol::Json;
use crate::shared_map::SharedMap;
use crate::task::TaskId;

/// The large outcomes in use.
#[derive(Debug)]
pub(super) struct LargeOutcomes {
    room: Arc<Semaphore>,
    kibibytes: u32,
    patience: Duration,
    held: SharedMap<TaskId, Weak<Held>>,
}

/// One of them. It gives its room back when the last piece of it was sent or thrown away.
#[derive(Debug)]
struct Held {
    text: Json,
    _room: OwnedSemaphorePermit,
}

/// The owner of bytes that are sent.
struct Share(Arc<Held>);

/// Outcomes from this size on are large.
pub(super) const LARGE: u64 = 1 << 20;

/// Names of outcomes that nobody uses any more may be remembered up to this number.
const IDLE: usize = 256;

impl LargeOutcomes {
    /// Room for this many kibibytes; a read waits for room for so long.
    pub(super) fn new(kibibytes: u32, patience: Duration) -> Self {
        let room = Arc::new(Semaphore::new(kibibytes as usize));
        Self { room, kibibytes, patience, held: SharedMap::default() }
    }

    /// The outcome of `id`, which has `len` bytes: the one in use, or else what `load` gives.
    pub(super) async fn get(
        &self,
        id: TaskId,
        len: u64,
        load: impl Future<Output = Result<Json, ReadError>>,
    ) -> Result<Json, ReadError> {
        if let Some(known) = self.known(&id) {
            return Ok(known);
        }
        // One that is larger than the room takes all of it.
        let room = u32::try_from(len / 1024 + 1).unwrap_or(u32::MAX).min(self.kibibytes);
        let room = Arc::clone(&self.room).acquire_many_owned(room);
        let room = tokio::time::timeout(self.patience, room).await.map_err(|_| ReadError::Busy)?;
        let room = room.map_err(|_| ReadError::Closed)?;
        if let Some(known) = self.known(&id) {
            return Ok(known);
        }
        let held = Arc::new(Held { text: load.await?, _room: room });
        if self.held.len() > IDLE {
            self.held.retain(|_, held| held.strong_count() > 0);
        }
        self.held.insert(id, Arc::downgrade(&held));
        Ok(share(held))
    }

    fn known(&self, id: &TaskId) -> Option<Json> {
        self.held.get(id).and_then(|held| held.upgrade()).map(share)
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
    use super::*;
    use crate::clock::Timestamp;

    fn id(at: u64) -> TaskId {
        TaskId::generate(Timestamp::from_millis(at))
    }

    fn text() -> std::future::Ready<Result<Json, ReadError>> {
        std::future::ready(Ok(Json::string(&"x".repeat(100))))
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_in_use_is_not_loaded_again_and_gives_its_room_back_with_its_last_piece() {
        let large = LargeOutcomes::new(4, Duration::from_secs(1));
        let (one, two) = (id(1), id(2));
        let first = large.get(one, 3 << 10, text()).await.unwrap();
        let never = std::future::pending::<Result<Json, ReadError>>();
        let second = large.get(one, 3 << 10, never).await.unwrap();
        assert_eq!(first.bytes().as_ptr(), second.bytes().as_ptr());
        let piece = second.bytes().slice(1..5);
        drop((first, second));
        assert!(matches!(large.get(two, 1 << 10, text()).await, Err(ReadError::Busy)));
        drop(piece);
        large.get(two, 1 << 40, text()).await.unwrap();
        assert_eq!(large.room.available_permits(), 4);
    }
}
