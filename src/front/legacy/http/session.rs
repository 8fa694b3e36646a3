//! A session over HTTP: who uses it, and the streams that a client can come back to.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::channel::Channel;
use super::kept::{Kept, KeptBytes};
use crate::front::legacy::Session;

/// An open session.
pub(super) struct HttpSession {
    /// What `Mcp-Session-Id` says. Whoever knows it, and is the same principal, has the session.
    pub(super) id: Box<str>,
    /// The name of the server that it is with.
    pub(super) server: String,
    /// Takes the client's messages.
    pub(super) session: Session,
    /// What belongs to no request.
    pub(super) own: Arc<Channel>,
    /// Cancelled when the session is to end, whatever runs in it.
    pub(super) closing: CancellationToken,
    streams: Mutex<Streams>,
    usage: Mutex<Usage>,
    /// Told when nobody uses it any more.
    unused: Notify,
    kept: KeptBytes,
}

/// Somebody uses the session: an exchange, a stream, a call. Dropping it ends the use.
pub(super) struct Use(Arc<HttpSession>);

struct Streams {
    next: u64,
    /// Those that a client may come back to.
    open: HashMap<u64, Arc<Channel>>,
    /// In the order in which they ended, with the bytes that are counted for them.
    ended: VecDeque<(Arc<Channel>, Kept)>,
}

struct Usage {
    users: usize,
    last: Instant,
}

/// Ended streams of one session that are kept for a client that comes back.
const ENDED: usize = 32;
/// Bytes of them in one session.
const SESSION_BYTES: usize = 8 << 20;

impl HttpSession {
    pub(super) fn new(server: String, session: Session, kept: KeptBytes) -> Arc<Self> {
        Arc::new(Self {
            id: uuid::Uuid::new_v4().to_string().into(),
            server,
            session,
            own: Channel::new(0),
            closing: CancellationToken::new(),
            streams: Mutex::new(Streams { next: 1, open: HashMap::new(), ended: VecDeque::new() }),
            usage: Mutex::new(Usage { users: 0, last: Instant::now() }),
            unused: Notify::new(),
            kept,
        })
    }

    /// A new stream. Nobody can come back to it until it is announced.
    pub(super) fn open_stream(&self) -> Arc<Channel> {
        let mut streams = lock(&self.streams);
        let number = streams.next;
        streams.next += 1;
        Channel::new(number)
    }

    /// The client learns an event id of this stream, so it may come back.
    pub(super) fn announce(&self, channel: &Arc<Channel>) {
        let mut streams = lock(&self.streams);
        if channel.is_ended() {
            self.keep(&mut streams, Arc::clone(channel));
        } else {
            streams.open.insert(channel.number(), Arc::clone(channel));
        }
    }

    /// The stream has ended.
    pub(super) fn end_stream(&self, channel: &Channel) {
        let mut streams = lock(&self.streams);
        channel.end();
        if let Some(announced) = streams.open.remove(&channel.number()) {
            self.keep(&mut streams, announced);
        }
    }

    /// Keeps an ended stream, and lets older ones go for it.
    fn keep(&self, streams: &mut Streams, channel: Arc<Channel>) {
        let bytes = channel.bytes();
        if bytes > SESSION_BYTES {
            return;
        }
        let Some(kept) = self.kept.take(self.session.principal(), bytes) else { return };
        streams.ended.push_back((channel, kept));
        let mut sum: usize = streams.ended.iter().map(|(_, kept)| kept.bytes()).sum();
        while sum > SESSION_BYTES || streams.ended.len() > ENDED {
            let Some((_, kept)) = streams.ended.pop_front() else { return };
            sum -= kept.bytes();
        }
    }

    /// The stream of this number, if a client can come back to it.
    pub(super) fn stream(&self, number: u64) -> Option<Arc<Channel>> {
        if number == 0 {
            return Some(Arc::clone(&self.own));
        }
        let streams = lock(&self.streams);
        let ended = || streams.ended.iter().map(|(channel, _)| channel).find(|channel| channel.number() == number);
        streams.open.get(&number).or_else(ended).cloned()
    }

    /// Uses the session.
    pub(super) fn enter(self: &Arc<Self>) -> Use {
        lock(&self.usage).users += 1;
        Use(Arc::clone(self))
    }

    /// For how long nobody has used it; `None` while somebody does.
    pub(super) fn idle(&self) -> Option<Duration> {
        let usage = lock(&self.usage);
        (usage.users == 0).then(|| usage.last.elapsed())
    }

    /// Resolves when nobody uses it.
    pub(super) async fn unused(&self) {
        loop {
            let unused = self.unused.notified();
            tokio::pin!(unused);
            unused.as_mut().enable();
            if self.idle().is_some() {
                return;
            }
            unused.await;
        }
    }
}

impl Use {
    pub(super) fn session(&self) -> &Arc<HttpSession> {
        &self.0
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut usage = lock(&self.0.usage);
        usage.users -= 1;
        usage.last = Instant::now();
        if usage.users == 0 {
            self.0.unused.notify_waiters();
        }
    }
}

/// Every change leaves what is locked whole, so a poisoned lock holds a good one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for HttpSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSession").field("server", &self.server).finish_non_exhaustive()
    }
}
