//! The real thing: the tasks layer on a store, around a server that does what it is told.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use raincheck::clock::{Clock, ManualClock, Timestamp};
use raincheck::config::{Mode, OnLost, OwnerRules, ToolPolicy, ToolRule};
use raincheck::jobs::Jobs;
use raincheck::policy::Policies;
use raincheck::protocol::{
    Ask, Asking, Call, Event, Failure, Json, Outcome, Progress, Question, QuestionKind, ReplySender, RpcError,
};
use raincheck::runner::{Bounds, Linger, Runner};
use raincheck::store::{Committed, Ending, Opened, Store};
use raincheck::task::{Task, TaskId};
use raincheck::tasks::{TasksLayer, TasksService};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::{JoinHandle, yield_now};
use tower::{Layer, ServiceExt};

use futures_util::FutureExt;

use crate::asking::call_of;
use crate::reference::{AFTER, ASK_LIMIT, IDLE_LIMIT, KEEP, Model, Op, QUEUE_LIMIT, RUN_LIMIT, SLOTS, Stand};
use crate::support::calls::{shown, text};
use crate::support::layer::{Scripted, Sent, store_config};

/// One call as its client and its server see it.
struct Known {
    caller: Option<JoinHandle<Value>>,
    /// What the caller was told.
    told: Option<Value>,
    server: Option<ReplySender>,
    asking: Option<Asking>,
    sent: u32,
}

/// One process after the other on the same tasks.
pub(crate) struct World {
    folder: TempDir,
    clock: Arc<ManualClock>,
    process: Process,
    calls: Vec<Known>,
}

struct Process {
    at_once: TasksService<Scripted>,
    auto: TasksService<Scripted>,
    runner: Runner,
    runs: Jobs,
    sweeps: Jobs,
    store: Store,
    arrived: Sent,
}

const START: Timestamp = Timestamp::from_millis(1_785_234_600_000);
const SERVER: &str = "reports";
/// The tool that may run again.
const AGAIN: &str = "again";

impl Process {
    fn start(folder: &Path, clock: &Arc<ManualClock>) -> (Self, Vec<Committed<Task>>) {
        let (runs, sweeps) = (Jobs::new(), Jobs::new());
        let config = store_config(&folder.join("store"));
        let Opened { store, left_open } = Store::open(&config, clock.clone(), &sweeps).unwrap();
        let bounds = Bounds { running: 4 * SLOTS, waiting: 100, rate: None };
        let runner = Runner::with_owners(store.clone(), runs.clone(), bounds, OwnerRules::default());
        let (scripted, arrived) = Scripted::new();
        let service = |mode| {
            let seconds = Duration::from_secs;
            let policy = ToolPolicy {
                mode,
                after: seconds(AFTER),
                timeout: seconds(RUN_LIMIT),
                queue_timeout: seconds(QUEUE_LIMIT),
                ask_timeout: seconds(ASK_LIMIT),
                keep: Some(seconds(KEEP)),
                // One is for others than the one owner here.
                max_running: Some(SLOTS + 1),
                ..ToolPolicy::default()
            };
            let again =
                ToolPolicy { on_lost: OnLost::Rerun, idle_timeout: Some(seconds(IDLE_LIMIT)), ..policy.clone() };
            let rule = ToolRule { pattern: AGAIN.to_owned(), server: None, policy: again };
            let layer = TasksLayer::new(runner.clone(), SERVER, Policies::for_server(SERVER, &policy, &[rule]));
            layer.linger(Linger::AtMost(Duration::ZERO)).layer(scripted.clone())
        };
        let (at_once, auto) = (service(Mode::Task), service(Mode::Auto));
        (Self { at_once, auto, runner, runs, sweeps, store, arrived }, left_open)
    }

    async fn value(&self, call: Call) -> Value {
        shown(self.at_once.clone().oneshot(call).await.unwrap().outcome().await)
    }

    async fn end(self) {
        self.runner.drain();
        self.runs.stop();
        self.sweeps.stop();
        // Time stands still, so nothing that waits for it may be waited for.
        for _ in 0..200 {
            yield_now().await;
        }
        self.store.close().await;
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(START)));
        let (process, _) = Process::start(folder.path(), &clock);
        Self { folder, clock, process, calls: Vec::new() }
    }

    /// Does several things at the same time, and waits until nothing moves any more.
    pub(crate) async fn act(&mut self, ops: &[Op]) {
        let mut told = Vec::new();
        for op in ops {
            if let Some(task) = self.begin(*op).await {
                told.push(task);
            }
        }
        for task in told {
            assert_eq!(task.await.unwrap(), json!({ "resultType": "complete" }), "not acknowledged");
        }
        self.rest().await;
    }

    async fn begin(&mut self, op: Op) -> Option<JoinHandle<Value>> {
        match op {
            Op::Call => self.call(&self.process.at_once.clone(), "export"),
            Op::CallAgain => self.call(&self.process.at_once.clone(), AGAIN),
            Op::CallAuto => self.call(&self.process.auto.clone(), "export"),
            Op::Cancel(at) => return self.of_task(at, "tasks/cancel", json!({})),
            Op::Answer(at) => return self.of_task(at, "tasks/update", json!({ "inputResponses": Self::answers() })),
            Op::Wait(seconds) => {
                let span = Duration::from_secs(seconds);
                self.clock.advance(span);
                tokio::time::advance(span).await;
            }
            Op::Jump(seconds) => {
                let now = self.clock.now().as_millis().saturating_add_signed(seconds * 1000);
                self.clock.set(Timestamp::from_millis(now));
                // What is to be extended is so before anything may expire; what has expired does not come back.
                self.process.store.sweep().await.unwrap();
            }
            Op::Crash => self.crash().await,
            Op::Leave(at) => {
                if let Some(known) = self.calls.get_mut(at).filter(|known| known.told.is_none()) {
                    known.caller.take().into_iter().for_each(|caller| caller.abort());
                }
            }
            Op::Finish(at) | Op::Fail(at) | Op::Die(at) | Op::Progress(at) | Op::Ask(at) | Op::Withdraw(at) => {
                if let Some(known) = self.calls.get_mut(at) {
                    known.serve(op, at);
                }
            }
        }
        None
    }

    fn call(&mut self, service: &TasksService<Scripted>, tool: &str) {
        let n = self.calls.len();
        let call = call_of("ann", true, "tools/call", json!({ "name": tool, "arguments": { "n": n } }));
        let service = service.clone();
        let caller = tokio::spawn(async move { shown(service.oneshot(call).await.unwrap().outcome().await) });
        self.calls.push(Known { caller: Some(caller), told: None, server: None, asking: None, sent: 0 });
    }

    /// A request of the owner about the task, if there is one.
    fn of_task(&self, at: usize, method: &str, mut params: Value) -> Option<JoinHandle<Value>> {
        let id = self.calls.get(at)?.id()?;
        params["taskId"] = id.into();
        let (service, call) = (self.process.at_once.clone(), call_of("ann", true, method, params));
        Some(tokio::spawn(async move {
            let said = shown(service.oneshot(call).await.unwrap().outcome().await);
            // It has expired.
            if said["error"]["code"] == -32602 { json!({ "resultType": "complete" }) } else { said }
        }))
    }

    /// Answers to every question that the task can have asked.
    fn answers() -> Value {
        (1..20)
            .map(|n| (format!("input-{n}"), json!({ "action": "decline" })))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// The directory as it is at a kill, and a new process on it.
    async fn crash(&mut self) {
        self.rest().await;
        let folder = tempfile::tempdir().unwrap();
        copy(self.folder.path(), folder.path());
        self.folder = folder;
        let (process, mut left) = Process::start(self.folder.path(), &self.clock);
        for known in &mut self.calls {
            (known.server, known.asking) = (None, None);
        }
        std::mem::replace(&mut self.process, process).end().await;
        // The line is made anew in the order of the list, and ids of the same millisecond have none.
        left.sort_by_key(|task| self.calls.iter().position(|known| known.id().as_deref() == Some(task.id.as_str())));
        self.process.at_once.recover(left);
        for known in &mut self.calls {
            if known.told.is_none() {
                known.caller.take().into_iter().for_each(|caller| caller.abort());
            }
        }
    }

    /// Until nothing moves any more: everything that waits has had its turn, and the store has nothing to do.
    async fn rest(&mut self) {
        for _ in 0..4 {
            for _ in 0..40 {
                yield_now().await;
            }
            // Answered after all that was written before.
            let nothing = TaskId::generate(self.clock.now());
            self.process.store.settle(&nothing, Ending::Cancelled).await.unwrap_err();
        }
        while let Ok((call, sender)) = self.process.arrived.try_recv() {
            let n = number_of(&call);
            self.calls[n].server = Some(sender);
            self.calls[n].sent += 1;
        }
        for known in &mut self.calls {
            // Answered, so that it can ask again.
            if known.asking.as_mut().is_some_and(|asking| asking.given().now_or_never().is_some()) {
                known.asking = None;
            }
            if let Some(caller) = known.caller.take_if(|caller| caller.is_finished()) {
                known.told = Some(caller.await.unwrap());
            }
        }
    }

    /// What is not as the model says.
    pub(crate) async fn differs(&mut self, model: &Model) -> Option<String> {
        self.rest().await;
        for (n, stand) in model.calls.iter().enumerate() {
            let known = &self.calls[n];
            if known.sent != model.sent[n] {
                let (told, sent) = (&known.told, known.sent);
                return Some(format!("call {n} was sent {sent} times and not {}, and told {told:?}", model.sent[n]));
            }
            if let Some(wrong) = self.one_differs(n, *stand).await {
                return Some(format!("call {n}: {wrong}, but {stand:?} was expected"));
            }
        }
        None
    }

    async fn one_differs(&self, n: usize, stand: Stand) -> Option<String> {
        let known = &self.calls[n];
        let Some(id) = known.id() else {
            let is_held = matches!(stand, Stand::Held { .. } | Stand::HeldInLine { .. });
            let right = stand == Stand::Over || is_held && known.told.is_none();
            return (!right).then(|| format!("its caller was told {:?}", known.told));
        };
        let ask = |who: &str| call_of(who, true, "tasks/get", json!({ "taskId": id }));
        let foreign = self.process.value(ask("bo")).await;
        let task = self.process.value(ask("ann")).await;
        assert_eq!(foreign["error"]["code"], -32602, "somebody else sees {foreign}");
        let right = match stand {
            Stand::Gone => task == foreign,
            Stand::Completed => task["status"] == "completed" && task["result"]["structuredContent"]["n"] == n,
            Stand::Failed("server") => task["status"] == "failed" && task["error"]["code"] == -32000,
            Stand::Failed(reason) => task["status"] == "failed" && task["error"]["data"]["reason"] == reason,
            Stand::Asking { .. } => {
                task["status"] == "input_required"
                    && task["inputRequests"].as_object().is_some_and(|all| all.len() == 1)
            }
            stand => stand.status().is_some_and(|status| task["status"] == status),
        };
        (!right).then(|| format!("it reads {task}"))
    }

    pub(crate) async fn end(self) {
        drop(self.calls);
        self.process.end().await;
    }
}

impl Known {
    fn id(&self) -> Option<String> {
        Some(self.told.as_ref()?["taskId"].as_str()?.to_owned())
    }

    /// What the server does.
    fn serve(&mut self, op: Op, n: usize) {
        let Some(server) = &self.server else { return };
        match op {
            Op::Ask(_) if self.asking.is_none() => {
                let params = json!({ "message": "who?", "requestedSchema": { "type": "object", "properties": {} } });
                let params = Json::from_value(&params);
                let (ask, asking) = Ask::new(Question { kind: QuestionKind::Elicitation, params, key: None });
                server.event(Event::Ask(ask));
                self.asking = Some(asking);
            }
            Op::Withdraw(_) => drop(self.asking.take()),
            Op::Progress(_) => {
                server.event(Event::Progress(Progress { progress: Json::number(1), total: None, message: None }));
            }
            Op::Finish(_) => {
                let result = text(&format!(r#"{{"content":[],"structuredContent":{{"n":{n}}}}}"#));
                self.answer(Outcome::Result(result));
            }
            Op::Fail(_) => self.answer(Outcome::Error(RpcError::new(-32000, "no"))),
            Op::Die(_) => self.answer(Outcome::Failed(Failure::outcome_unknown("the server died"))),
            _ => {}
        }
    }

    fn answer(&mut self, outcome: Outcome) {
        if let Some(server) = self.server.take() {
            server.done(outcome);
        }
        self.asking = None;
    }
}

/// Which call it is.
fn number_of(call: &Call) -> usize {
    call.params.raw().member("arguments").unwrap().member("n").unwrap().read().unwrap()
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
