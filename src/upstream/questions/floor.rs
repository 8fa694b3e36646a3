//! The calls of one session, and whom the server can ask through them.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::askers::Askers;
use super::call::{Addressee, Fate, Seat, Verdict};
use super::put::{self, Entry, Opened};
use super::refusal;
use super::table::{Beginning, Open, Running, Stage, Table, Target, Way};
use crate::config::Offer;
use crate::jobs::Jobs;
use crate::protocol::message::{self, RequestId};
use crate::protocol::{
    Abilities, Call, ClientSession, Event, EventSender, Failure, Json, Method, Notification, Question, QuestionKind,
    Rope, RpcError, meta_key,
};
use crate::task::MOST_QUESTIONS;
use crate::upstream::Setup;
use crate::upstream::drive::Needs;
use crate::upstream::handshake::ServerInfo;
use crate::upstream::later::Later;
use crate::upstream::listening::{Hub, Subscriptions};
use crate::upstream::log_level::{AskedLevel, Level};
use crate::upstream::sessions::Hearer;
use crate::upstream::tie;

/// The calls of one session. Clones are of the same session.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Floor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    table: Mutex<Table>,
    askers: Askers,
    hub: Hub,
    hearer: Hearer,
    capabilities: OnceLock<Json>,
    needs: OnceLock<Needs>,
    subscriptions: Subscriptions,
    level: AskedLevel,
    later: Later,
    /// The number of the next task that is watched.
    watched: AtomicU64,
    offer: Vec<Offer>,
    share: bool,
    serial: bool,
    jobs: Jobs,
}

/// The legacy client whose session this is, to be asked outside of calls too.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Client(pub(super) Addressee);

/// A request of a server.
#[derive(Debug)]
pub(in crate::upstream) struct Request {
    /// Its id, the server's own.
    pub(in crate::upstream) id: RequestId,
    /// What is asked.
    pub(in crate::upstream) method: String,
    /// With which parameters.
    pub(in crate::upstream) params: Option<Json>,
}

/// Where a message of a server came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum Origin {
    /// On the stream of this call, so it belongs to it.
    Call(u64),
    /// On the stream for what belongs to no call. Some servers ask there on behalf of a call all the same.
    Session,
    /// On the one channel that there is.
    Channel,
}

/// Bytes of a question's parameters.
const LONGEST: usize = 256 << 10;

/// Where the numbers of watched tasks begin: behind all ids of requests, so that tasks are the youngest.
const WATCHED: u64 = 1 << 62;

/// Characters of a key that a server wants for its question.
const LONGEST_KEY: usize = 128;

impl Floor {
    /// A session without calls, for those who hear what the server says on it.
    pub(in crate::upstream) fn new(setup: &Setup, hearer: Hearer) -> Self {
        let config = &setup.config;
        Self(Arc::new(Inner {
            table: Mutex::default(),
            askers: setup.shared.askers.clone(),
            hub: setup.shared.hub.clone(),
            hearer,
            capabilities: OnceLock::new(),
            needs: OnceLock::new(),
            subscriptions: Subscriptions::default(),
            level: AskedLevel::default(),
            later: Later::default(),
            watched: AtomicU64::new(WATCHED),
            offer: config.offer.clone(),
            share: config.share,
            serial: config.serial,
            jobs: setup.jobs.clone(),
        }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session is open. If it belongs to a legacy client, that hears of it first, with the server's result of
    /// `initialize`, and then what the server says outside of calls.
    pub(in crate::upstream) fn opened(&self, info: &ServerInfo) {
        if let Hearer::Client(attached) = &self.0.hearer {
            attached.client.0.events.event(Event::Attached(info.said.clone()));
            self.table().client = Some(attached.client.clone());
        }
        self.table().beginning = Beginning::Since(Instant::now());
        // Set once: a session has one handshake.
        let _ = self.0.capabilities.set(info.capabilities.clone());
        let _ = self.0.needs.set(Needs::of(&info.capabilities));
    }

    /// What the server said that it can.
    pub(in crate::upstream) fn capabilities(&self) -> Json {
        self.0.capabilities.get().cloned().unwrap_or_else(Json::empty_object)
    }

    /// Which tools of the server must run as tasks; `None` before the session is open, and for a modern server.
    pub(in crate::upstream) fn needs(&self) -> Option<&Needs> {
        self.0.needs.get()
    }

    /// What the session is subscribed to.
    pub(in crate::upstream) fn subscriptions(&self) -> &Subscriptions {
        &self.0.subscriptions
    }

    /// Who hears of progress of calls that have their answer.
    pub(in crate::upstream) fn later(&self) -> &Later {
        &self.0.later
    }

    /// The level of log lines that is to be asked for before `call` is sent; `None` if it is not to be asked.
    pub(in crate::upstream) fn level_to_ask(&self, call: &Call) -> Option<Level> {
        if self.is_attached() || !self.0.capabilities.get()?.member("logging")?.is_object() {
            return None;
        }
        let wanted = call.params.meta_member(meta_key::LOG_LEVEL)?.read::<String>().ok()?;
        self.0.level.wanted(&wanted)
    }

    /// Whether the session belongs to one legacy client.
    pub(in crate::upstream) fn is_attached(&self) -> bool {
        matches!(self.0.hearer, Hearer::Client(_))
    }

    /// A call with this id upstream begins.
    pub(in crate::upstream) fn enter(&self, id: u64, call: &Call, events: EventSender) -> Seat {
        let fate = Fate::default();
        let way = match (&call.caller.session, &call.method) {
            (ClientSession::Legacy(_), _)
            | (
                ClientSession::Stateless,
                Method::CallTool | Method::Resume(_) | Method::GetPrompt | Method::ReadResource,
            ) => Way::Open,
            // What a task of 2025-11-25 asks comes while its result is waited for.
            (ClientSession::Stateless, Method::Other(name)) if name == "tasks/result" => Way::Open,
            (ClientSession::Stateless, _) => Way::None,
        };
        let tool = call
            .params
            .name()
            .filter(|_| matches!(call.method, Method::CallTool | Method::Resume(_)))
            .map(str::to_owned);
        let task = match &call.method {
            Method::Other(name) if name == "tasks/result" => call.params.raw().member("taskId"),
            _ => None,
        };
        let abilities = call.caller.abilities.clone();
        let addressee = Addressee { events, abilities, fate };
        self.seat(id, call, Running { addressee, tool, task, way })
    }

    /// A task of the server begins to be watched, which `call` became. It may ask for as long as it lasts, also when no request
    /// waits for it.
    pub(in crate::upstream) fn enter_task(&self, call: &Call, task: &Json, events: EventSender) -> Seat {
        let (abilities, tool) = (call.caller.abilities.clone(), call.params.name().map(str::to_owned));
        let addressee = Addressee { events, abilities, fate: Fate::default() };
        let id = self.0.watched.fetch_add(1, Ordering::Relaxed);
        self.seat(id, call, Running { addressee, tool, task: Some(task.clone()), way: Way::Open })
    }

    fn seat(&self, id: u64, call: &Call, running: Running) -> Seat {
        let fate = running.addressee.fate.clone();
        let mut table = self.table();
        if self.0.share {
            table.users.add(&call.caller.principal);
        }
        table.calls.insert(id, running);
        drop(table);
        Seat { floor: self.clone(), id, fate }
    }

    pub(super) fn leave(&self, id: u64) {
        // Dropped outside of the lock.
        let _left = self.table().calls.remove(&id);
    }

    /// The call with this id has its answer: what the server asks from now on is not of this call.
    pub(in crate::upstream) fn answered(&self, id: u64) {
        let left = self.table().calls.remove(&id);
        if let Some(call) = left {
            call.addressee.fate.end();
        }
    }

    /// Takes a request of the server in. Returns what is to be answered at once; an answer that comes later goes out
    /// by `way`, with the call whose client gave it, if it is no refusal. It says how the call must end if the server cannot
    /// be told it.
    pub(in crate::upstream) fn request<W, F>(&self, request: Request, origin: Origin, way: W) -> Option<Rope>
    where
        W: FnOnce(Rope, Option<u64>) -> F + Send + 'static,
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let Request { id, method, params } = request;
        if method == "ping" {
            return Some(message::result(&id, Rope::from(Bytes::from_static(b"{}"))));
        }
        let task = params.as_ref().and_then(tie::task);
        let placed = read(&method, params)
            .and_then(|question| Ok((self.place(&question, task.as_ref(), &id, origin)?, question)));
        match placed {
            Ok((opened, question)) => {
                // Put before the job begins: of several jobs nobody knows which is first.
                let asking = opened.put(&question);
                self.0.jobs.spawn("question", put::see_through(opened, asking, question, id, origin, way));
                None
            }
            Err(error) => {
                tracing::debug!(method = %method.escape_debug(), %error, "a request of the server was refused");
                Some(message::error(Some(&id), &error))
            }
        }
    }

    /// Whether the call with this id runs: it was not cancelled, and has no answer.
    pub(in crate::upstream) fn is_running(&self, call: u64) -> bool {
        self.table().calls.get(&call).is_some_and(|call| call.addressee.fate.is_running())
    }

    /// What this call must end with, whose client cannot be asked what its server needs to ask.
    pub(in crate::upstream) fn unaskable(&self, call: u64) -> Option<RpcError> {
        self.table().calls.get(&call)?.addressee.fate.unaskable()
    }

    /// The server cannot be told what this call waits for.
    pub(in crate::upstream) fn lose(&self, call: u64, failure: Failure) {
        if let Some(running) = self.table().calls.get(&call) {
            running.addressee.fate.must_end(Verdict::Untold(failure));
        }
    }

    /// Takes the `params` of the server's `notifications/cancelled` in: it does not want an answer any more.
    pub(in crate::upstream) fn withdraw(&self, params: &Json) {
        let Some(id) = params.member("requestId") else { return };
        for open in self.table().open.values().filter(|open| open.id == id) {
            open.withdrawn.cancel();
        }
    }

    /// Takes a notification in that belongs to no call.
    pub(in crate::upstream) fn notification(&self, method: String, params: Option<Json>) {
        if method == "notifications/tools/list_changed"
            && let Some(needs) = self.needs()
        {
            needs.forget();
        }
        if method == "notifications/tasks/status" {
            // Of tasks of the server nobody hears but those who watch them.
            if let Some(params) = &params {
                self.later().status(&method, params);
            }
            return;
        }
        let said = Notification { method, params: params.map(|params| self.untied(params)) };
        match &self.0.hearer {
            Hearer::Audience(audience) => self.0.hub.publish(audience, &said),
            Hearer::Client(attached) => {
                // Not before it knows that its session is open.
                if self.table().client.is_some() {
                    attached.client.0.events.event(Event::Notification(said));
                }
            }
        }
    }

    /// What a server said, without the tie to a task of its own.
    pub(in crate::upstream) fn untied(&self, params: Json) -> Json {
        let has_tasks = self.needs().is_some_and(Needs::any);
        if has_tasks { tie::cut(&params).unwrap_or(params) } else { params }
    }

    fn place(
        &self,
        question: &Question,
        task: Option<&Json>,
        id: &RequestId,
        origin: Origin,
    ) -> Result<Opened, RpcError> {
        let mut table = self.table();
        let is_of_session = table.begins_with(question, task, origin);
        let target = table.choose(question, task, origin, &self.0.askers, self.0.serial)?;
        let mut is_sure = false;
        if let Target::Call(id) = target
            && let Some(call) = table.calls.get(&id)
        {
            if call.way == Way::None {
                return Err(refusal::wrong_method(question));
            }
            let is_told = task.is_some() && call.task.as_ref() == task;
            is_sure = is_told || matches!(origin, Origin::Call(_)) || (table.calls.len() == 1 && !is_of_session);
            if let Some(tool) = call.tool.as_deref().filter(|_| is_sure) {
                self.0.askers.remember(tool);
            }
        }
        let addressee = table.addressee(target).cloned().ok_or_else(|| refusal::ended(question))?;
        if !addressee.abilities.covers(question) {
            drop(table);
            // Another call that runs may have asked, and this one needs nothing of its client.
            if is_sure || (self.0.serial && !is_of_session) {
                self.undeclared(&addressee, question.kind, RpcError::cannot_be_asked(question));
            }
            return Err(refusal::undeclared(question));
        }
        if !table.has_room(target) {
            return Err(refusal::too_many(question, MOST_QUESTIONS));
        }
        let number = table.next;
        table.next += 1;
        let withdrawn = CancellationToken::new();
        let open = Open { id: id.token().clone(), target, withdrawn: withdrawn.clone(), stage: Stage::Asked };
        table.open.insert(number, open);
        drop(table);
        Ok(Opened { entry: Entry { floor: self.clone(), number }, addressee, is_of_session, withdrawn })
    }

    /// A client did not declare that it can be asked this, which its server is told. Where it was offered the tool cannot do
    /// its work, so the client is told what it lacks (2026-07-28, error codes).
    pub(super) fn undeclared(&self, addressee: &Addressee, kind: QuestionKind, error: RpcError) {
        if self.offers(kind) && !self.is_attached() {
            addressee.fate.must_end(Verdict::Unaskable(error));
        }
    }

    /// Finds somebody else who can answer a question; `None` if there is nobody.
    pub(super) fn move_on(&self, number: u64, question: &Question, origin: Origin) -> Option<Addressee> {
        let mut table = self.table();
        let target = table.choose(question, None, origin, &self.0.askers, self.0.serial).ok()?;
        let addressee = table.addressee(target)?.clone();
        if !addressee.abilities.covers(question) || !addressee.is_there() || !table.has_room(target) {
            return None;
        }
        table.open.get_mut(&number)?.target = target;
        Some(addressee)
    }

    /// The call that a question is put to.
    pub(super) fn call_asked(&self, number: u64) -> Option<u64> {
        match self.table().open.get(&number)?.target {
            Target::Call(id) => Some(id),
            Target::Client => None,
        }
    }

    /// A question has its answer, which is on its way.
    pub(super) fn is_answered(&self, number: u64) {
        if let Some(open) = self.table().open.get_mut(&number) {
            open.stage = Stage::Answered;
        }
    }

    pub(super) fn close(&self, number: u64) {
        self.table().open.remove(&number);
    }

    /// Whether a question of this call is open.
    pub(in crate::upstream) fn is_asking(&self, id: u64) -> bool {
        self.table().asks(id)
    }

    /// Whether an answer to the server's request `id` that is on its way is still of use: the server has not withdrawn the
    /// request, and who answered it is still there.
    pub(in crate::upstream) fn wants_answer(&self, id: &Json) -> bool {
        let table = self.table();
        let is_there = |open: &Open| table.addressee(open.target).is_some_and(Addressee::is_there);
        table.open.values().any(|open| open.id == *id && !open.withdrawn.is_cancelled() && is_there(open))
    }

    fn offers(&self, kind: QuestionKind) -> bool {
        self.0.offer.iter().any(|offer| kind_of(*offer) == kind)
    }
}

impl Client {
    /// The client that reads these events and can be asked this.
    pub(in crate::upstream) fn new(events: EventSender, abilities: Abilities) -> Self {
        Self(Addressee { events, abilities, fate: Fate::default() })
    }

    /// Its session is over.
    pub(in crate::upstream) fn detach(&self) {
        self.0.fate.end();
    }
}

/// The kind that the config calls so.
pub(in crate::upstream) fn kind_of(offer: Offer) -> QuestionKind {
    match offer {
        Offer::Elicitation => QuestionKind::Elicitation,
        Offer::Sampling => QuestionKind::Sampling,
        Offer::Roots => QuestionKind::Roots,
    }
}

fn read(method: &str, params: Option<Json>) -> Result<Question, RpcError> {
    let kind = QuestionKind::of(method).ok_or_else(|| RpcError::method_not_found(method))?;
    let params = params.unwrap_or_else(Json::empty_object);
    if params.len() > LONGEST {
        return Err(refusal::too_long(method, LONGEST));
    }
    if !params.is_object() || params.members().is_err() {
        return Err(refusal::malformed(method));
    }
    let key = key_in(&params);
    let params = tie::cut(&params).unwrap_or(params);
    Ok(Question { kind, params, key })
}

/// The key that a server wants for its question: a member of `_meta` under any prefix that is called `inputKey`.
fn key_in(params: &Json) -> Option<String> {
    let meta = params.member("_meta")?;
    let members = meta.members().ok()?;
    let (_, raw) = members.iter().find(|(name, _)| name.ends_with("/inputKey"))?;
    let key: String = serde_json::from_str(raw.get()).ok()?;
    (!key.is_empty() && key.len() <= LONGEST_KEY).then_some(key)
}
