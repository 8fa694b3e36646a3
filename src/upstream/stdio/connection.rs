//! One connection on which messages go both ways: calls multiplexed over the two streams of a child process, or over
//! the event stream and the POSTs of HTTP+SSE.

mod telling;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::lines::{Line, Lines};
use super::notes::Note;
use super::pipes::{Broken, Inbound, Outbound, Outgoing, Pipe};
use super::scan::{Addressee, Scan};
use super::unsent::{Request, Wanted};
use crate::config::ForwardCancel;
use crate::protocol::json::{self, Json, JsonError};
use crate::protocol::message::{self, MessageFault};
use crate::protocol::{Call, EventSender, Failure, Message, Outcome, Reply, ReplySender, RequestId, Rope, StopCause};
use crate::upstream::incoming::{self, Peer};
use crate::upstream::pending::{Pending, Stopped, Ticket};
use crate::upstream::questions::{Floor, Verdict};
use crate::upstream::sessions::Hearer;
use crate::upstream::wire::ServerEra;
use crate::upstream::{Setup, outcome, wire};

/// A connection. Clones are the same one.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Connection(Arc<Inner>);

/// What became of handing a call over.
#[derive(Debug)]
pub(in crate::upstream) enum Handed {
    /// It has its outcome, or nobody waits for it any more.
    Over,
    /// Nothing of it was written, so it may go to another connection.
    NotTaken(ReplySender),
}

#[derive(Debug)]
struct Inner {
    setup: Setup,
    pending: Pending,
    floor: Floor,
    /// Requests, in order. A full queue holds the caller back.
    requests: mpsc::Sender<Request>,
    /// Answers and notifications. They go before requests; a full queue drops them, since a server that does
    /// not read has no use for them.
    notes: mpsc::Sender<Note>,
    modern: AtomicBool,
    noise: AtomicU64,
    answers: AtomicU64,
    /// No call is let in any more.
    over: CancellationToken,
    /// The writer is to end, which ends the server's input.
    hang_up: CancellationToken,
    /// Everything that the server wrote was taken in.
    read: CancellationToken,
}

/// How long a request of our own may take.
const OWN_REQUEST: Duration = Duration::from_secs(10);
/// Requests that wait to be written.
const REQUESTS: usize = 64;
/// Answers and notifications that wait to be written.
const NOTES: usize = 256;

impl Connection {
    /// A connection over these streams. Its jobs run in the jobs of `setup`.
    pub(super) fn open<R, W>(setup: &Setup, hearer: Hearer, reader: R, writer: W) -> Self
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        Self::between(setup, hearer, Lines::new(reader, setup.limits.message), Pipe::new(writer))
    }

    /// A connection whose messages come and go in any other way.
    pub(in crate::upstream) fn between(
        setup: &Setup,
        hearer: Hearer,
        inbound: impl Inbound,
        outbound: impl Outbound,
    ) -> Self {
        let (requests, requests_out) = mpsc::channel(REQUESTS);
        let (notes, notes_out) = mpsc::channel(NOTES);
        let connection = Self(Arc::new(Inner {
            setup: setup.clone(),
            pending: Pending::default(),
            floor: Floor::new(setup, hearer),
            requests,
            notes,
            modern: AtomicBool::new(false),
            noise: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            over: CancellationToken::new(),
            hang_up: CancellationToken::new(),
            read: CancellationToken::new(),
        }));
        setup.jobs.spawn("reader", connection.clone().read_all(inbound));
        setup.jobs.spawn("writer", connection.clone().write_all(outbound, requests_out, notes_out));
        connection
    }

    /// Sends a call and sees it through.
    pub(in crate::upstream) async fn call(&self, call: &Call, sender: ReplySender) -> Handed {
        self.call_as(call, sender, None).await
    }

    /// The same; progress that comes after the answer goes to `later`.
    pub(in crate::upstream) async fn call_as(
        &self,
        call: &Call,
        sender: ReplySender,
        later: Option<EventSender>,
    ) -> Handed {
        let (stop, events) = (sender.cancellation(), sender.events());
        let mut ticket = match self.0.pending.add(sender) {
            Ok(ticket) => ticket,
            Err(sender) => return Handed::NotTaken(sender),
        };
        let id = ticket.id;
        if let Some(later) = later {
            self.0.floor.later().add(id, later);
        }
        let seat = self.0.floor.enter(id, call, events);
        let fate = seat.fate();
        let wanted = Wanted::new(wire::line(wire::request(call, self.era(), id)));
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                seat.cancelled();
                self.stop(id, stop.cause()).await;
            }
            verdict = fate.verdict() => self.end_call(id, verdict).await,
            back = self.hand_over(wanted.request(id), &mut ticket) => if let Some(sender) = back {
                return Handed::NotTaken(sender);
            },
        }
        Handed::Over
    }

    /// Ends a call that cannot go on: its server needs to ask what its client cannot be asked.
    async fn end_call(&self, id: u64, verdict: Verdict) {
        match self.0.pending.stop(id) {
            Stopped::NotSent(sender) => sender.done(verdict.outcome()),
            Stopped::Over => {}
            Stopped::Running(stopping) => {
                self.tell_to_stop(id, verdict.cause());
                stopping.end(id, &self.0.pending, verdict.outcome(), self.linger()).await;
            }
        }
    }

    /// How long a call that nobody waits for any more may keep its turn.
    fn linger(&self) -> Duration {
        let config = &self.0.setup.config;
        match config.cancel {
            _ if !config.serial => Duration::ZERO,
            ForwardCancel::Forward | ForwardCancel::Never => config.cancel_grace,
            ForwardCancel::Ignored => Duration::MAX,
        }
    }

    /// Puts a request into the queue and waits until it is settled, or given back.
    async fn hand_over(&self, request: Request, ticket: &mut Ticket) -> Option<ReplySender> {
        // If the writer has ended, the end of the connection gives the call back.
        let _ = self.0.requests.send(request).await;
        ticket.settled().await
    }

    /// Stops a call whose caller cancelled it or left.
    async fn stop(&self, id: u64, cause: StopCause) {
        match self.0.pending.stop(id) {
            Stopped::NotSent(sender) => sender.done(Outcome::Failed(outcome::never_sent())),
            Stopped::Over => {}
            Stopped::Running(stopping) => {
                self.tell_to_stop(id, cause);
                stopping.finish(id, &self.0.pending, self.linger()).await;
            }
        }
    }

    /// Sends a request of our own and returns what comes of it. If this is dropped, a later answer is too.
    pub(in crate::upstream) async fn ask(&self, request: impl FnOnce(u64) -> Rope) -> Outcome {
        struct Abandon<'a>(&'a Pending, u64);
        impl Drop for Abandon<'_> {
            fn drop(&mut self) {
                self.0.abandon(self.1);
            }
        }
        let (sender, reply) = Reply::channel();
        let lost = || Outcome::Failed(Failure::outcome_unknown("the connection to the server ended"));
        let Ok(mut ticket) = self.0.pending.add(sender) else { return lost() };
        let _abandon = Abandon(&self.0.pending, ticket.id);
        let wanted = Wanted::new(wire::line(request(ticket.id)));
        let _ = self.0.requests.send(wanted.request(ticket.id)).await;
        tokio::select! {
            outcome = reply.outcome() => outcome,
            Some(_) = ticket.settled() => lost(),
        }
    }

    /// Sends a request of our own to a server that may be slow or silent.
    pub(in crate::upstream) async fn request(&self, method: &'static str, params: Rope) -> Outcome {
        let request = |id| message::request(&RequestId::from_number(id), method, Some(params));
        let silent = || Outcome::Failed(Failure::outcome_unknown("the server did not answer"));
        tokio::time::timeout(OWN_REQUEST, self.ask(request)).await.unwrap_or_else(|_| silent())
    }

    /// From now on the server is spoken to in the words of that era.
    pub(in crate::upstream) fn set_era(&self, era: ServerEra) {
        self.0.modern.store(era == ServerEra::Modern, Ordering::Release);
    }

    /// How many answers have come.
    pub(super) fn answers(&self) -> u64 {
        self.0.answers.load(Ordering::Relaxed)
    }

    /// How many lines were no messages.
    pub(super) fn noise(&self) -> u64 {
        self.0.noise.load(Ordering::Relaxed)
    }

    /// What the connection is made of.
    pub(in crate::upstream) fn setup(&self) -> &Setup {
        &self.0.setup
    }

    /// Resolves when no call is let in any more.
    pub(in crate::upstream) async fn over(&self) {
        self.0.over.cancelled().await;
    }

    /// Whether no call is let in any more.
    pub(in crate::upstream) fn is_over(&self) -> bool {
        self.0.over.is_cancelled()
    }

    /// Resolves when everything that the server wrote was taken in.
    pub(in crate::upstream) async fn read_to_end(&self) {
        self.0.read.cancelled().await;
    }

    /// Ends the server's input, when what is being written is out. Answers are still taken in.
    pub(super) fn hang_up(&self) {
        self.refuse();
        self.0.hang_up.cancel();
    }

    /// Ends every call: those that were sent as outcome unknown, for `how`.
    pub(in crate::upstream) fn end(&self, how: &str) {
        self.refuse();
        self.0.hang_up.cancel();
        self.0.read.cancel();
        self.0.pending.close(how);
    }

    /// The request `id` is about to go out; `false` if its call is over.
    pub(super) fn goes_out(&self, id: u64) -> bool {
        self.0.pending.send(id)
    }

    /// Not one byte of the request `id` could go out yet.
    pub(super) fn put_off(&self, id: u64) {
        self.0.pending.put_off(id);
    }

    /// The request `id` was not sent, not one byte of it.
    pub(in crate::upstream) fn not_taken(&self, id: u64) {
        self.0.pending.not_taken(id);
    }

    /// The request `id` has this outcome, unless it has another already.
    pub(in crate::upstream) fn settle(&self, id: u64, outcome: Outcome) {
        self.0.pending.settle(id, outcome);
    }

    /// Whether somebody waits for the answer to the request `id`, which was sent.
    pub(in crate::upstream) fn awaits(&self, id: u64) -> bool {
        self.0.pending.awaits(RequestId::from_number(id).token())
    }

    /// Takes the answer to the request `id` in, which came in another way than all messages.
    pub(in crate::upstream) fn answered(&self, id: u64, outcome: Outcome) {
        self.0.answers.fetch_add(1, Ordering::Relaxed);
        self.peer().answered(Some(RequestId::from_number(id).token()), outcome);
    }

    fn refuse(&self) {
        self.0.pending.refuse();
        self.0.over.cancel();
    }

    /// Who runs on it, and can be asked.
    pub(in crate::upstream) fn floor(&self) -> &Floor {
        &self.0.floor
    }

    /// Which kind of revision the server speaks.
    pub(in crate::upstream) fn era(&self) -> ServerEra {
        if self.0.modern.load(Ordering::Acquire) { ServerEra::Modern } else { ServerEra::Legacy }
    }

    fn peer(&self) -> Peer<'_> {
        let shared = self.0.setup.config.share && !self.0.floor.is_attached();
        let server = &self.0.setup.config.name;
        Peer { server, era: self.era(), shared, pending: &self.0.pending, floor: &self.0.floor }
    }

    async fn read_all(self, mut inbound: impl Inbound) {
        // Whether the call of the line that grows too long was told so before the line's end.
        let mut is_told = false;
        loop {
            let line = tokio::select! {
                biased;
                line = inbound.receive() => line,
                () = self.0.read.cancelled() => break,
            };
            match line {
                Line::Whole(text) => {
                    is_told = false;
                    self.take_in(text);
                }
                Line::Rest(text) => self.take_in_rest(text),
                Line::Growing => is_told = self.0.pending.fail_only(outcome::too_large(self.0.setup.limits.message)),
                Line::TooLong(Addressee::Unnamed) if is_told => {}
                Line::TooLong(addressee) => self.too_long(addressee),
                Line::End => break,
            }
        }
        self.refuse();
        self.0.read.cancel();
    }

    /// Takes a line in. What is no message is skipped: many servers log to their output (field case 34).
    fn take_in(&self, text: Bytes) {
        let text = json::without_mark(text);
        match Message::parse(&text, self.0.setup.limits.depth) {
            Ok(message) => {
                if matches!(message, Message::Result { .. } | Message::Error { .. }) {
                    self.0.answers.fetch_add(1, Ordering::Relaxed);
                }
                let question = match &message {
                    Message::Request { id, .. } => Some(id.token().clone()),
                    Message::Result { .. } | Message::Error { .. } | Message::Notification { .. } => None,
                };
                let way = self.clone();
                let way = move |answer| async move { way.answer(question, answer).await };
                if let Some(answer) = incoming::take_in(message, &self.peer(), way) {
                    self.reply(answer);
                }
            }
            Err(error) if matches!(error.cause, MessageFault::Batch) => self.take_in_batch(&text),
            Err(error) => match error.to_refusal().filter(|_| self.era() == ServerEra::Legacy) {
                Some(answer) => self.reply(answer),
                None => self.take_in_broken(&text, &error.cause),
            },
        }
    }

    /// Half an answer is none: its call is lost with the server that died while it wrote it.
    fn take_in_rest(&self, text: Bytes) {
        let text = json::without_mark(text);
        match Message::parse(&text, self.0.setup.limits.depth) {
            Err(error) if !matches!(error.cause, MessageFault::Batch) => self.count_noise(),
            Ok(_) | Err(_) => self.take_in(text),
        }
    }

    /// Arrays were legal in 2025-03-26. Nested ones never were.
    fn take_in_batch(&self, text: &Bytes) {
        let Ok(elements) = json::elements(text) else { return self.count_noise() };
        let mut any = false;
        for element in elements.iter().filter(|element| element.get().starts_with('{')) {
            any = true;
            self.take_in(Json::of(text, element).bytes().clone());
        }
        if !any {
            self.count_noise();
        }
    }

    /// A line that is no message. If it is meant as an answer, its call must not be left to hang.
    fn take_in_broken(&self, text: &Bytes, fault: &MessageFault) {
        let broken = || Outcome::Failed(failure_of(fault));
        let mut scan = Scan::default();
        if text.trim_ascii_start().starts_with(b"{") {
            scan.feed(text);
        }
        let is_cut = matches!(fault, MessageFault::Json(_)) && scan.has_outcome();
        match scan.addressee() {
            Addressee::Call(id) if scan.is_rpc() || (scan.has_outcome() && self.0.pending.awaits(&id)) => {
                self.peer().answered(Some(&id), broken());
            }
            Addressee::Unnamed if is_cut => self.peer().answered_unread(broken()),
            Addressee::Unnamed => self.peer().answered(None, broken()),
            Addressee::Call(_) | Addressee::Us(_) | Addressee::Nobody => self.count_noise(),
        }
    }

    fn too_long(&self, addressee: Addressee) {
        let limit = self.0.setup.limits.message;
        tracing::warn!(server = %self.0.setup.config.name, limit, "a line of the server is longer than limits.message");
        let failure = outcome::too_large(limit);
        match addressee {
            Addressee::Call(id) => self.peer().answered(Some(&id), Outcome::Failed(failure)),
            Addressee::Unnamed => self.0.pending.fail_oldest(failure),
            Addressee::Us(_) => {}
            Addressee::Nobody => self.count_noise(),
        }
    }

    fn count_noise(&self) {
        let count = self.0.noise.fetch_add(1, Ordering::Relaxed) + 1;
        if count <= 10 || count.is_power_of_two() {
            tracing::debug!(server = %self.0.setup.config.name, count, "a line of the server's output is no message");
        }
    }

    async fn write_all(
        self,
        mut outbound: impl Outbound,
        mut requests: mpsc::Receiver<Request>,
        mut notes: mpsc::Receiver<Note>,
    ) {
        loop {
            let (request, message) = tokio::select! {
                biased;
                () = self.0.hang_up.cancelled() => break,
                Some(note) = notes.recv() => {
                    self.0.pending.note();
                    (None, Outgoing::Note(note))
                }
                Some(request) = requests.recv() => {
                    // It may have been cancelled while it was waiting.
                    let Some(line) = request.take() else { continue };
                    if !self.0.pending.send(request.id) {
                        continue;
                    }
                    (Some(request.id), Outgoing::Request(request.id, line))
                }
                else => break,
            };
            let written = tokio::select! {
                biased;
                written = outbound.send(&self, message) => written,
                // A server that does not read must not keep its own end from going on.
                () = self.0.read.cancelled() => Err(Broken::Within),
            };
            if let Err(broken) = written {
                self.refuse();
                if let (Broken::Untouched, Some(id)) = (broken, request) {
                    self.0.pending.not_taken(id);
                }
                break;
            }
        }
        self.refuse();
        outbound.close().await;
        drop(outbound);
        requests.close();
        while let Some(request) = requests.recv().await {
            self.0.pending.not_taken(request.id);
        }
    }
}

/// What a call is told whose answer is no message. Nothing of the answer is said, but for what its envelope lacks.
fn failure_of(fault: &MessageFault) -> Failure {
    let what = "the server's answer is no valid JSON-RPC message";
    match fault {
        MessageFault::Json(JsonError::TooDeep { limit }) => outcome::too_deep(*limit),
        MessageFault::NotAMessage(why) => outcome::bad_answer(&format!("{what} ({why})")),
        _ => outcome::bad_answer(what),
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
