//! One stream of a session: its messages, numbered, kept until they are read and a while longer, so that a client whose
//! connection broke can go on where it was (2025-11-25, resumability and redelivery).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use crate::front::legacy::Outgoing;
use crate::protocol::{Challenge, Rope};

/// A stream of messages. It outlives the connections that carry it.
#[derive(Debug)]
pub(super) struct Channel {
    /// Tells it from the other streams of its session; 0 is the session's own.
    number: u64,
    state: Mutex<State>,
    /// Told when there may be room for more.
    room: Notify,
}

/// A message of a stream.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// Its place in the stream, from 1.
    pub(super) place: u64,
    /// The JSON-RPC message.
    pub(super) text: Rope,
    /// Whether it is the answer to the request.
    pub(super) is_answer: bool,
    /// What the server wants in the place of the caller's credentials, if that is the answer.
    pub(super) challenge: Option<Arc<Challenge>>,
}

/// One connection that carries the stream. Only the newest is given messages, since none may be sent twice
/// (2025-11-25, multiple connections); the others wait for it to go.
#[derive(Debug)]
pub(super) struct Reader {
    channel: Arc<Channel>,
    key: u64,
}

/// Whether a client can come back to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Return {
    /// The stream is open, or there is something left to read.
    Possible,
    /// It ended, and the client has had all of it.
    Over,
    /// What the client has not had was not kept.
    Gone,
}

#[derive(Debug)]
struct State {
    /// What is kept, in order and without gaps.
    events: VecDeque<Event>,
    bytes: usize,
    /// The place of the next event.
    next: u64,
    /// All before this were given to a reader.
    unread: u64,
    unread_bytes: usize,
    phase: Phase,
    wholeness: Wholeness,
    /// In the order in which they came.
    readers: Vec<Place>,
    next_key: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Ended,
}

/// Whether an answer is missing that was too large to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wholeness {
    Whole,
    Lacking,
}

#[derive(Debug)]
struct Place {
    key: u64,
    /// The place of the event that it gets next.
    at: u64,
    waker: Option<Waker>,
    course: Course,
}

/// What a reader does when it has had everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Waits,
    Leaves,
}

/// Bytes of messages that are kept of one open stream after they were read, and notifications that wait unread.
const KEPT_BYTES: usize = 256 << 10;
/// Messages, likewise.
const KEPT: usize = 256;
/// Messages that wait unread, whatever they are.
const WAITING: usize = 1024;
/// Bytes of messages that wait unread while nobody reads. An answer larger than this is not kept for a client that left.
pub(super) const WAITING_BYTES: usize = 4 << 20;
/// Connections that carry one stream at the same time.
const READERS: usize = 8;

impl Channel {
    pub(super) fn new(number: u64) -> Arc<Self> {
        let state = State {
            events: VecDeque::new(),
            bytes: 0,
            next: 1,
            unread: 1,
            unread_bytes: 0,
            phase: Phase::Open,
            wholeness: Wholeness::Whole,
            readers: Vec::new(),
            next_key: 0,
        };
        Arc::new(Self { number, state: Mutex::new(state), room: Notify::new() })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Puts a message behind the others, or drops it where there is no room for one of its kind.
    pub(super) fn push(&self, outgoing: Outgoing) {
        let mut state = self.lock();
        let is_answer = matches!(outgoing, Outgoing::Answer(_) | Outgoing::Challenge(..));
        let mut challenge = None;
        let (text, most, most_bytes) = match outgoing {
            Outgoing::Notice(text) => (text, KEPT, KEPT_BYTES),
            Outgoing::Message(text) => (text, WAITING, WAITING_BYTES),
            Outgoing::Answer(text) => (text, usize::MAX, WAITING_BYTES),
            Outgoing::Challenge(text, wanted) => {
                challenge = Some(Arc::from(wanted));
                (text, usize::MAX, WAITING_BYTES)
            }
            Outgoing::Cancelled | Outgoing::Pause => return,
        };
        if state.phase == Phase::Ended {
            return;
        }
        // A reader that is not behind takes a message of any size.
        let is_wanted = state.is_read() && (is_answer || state.waiting() == 0);
        let fits = state.waiting() < most && state.unread_bytes + text.len() <= most_bytes;
        if !is_wanted && !fits {
            if is_answer {
                tracing::warn!("an answer was not kept: its client left, and it is too large");
                state.wholeness = Wholeness::Lacking;
            }
            return;
        }
        let place = state.next;
        state.next += 1;
        state.bytes += text.len();
        state.unread_bytes += text.len();
        state.events.push_back(Event { place, text, is_answer, challenge });
        state.trim();
        state.wake();
    }

    /// Sends the readers away once they have what there is; they can come back for the rest.
    pub(super) fn pause(&self) {
        let mut state = self.lock();
        for place in &mut state.readers {
            place.course = Course::Leaves;
            if let Some(waker) = place.waker.take() {
                waker.wake();
            }
        }
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.phase = Phase::Ended;
        state.wake();
        drop(state);
        self.room.notify_waiters();
    }

    /// Whether nothing more comes.
    pub(super) fn is_ended(&self) -> bool {
        self.lock().phase == Phase::Ended
    }

    /// Bytes that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Resolves when a reader is not behind, or nobody reads.
    pub(super) async fn room(&self) {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            {
                let state = self.lock();
                if !state.is_read() || state.phase == Phase::Ended || state.waiting() < KEPT / 4 {
                    return;
                }
            }
            room.await;
        }
    }

    /// The place of the last event that was read.
    pub(super) fn last_read(&self) -> u64 {
        self.lock().unread - 1
    }

    /// A reader of what nobody has read yet; `None` if there are too many.
    pub(super) fn read(self: &Arc<Self>) -> Option<Reader> {
        let at = self.lock().unread;
        self.read_from(at)
    }

    /// Whether a client that has had everything up to `place` can come back.
    pub(super) fn can_return(&self, place: u64) -> Return {
        let state = self.lock();
        let first = state.events.front().map_or(state.next, |event| event.place);
        if place >= state.next || place + 1 < first {
            return Return::Gone;
        }
        match state.phase {
            Phase::Ended if place + 1 == state.next => match state.wholeness {
                Wholeness::Whole => Return::Over,
                Wholeness::Lacking => Return::Gone,
            },
            _ => Return::Possible,
        }
    }

    /// A reader of everything from `place` on that is kept; `None` if there are too many.
    pub(super) fn read_from(self: &Arc<Self>, place: u64) -> Option<Reader> {
        let mut state = self.lock();
        if state.readers.len() >= READERS {
            return None;
        }
        let key = state.next_key;
        state.next_key += 1;
        state.readers.push(Place { key, at: place, waker: None, course: Course::Waits });
        drop(state);
        Some(Reader { channel: Arc::clone(self), key })
    }

    /// Every change leaves the state whole, so a poisoned lock holds a good one.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Messages that nobody has read.
    fn waiting(&self) -> usize {
        usize::try_from(self.next - self.unread).unwrap_or(usize::MAX)
    }

    fn is_read(&self) -> bool {
        !self.readers.is_empty()
    }

    /// Lets go of what was read, as far as it is more than is kept.
    fn trim(&mut self) {
        while self.bytes > KEPT_BYTES || self.events.len() > KEPT {
            let Some(first) = self.events.front().filter(|event| event.place < self.unread) else { return };
            // An answer is kept until its stream goes: it is what a client comes back for.
            if first.is_answer {
                return;
            }
            self.bytes -= first.text.len();
            self.events.pop_front();
        }
    }

    fn wake(&mut self) {
        let wake = |place: &mut Place| {
            if let Some(waker) = place.waker.take() {
                waker.wake();
            }
        };
        match self.phase {
            Phase::Open => self.readers.last_mut().into_iter().for_each(wake),
            Phase::Ended => self.readers.iter_mut().for_each(wake),
        }
    }

    fn poll(&mut self, key: u64, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let is_newest = self.readers.last().is_some_and(|place| place.key == key);
        let first = self.events.front().map_or(self.next, |event| event.place);
        let Some(place) = self.readers.iter_mut().find(|place| place.key == key) else { return Poll::Ready(None) };
        let at = usize::try_from(place.at.max(first) - first).unwrap_or(usize::MAX);
        let event = self.events.get(at).filter(|_| is_newest).cloned();
        match event {
            Some(event) => {
                place.at = event.place + 1;
                if event.place >= self.unread {
                    self.unread = event.place + 1;
                    self.unread_bytes -= event.text.len();
                }
                self.trim();
                Poll::Ready(Some(event))
            }
            None if self.phase == Phase::Ended || place.course == Course::Leaves => Poll::Ready(None),
            None => {
                place.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// A reader goes. The one that came before it goes on after what this one had.
    fn leave(&mut self, key: u64) {
        self.readers.retain(|place| place.key != key);
        let unread = self.unread;
        if let Some(place) = self.readers.last_mut() {
            place.at = place.at.max(unread);
        }
        self.wake();
    }
}

impl Reader {
    /// The stream that it reads.
    pub(super) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// The next message; `None` after the last.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let polled = self.channel.lock().poll(self.key, context);
        if polled.is_ready() {
            self.channel.room.notify_waiters();
        }
        polled
    }

    /// The next message; `None` after the last. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.channel.lock().leave(self.key);
        self.channel.room.notify_waiters();
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
