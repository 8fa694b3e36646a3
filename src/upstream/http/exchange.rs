//! One request to a server and all that comes back for it: a body of JSON, or an event stream that may break
//! and be resumed.

use std::collections::VecDeque;

use bytes::Bytes;
use http::StatusCode;
use http::header::HeaderMap;

use super::answer::{self, Answer, ReadLimits, Refusal, Unusable};
use super::client::{SendError, Taken};
use super::connect::HttpConnect;
use super::endpoint::{self, JSON_FIRST};
use super::events::{End, EventStream, Item};
use super::failures;
use super::ids::{self, Named};
use super::own::{Health, Spoken};
use super::reconnect::Resume;
use super::resume::Anchors;
use super::session::{Forgotten, HttpSession};
use super::unwritten;
use crate::protocol::message::MessageError;
use crate::protocol::{
    Call, Event, EventSender, Failure, Json, Message, Method, Notification, Outcome, Progress, Reply, Rope,
};
use crate::upstream::questions::{Origin, Request};
use crate::upstream::wire::ServerEra;
use crate::upstream::{outcome, subscription};

/// One request, until it has its outcome.
pub(super) struct Exchange<'a> {
    pub(super) link: Link,
    pub(super) server: &'a str,
    call: &'a Call,
    /// The id upstream, which is the progress token too.
    id: u64,
    /// The headers of the caller that are passed on.
    pub(super) forwarded: &'a HeaderMap,
    pub(super) state: State,
    /// What was read and is still to be taken.
    ready: VecDeque<Step>,
    /// Progress that comes on the session's listen stream.
    elsewhere: Option<Reply>,
    pub(super) resume: Resume,
    /// Who is told when the request is written.
    watcher: Option<EventSender>,
    /// To tell where the run is.
    anchors: Option<Anchors>,
}

/// By which rules the server is spoken to.
#[derive(Debug)]
pub(super) enum Link {
    /// On a session of a legacy revision.
    Session(HttpSession),
    /// 2026-07-28: every request stands alone.
    Modern(HttpConnect),
}

/// What comes next of an exchange.
#[derive(Debug)]
pub(super) enum Step {
    /// Progress, a line of the log, or a pause.
    Event(Event),
    /// The end.
    Done(Outcome),
    /// The end, but the same request may be sent again, once: it is one that changes nothing, or the server
    /// was never reached. If it is not sent again, this is its outcome.
    Again(Outcome),
    /// The end: the server does not know the session any more. If the request is not sent again on another
    /// session, this is its outcome.
    SessionGone(Outcome),
}

#[derive(Debug)]
pub(super) enum State {
    /// To be sent.
    New(Rope),
    /// The response is an event stream.
    Reading(Box<EventStream>, Stream),
    /// The stream ended without an answer.
    Broken(String),
    /// The outcome is in `ready`, or was taken.
    Over,
}

/// Which stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// The response to the request itself: only one answer can come on it.
    Own,
    /// A resumed one, on which some servers replay what belongs to other streams.
    Resumed,
}

impl Link {
    fn era(&self) -> ServerEra {
        match self {
            Self::Session(_) => ServerEra::Legacy,
            Self::Modern(_) => ServerEra::Modern,
        }
    }
}

impl<'a> Exchange<'a> {
    /// An exchange that was not begun.
    pub(super) fn new(
        link: Link,
        server: &'a str,
        call: &'a Call,
        (id, message): (u64, Rope),
        forwarded: &'a HeaderMap,
        elsewhere: Option<Reply>,
    ) -> Self {
        let (state, ready, resume) = (State::New(message), VecDeque::new(), Resume::default());
        Self { link, server, call, id, forwarded, state, ready, elsewhere, resume, watcher: None, anchors: None }
    }

    /// The same, which tells when its request is written.
    pub(super) fn watched_by(self, watcher: EventSender) -> Self {
        Self { watcher: Some(watcher), ..self }
    }

    /// The same, which tells where the run is.
    pub(super) fn with_anchors(self) -> Self {
        Self { anchors: Some(Anchors::default()), ..self }
    }

    /// An exchange on a session that another process began; it goes on behind the event `last_id`.
    pub(super) fn resumed(
        session: HttpSession,
        server: &'a str,
        call: &'a Call,
        id: u64,
        forwarded: &'a HeaderMap,
        elsewhere: Reply,
        last_id: String,
    ) -> Self {
        let link = Link::Session(session);
        let new = Self::new(link, server, call, (id, Rope::default()), forwarded, Some(elsewhere)).with_anchors();
        let state = State::Broken("Raincheck was restarted during the run".to_owned());
        Self { state, resume: Resume { last_id: Some(last_id), ..Resume::default() }, ..new }
    }

    /// What comes next. Nothing comes after an end. Not cancel safe.
    pub(super) async fn next(&mut self) -> Step {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return step;
            }
            match std::mem::replace(&mut self.state, State::Over) {
                State::New(message) => self.send(message).await,
                State::Reading(stream, origin) => self.read(stream, origin).await,
                State::Broken(how) => Box::pin(self.resume(how)).await,
                State::Over => return Step::Done(Outcome::Failed(Failure::outcome_unknown("the exchange is over"))),
            }
        }
    }

    async fn send(&mut self, message: Rope) {
        let response = match &self.link {
            Link::Session(session) => session.post(self.forwarded, message, self.watcher.as_ref()).await,
            Link::Modern(connect) => {
                let (endpoint, arguments) = (connect.endpoint(), connect.tools().of(self.call));
                let message = message.shared();
                let make = || {
                    let message = unwritten::watched(message.clone(), self.watcher.as_ref());
                    let mut request = endpoint.post(self.forwarded, JSON_FIRST, message);
                    endpoint::mirror(request.headers_mut(), self.call, &arguments);
                    request
                };
                endpoint.send(make).await
            }
        };
        if let Some(watcher) = self.watcher.take() {
            // Whoever answers may have begun.
            watcher.is_written();
        }
        let response = match response {
            Ok(response) => response,
            Err(error) => return self.not_sent(&error),
        };
        if response.status().is_success() {
            self.call.caller.principal.taken();
        }
        match Answer::read(response, self.limits()).await {
            Ok(Answer::Events(stream)) => {
                self.worked();
                self.state = State::Reading(stream, Stream::Own);
            }
            Ok(Answer::Messages(messages)) => {
                self.worked();
                self.body(messages).await;
            }
            Ok(Answer::Nothing(status)) => {
                let text = format!("the server answered with status {status} and no body");
                self.end(Step::Done(Outcome::Failed(failures::bad_answer(&text))));
            }
            // Rare, so its state is not part of every exchange's.
            Ok(Answer::Refused(refusal)) => Box::pin(self.refused(refusal)).await,
            Err(fault @ Unusable::Broken(_)) => self.lost(failures::unusable(&fault)),
            Err(fault) => self.end(Step::Done(Outcome::Failed(failures::unusable(&fault)))),
        }
    }

    fn not_sent(&mut self, error: &SendError) {
        let failure = failures::not_sent(self.server, error);
        if let Link::Session(session) = &self.link {
            session.doubt();
        }
        match error.taken {
            // A server that is down is left to the caller.
            Taken::Never => self.end(Step::Done(Outcome::Failed(failure))),
            Taken::GivenBack => self.end(Step::Again(Outcome::Failed(failure))),
            Taken::Unknown => self.lost(failure),
        }
    }

    async fn refused(&mut self, refusal: Refusal) {
        if refusal.status == StatusCode::UNAUTHORIZED {
            self.call.caller.principal.refused();
        }
        if let Some(error) = failures::of_revision(&refusal) {
            let spoken = match &self.link {
                Link::Session(session) => {
                    let spoken = session.is_spoken(self.forwarded).await;
                    // A tool of an older server may have run, and have a use of its own for the code.
                    if spoken != Spoken::Yes {
                        session.gone();
                    }
                    spoken
                }
                Link::Modern(connect) => {
                    connect.forget();
                    Spoken::No
                }
            };
            return self.end(match spoken {
                // It was not taken, so it may go again when the server was asked what it speaks now.
                Spoken::No => Step::Again(Outcome::Failed(outcome::not_spoken(self.server, error))),
                Spoken::Yes | Spoken::Unknown => Step::Done(failures::refused(self.server, self.link.era(), refusal)),
            });
        }
        match &self.link {
            Link::Session(session) if is_forgotten(session, self.forwarded, &refusal, self.id).await => {
                session.gone();
                return self.end(Step::SessionGone(Outcome::Failed(failures::session_gone(&refusal))));
            }
            // A modern server says in JSON-RPC what it refuses.
            Link::Modern(connect) if refusal.error.is_none() && refusal.is_about_the_request() => connect.forget(),
            Link::Session(_) | Link::Modern(_) => {}
        }
        self.end(Step::Done(failures::refused(self.server, self.link.era(), refusal)));
    }

    /// Takes the messages of a body in: there is one answer, or there will be none.
    async fn body(&mut self, messages: Vec<Result<Message, MessageError>>) {
        for message in messages {
            self.message(message, Stream::Own).await;
        }
        if !self.has_ended() {
            let text = "the server answered with JSON that is no answer to the request";
            self.end(Step::Done(Outcome::Failed(failures::bad_answer(text))));
        }
    }

    async fn read(&mut self, mut stream: Box<EventStream>, origin: Stream) {
        let item = tokio::select! {
            item = stream.next() => item,
            () = tokio::time::sleep(self.resume.patience()), if origin == Stream::Resumed => return self.was_silent(),
            Some(event @ Event::Progress(_)) = next_of(&mut self.elsewhere) => {
                self.ready.push_back(Step::Event(event));
                self.state = State::Reading(stream, origin);
                return;
            }
        };
        if self.resume.last_id.as_deref() != stream.last_id() {
            self.resume.last_id = stream.last_id().map(str::to_owned);
        }
        self.resume.retry = stream.retry().or(self.resume.retry);
        match item {
            Item::Event(data) => {
                (self.resume.failures, self.resume.silences) = (0, 0);
                self.event(data, origin).await;
            }
            Item::Mark => {}
            Item::Unfinished(data) => self.unfinished(data, origin).await,
            Item::End(End::TooLarge(limit)) => self.end(Step::Done(Outcome::Failed(outcome::too_large(limit)))),
            Item::End(End::Closed) => {
                if self.resume.last_id.is_some() && self.resume.retry.is_some() {
                    self.ready.push_back(Step::Event(Event::Paused));
                }
                self.state = State::Broken("the server ended the stream without an answer".to_owned());
                return;
            }
            Item::End(End::Broken(why)) => {
                self.state = State::Broken(format!("the stream of the answer broke: {why}"));
                return;
            }
        }
        if !self.has_ended() {
            self.state = State::Reading(stream, origin);
            self.anchor();
        }
    }

    /// Tells where the run is, now and then. Never behind a question that is open: the server is to ask it again.
    fn anchor(&mut self) {
        let (Some(anchors), Link::Session(session)) = (&mut self.anchors, &self.link) else { return };
        let Some(event) = self.resume.last_id.as_deref() else { return };
        if anchors.is_due(event) && !session.floor().is_asking(self.id) && !session.is_answering(self.id) {
            let anchor = session.place(self.id, event).and_then(|place| place.anchor());
            anchors.told(event);
            self.ready.extend(anchor.map(|anchor| Step::Event(Event::Anchored(anchor))));
        }
    }

    async fn event(&mut self, data: Bytes, origin: Stream) {
        match answer::messages(&data, self.limits().depth) {
            Ok(messages) => {
                for message in messages {
                    self.message(message, origin).await;
                }
            }
            Err(error) => tracing::debug!(server = self.server, %error, "an event that is no JSON was passed over"),
        }
    }

    /// An event whose end does not come is taken if it is a whole answer to this request.
    async fn unfinished(&mut self, data: Bytes, origin: Stream) {
        let Ok(messages) = answer::messages(&data, self.limits().depth) else { return };
        for message in messages {
            if let Ok(Message::Result { .. } | Message::Error { .. }) = message {
                self.message(message, origin).await;
            }
        }
    }

    async fn message(&mut self, message: Result<Message, MessageError>, origin: Stream) {
        if self.has_ended() {
            return;
        }
        let era = self.link.era();
        match message {
            Ok(Message::Result { id, result }) => self.answer(Some(&id), origin, || outcome::of_result(result, era)),
            Ok(Message::Error { id, error }) => {
                let server = self.server;
                self.answer(id.as_ref(), origin, || outcome::of_error(server, error, era));
            }
            Ok(Message::Notification { method, params }) => self.notification(method, params),
            Ok(Message::Request { id, method, params }) => match &self.link {
                Link::Session(session) => {
                    session.asked(self.forwarded, Request { id, method, params }, Origin::Call(self.id)).await;
                }
                Link::Modern(_) => {
                    tracing::debug!(server = self.server, "a modern server sent a request, which it must not");
                }
            },
            Err(error) => {
                tracing::debug!(server = self.server, %error, "a message that cannot be read");
                if let (Link::Session(session), Some(answer)) = (&self.link, error.to_refusal()) {
                    return session.reply(self.forwarded, answer, Some(self.id)).await;
                }
                let ours = error.answers.as_ref().is_some_and(|id| ids::named(Some(id), self.id) == Named::Ours);
                if ours {
                    let text = format!("the server's answer cannot be read: {error}");
                    self.end(Step::Done(Outcome::Failed(failures::bad_answer(&text))));
                }
            }
        }
    }

    fn notification(&mut self, method: String, params: Option<Json>) {
        match (method.as_str(), params) {
            ("notifications/progress", Some(params)) => {
                let token = params.member("progressToken").as_ref().and_then(ids::token);
                let Some((token, progress)) = token.zip(Progress::read(&params)) else { return };
                match &self.link {
                    _ if token == self.id => self.ready.push_back(Step::Event(Event::Progress(progress))),
                    // Many servers put what belongs to a task on the stream of any request.
                    Link::Session(session) => session.floor().later().progress(token, progress),
                    Link::Modern(_) => {}
                }
            }
            ("notifications/message", Some(params)) => {
                let params = match &self.link {
                    Link::Session(session) => session.floor().untied(params),
                    Link::Modern(_) => params,
                };
                self.ready.push_back(Step::Event(Event::Log(params)));
            }
            (_, params) => match &self.link {
                Link::Session(session) => session.said(method, params),
                Link::Modern(_) => {
                    // What was subscribed to; nothing else has a place on the stream of a modern request.
                    if let Some((_, params)) = params.as_ref().and_then(subscription::unwrap) {
                        let said = Notification { method, params: Some(params) };
                        self.ready.push_back(Step::Event(Event::Notification(said)));
                    }
                }
            },
        }
    }

    fn answer(&mut self, id: Option<&Json>, origin: Stream, outcome: impl FnOnce() -> Outcome) {
        match ids::named(id, self.id) {
            Named::Ours => {}
            // Each POST is an exchange of its own, so nobody else can be meant.
            Named::Nobody if origin == Stream::Own => {
                tracing::debug!(server = self.server, "an answer without a usable id was taken for its request");
            }
            Named::Nobody | Named::Other => {
                tracing::debug!(server = self.server, "an answer to another request was passed over");
                return;
            }
        }
        self.end(Step::Done(outcome()));
    }

    /// The answer was lost.
    pub(super) fn lost(&mut self, failure: Failure) {
        let outcome = Outcome::Failed(failure);
        self.end(if changes_nothing(&self.call.method) { Step::Again(outcome) } else { Step::Done(outcome) });
    }

    fn end(&mut self, step: Step) {
        self.state = State::Over;
        self.ready.push_back(step);
    }

    fn has_ended(&self) -> bool {
        self.ready.back().is_some_and(|step| !matches!(step, Step::Event(_)))
    }

    fn worked(&self) {
        if let Link::Session(session) = &self.link {
            session.worked();
        }
    }

    pub(super) fn limits(&self) -> ReadLimits {
        match &self.link {
            Link::Session(session) => session.limits(),
            Link::Modern(connect) => connect.limits(),
        }
    }
}

/// Whether a refusal of the request `id` says that the server does not know the session. Where it may, the server is
/// asked.
async fn is_forgotten(session: &HttpSession, forwarded: &HeaderMap, refusal: &Refusal, id: u64) -> bool {
    match session.forgotten(refusal, id) {
        Forgotten::No => false,
        Forgotten::Perhaps => matches!(session.check(forwarded).await, Ok(Health::Gone)),
        Forgotten::Yes => true,
    }
}

async fn next_of(reply: &mut Option<Reply>) -> Option<Event> {
    match reply {
        Some(reply) => reply.next().await,
        None => None,
    }
}

/// Whether a request may be sent again although it may have been answered before.
fn changes_nothing(method: &Method) -> bool {
    match method {
        Method::Discover
        | Method::ListTools
        | Method::GetPrompt
        | Method::ListPrompts
        | Method::ReadResource
        | Method::ListResources
        | Method::ListResourceTemplates
        | Method::Complete => true,
        Method::CallTool
        | Method::GetTask
        | Method::UpdateTask
        | Method::CancelTask
        | Method::Listen
        | Method::Attach
        | Method::Notify(_)
        | Method::Resume(_)
        | Method::Other(_) => false,
    }
}
