//! What both ends of a reply share: events on their way to the reader, and wishes on their way to the server's side.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::failure::Failure;
use super::json::Json;
use super::reply::{Event, Outcome, WaitsFor};
use super::stop::StopCause;

/// The end of a [`Reply`](super::reply::Reply) that the server's side holds. Dropping it without an outcome ends the call
/// as outcome unknown.
#[derive(Debug)]
pub struct ReplySender(Arc<Line>);

/// Sends events of a call, apart from its [`ReplySender`]: a server asks at times on another stream than the call's.
#[derive(Clone, Debug)]
pub struct EventSender(Arc<Line>);

/// The end of the reader.
#[derive(Debug)]
pub(super) struct Events(Arc<Line>);

/// Whether a call is to be stopped, apart from its [`ReplySender`].
#[derive(Clone, Debug)]
pub struct Cancellation(Arc<Line>);

/// What both ends share.
#[derive(Debug)]
struct Line {
    state: Mutex<State>,
    /// The reader cancelled, left, or took an event.
    wish: Notify,
}

#[derive(Debug)]
struct State {
    events: VecDeque<Event>,
    end: End,
    reader: Reader,
    cancelled: bool,
    /// Why, if the reader did not just leave.
    called_off: Option<StopCause>,
    /// The call goes on without a reader, for another process.
    left_running: bool,
    turn: Turn,
    /// The request of the call waits until the server reads it: whoever stops the call now may hear that it was never sent.
    unwritten: bool,
}

/// Whether the call may go to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It may as soon as somebody reads. To `Free` then, to `Waits`, or to `Kept` if the reader says so before.
    Unread,
    /// It may. To `Waits`.
    Free,
    /// It has to wait. To `Free` when the wait is over, to `Kept` if the reader says so.
    Waits,
    /// It has to wait for the reader. To `Free`.
    Kept,
}

/// To `Sent` or `Lost`, once, and to `Taken`.
#[derive(Debug)]
enum End {
    Open,
    Sent(Outcome),
    /// The sender was dropped.
    Lost,
    Taken,
}

#[derive(Debug)]
enum Reader {
    /// To be woken, if it waits.
    Here(Option<Waker>),
    Gone,
}

/// Events that may wait in a reply that nobody reads; more are dropped.
pub(super) const WAITING_EVENTS: usize = 32;

/// Places among them that progress and logs leave free for all else.
pub(super) const RESERVED: usize = 16;

/// Bytes of a log line that is passed on: more of them wait than one reply may take memory for.
const LOG_LINE: usize = 1 << 20;

/// The two ends of a reply.
pub(super) fn line() -> (ReplySender, Events) {
    line_at(Turn::Free)
}

/// The two ends of a reply whose reader may keep the call back from the first.
pub(super) fn gated() -> (ReplySender, Events) {
    line_at(Turn::Unread)
}

fn line_at(turn: Turn) -> (ReplySender, Events) {
    let state = State {
        events: VecDeque::new(),
        end: End::Open,
        reader: Reader::Here(None),
        cancelled: false,
        called_off: None,
        left_running: false,
        turn,
        unwritten: false,
    };
    let line = Arc::new(Line { state: Mutex::new(state), wish: Notify::new() });
    (ReplySender(Arc::clone(&line)), Events(line))
}

impl Events {
    /// The next event, if it is there, for a reader who is about to make more of them himself: he is woken by none of
    /// those until he waits again. Not to be asked after the end.
    pub(super) fn take_awake(&self) -> Option<Event> {
        let mut state = self.0.state();
        self.0.is_read(&mut state);
        let event = state.take();
        if let Reader::Here(waker) = &mut state.reader {
            *waker = None;
        }
        drop(state);
        self.0.taken(event.as_ref());
        event
    }

    /// The next event. Not to be polled after the end.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Event> {
        let mut state = self.0.state();
        self.0.is_read(&mut state);
        if let Some(event) = state.take() {
            drop(state);
            self.0.taken(Some(&event));
            return Poll::Ready(event);
        }
        match &mut state.reader {
            Reader::Here(Some(waker)) => waker.clone_from(context.waker()),
            reader => *reader = Reader::Here(Some(context.waker().clone())),
        }
        Poll::Pending
    }

    /// A way for events to come out here.
    pub(super) fn sender(&self) -> EventSender {
        EventSender(Arc::clone(&self.0))
    }

    /// Asks the server to stop. The first cause counts.
    pub(super) fn cancel(&self, cause: StopCause) {
        let mut state = self.0.state();
        state.cancelled = true;
        state.called_off.get_or_insert(cause);
        drop(state);
        self.0.wish.notify_waiters();
    }

    /// Whether nothing has gone to the server; the call goes there only when it was let go then.
    pub(super) fn keep_back(&self) -> bool {
        let mut state = self.0.state();
        match state.turn {
            Turn::Free => return false,
            Turn::Unread | Turn::Waits | Turn::Kept => state.turn = Turn::Kept,
        }
        true
    }

    /// The call may go on although nobody reads.
    pub(super) fn is_to_go_on(&self) {
        let mut state = self.0.state();
        self.0.is_read(&mut state);
    }

    /// It may go there.
    pub(super) fn let_go(&self) {
        self.0.state().turn = Turn::Free;
        self.0.wish.notify_waiters();
    }

    /// Whether the request waits until the server reads it.
    pub(super) fn is_unwritten(&self) -> bool {
        self.0.state().unwritten
    }

    /// The call is to go on without a reader. To be said before the reader leaves.
    pub(super) fn leave_running(&self) {
        self.0.state().left_running = true;
    }

    /// Nobody reads any more.
    pub(super) fn leave(&self) {
        let mut state = self.0.state();
        state.reader = Reader::Gone;
        state.cancelled = true;
        let unread = (std::mem::take(&mut state.events), std::mem::replace(&mut state.end, End::Taken));
        drop(state);
        drop(unread);
        self.0.wish.notify_waiters();
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics with the lock held, so a poisoned state is still in order.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reader has had its chance to keep the call back.
    fn is_read(&self, state: &mut State) {
        if state.turn == Turn::Unread {
            state.turn = Turn::Free;
            self.wish.notify_waiters();
        }
    }

    /// Tells those who wait for room.
    fn taken(&self, event: Option<&Event>) {
        if !matches!(event, None | Some(Event::Done(_))) {
            self.wish.notify_waiters();
        }
    }

    async fn until(&self, reached: impl Fn(&State) -> bool) {
        loop {
            // A wish that comes between the look and the wait is not missed.
            let wish = self.wish.notified();
            if reached(&self.state()) {
                return;
            }
            wish.await;
        }
    }

    fn event(&self, event: Event) {
        let (len, is_chatter) = match &event {
            Event::Log(line) => (line.len(), true),
            // The state of a task has a result in it; whoever sends those waits for room.
            Event::Notification(said) if said.method == "notifications/tasks" => (0, false),
            Event::Notification(said) => {
                let is_chatter = matches!(said.method.as_str(), "notifications/message" | "notifications/progress");
                (said.params.as_ref().map_or(0, Json::len), is_chatter)
            }
            Event::Progress(_) | Event::Paused | Event::Anchored(_) => (0, true),
            Event::Ask(_) | Event::Attached(_) | Event::Waits(_) | Event::Began | Event::Done(_) => (0, false),
        };
        let places = match &event {
            // A few in all.
            Event::Waits(_) | Event::Began => usize::MAX,
            _ if is_chatter => WAITING_EVENTS - RESERVED,
            _ => WAITING_EVENTS,
        };
        let mut state = self.state();
        if len > LOG_LINE || state.events.len() >= places {
            return;
        }
        let Reader::Here(waker) = &mut state.reader else { return };
        let waker = waker.take();
        state.events.push_back(event);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn end(&self, end: End) {
        let mut state = self.state();
        let Reader::Here(waker) = &mut state.reader else {
            // Nobody wants it.
            return;
        };
        let waker = waker.take();
        state.end = end;
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    /// The next event; those that were sent before the outcome come out before it.
    fn take(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let outcome = match std::mem::replace(&mut self.end, End::Taken) {
            End::Open => {
                self.end = End::Open;
                return None;
            }
            End::Sent(outcome) => outcome,
            End::Lost | End::Taken => Outcome::Failed(Failure::outcome_unknown("the connection to the server ended")),
        };
        Some(Event::Done(outcome))
    }
}

impl ReplySender {
    /// Sends an event; dropped if the reader is behind, or if it is a log line that is huge. A question that is dropped
    /// is refused. An outcome is sent with [`ReplySender::done`].
    pub fn event(&self, event: Event) {
        self.0.event(event);
    }

    /// The call has to wait before it goes to the server. A reader that wants to know hears of the end of the wait
    /// through [`ReplySender::begins`], which is to be called in any case.
    pub fn waits(&self, reason: WaitsFor) {
        let mut state = self.0.state();
        match state.turn {
            Turn::Unread | Turn::Free => state.turn = Turn::Waits,
            Turn::Waits | Turn::Kept => {}
        }
        drop(state);
        self.0.event(Event::Waits(reason));
    }

    /// To be called before the call goes to the server: resolves at once, or, if the reader keeps the call back, when it
    /// is let go. `false` if it was cancelled and is not to be sent.
    pub async fn begins(&self) -> bool {
        loop {
            {
                let mut state = self.0.state();
                match state.turn {
                    Turn::Free => return !state.cancelled,
                    Turn::Unread if state.cancelled => return false,
                    Turn::Unread => {}
                    Turn::Waits => {
                        state.turn = Turn::Free;
                        break;
                    }
                    Turn::Kept => break,
                }
            }
            self.0.until(|state| state.turn != Turn::Unread || state.cancelled).await;
        }
        self.0.event(Event::Began);
        self.0.until(|state| state.turn == Turn::Free || state.cancelled).await;
        !self.is_cancelled()
    }

    /// The request of the call is ready, and waits until the server reads it.
    pub fn is_to_be_written(&self) {
        self.0.state().unwritten = true;
    }

    /// The server can have the request of the call from now on.
    pub fn is_written(&self) {
        self.0.state().unwritten = false;
    }

    /// Whether it may be that the server does not have all of the request.
    pub fn is_unwritten(&self) -> bool {
        self.0.state().unwritten
    }

    /// The way for events, to be used apart from this sender.
    pub fn events(&self) -> EventSender {
        EventSender(Arc::clone(&self.0))
    }

    /// Resolves when no event waits for the reader: whoever sends large ones keeps one on the way. Cancel safe.
    pub async fn drained(&self) {
        self.0.until(|state| state.events.is_empty()).await;
    }

    /// Ends the reply.
    pub fn done(self, outcome: Outcome) {
        self.0.end(End::Sent(outcome));
    }

    /// Resolves when the call is to be stopped: it was cancelled or abandoned. An answer that comes
    /// later is still wanted unless [`ReplySender::is_abandoned`].
    pub async fn cancelled(&self) {
        self.0.until(|state| state.cancelled).await;
    }

    /// Whether the call is to be stopped.
    pub fn is_cancelled(&self) -> bool {
        self.0.state().cancelled
    }

    /// Whether the reader has cancelled the call, and did not just leave.
    pub fn is_called_off(&self) -> bool {
        self.0.state().called_off.is_some()
    }

    /// Why the call is to be stopped.
    pub fn stop_cause(&self) -> StopCause {
        self.0.state().called_off.unwrap_or_default()
    }

    /// Whether the call is not to be stopped although nobody reads any more: another process will resume it.
    pub fn is_left_running(&self) -> bool {
        self.0.state().left_running
    }

    /// What is behind [`ReplySender::cancelled`], to be watched apart from this sender.
    pub fn cancellation(&self) -> Cancellation {
        Cancellation(Arc::clone(&self.0))
    }

    /// Resolves when nobody waits for the outcome any more.
    pub async fn abandoned(&mut self) {
        self.0.until(State::is_abandoned).await;
    }

    /// Whether nobody waits for the outcome any more.
    pub fn is_abandoned(&self) -> bool {
        self.0.state().is_abandoned()
    }
}

impl State {
    fn is_abandoned(&self) -> bool {
        matches!(self.reader, Reader::Gone)
    }
}

impl EventSender {
    /// As [`ReplySender::event`].
    pub fn event(&self, event: Event) {
        self.0.event(event);
    }

    /// As [`ReplySender::is_to_be_written`].
    pub fn is_to_be_written(&self) {
        self.0.state().unwritten = true;
    }

    /// As [`ReplySender::is_written`].
    pub fn is_written(&self) {
        self.0.state().unwritten = false;
    }

    /// As [`ReplySender::is_left_running`].
    pub fn is_left_running(&self) -> bool {
        self.0.state().left_running
    }

    /// Whether nobody reads the events any more.
    pub fn is_closed(&self) -> bool {
        self.0.state().is_abandoned()
    }
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        let open = matches!(self.0.state().end, End::Open);
        if open {
            self.0.end(End::Lost);
        }
    }
}

impl Cancellation {
    /// Resolves when the call is to be stopped.
    pub async fn cancelled(&self) {
        self.0.until(|state| state.cancelled).await;
    }

    /// Why.
    pub fn cause(&self) -> StopCause {
        self.0.state().called_off.unwrap_or_default()
    }
}
