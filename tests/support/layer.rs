//! The tasks layer around a scripted service.

use std::convert::Infallible;
use std::future::Ready;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use raincheck::clock::{Clock, ManualClock, SharedClock, SystemClock};
use raincheck::config::{Durability, OwnerRules, StoreConfig, ToolPolicy};
use raincheck::jobs::Jobs;
use raincheck::policy::Policies;
use raincheck::protocol::{Call, Outcome, Reply, ReplySender};
use raincheck::runner::{Bounds, Linger, Runner, Sends};
use raincheck::store::{Opened, Store};
use raincheck::tasks::{TasksLayer, TasksService};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower::{Layer, Service, ServiceExt};

use super::calls::{call, call_of, shown};

/// The longest a test waits for anything before it fails.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The tasks layer around a service whose replies the test gives.
pub struct Proxy {
    pub service: TasksService<Scripted>,
    pub store: Store,
    pub runner: Runner,
    pub runs: Jobs,
    /// The calls that reached the service.
    pub sent: Sent,
    folder: TempDir,
    sends: Sends,
}

/// Calls, with the way to answer each.
pub type Sent = mpsc::UnboundedReceiver<(Call, ReplySender)>;

/// How a proxy is set up.
struct Setup {
    policy: ToolPolicy,
    bounds: Bounds,
    linger: Linger,
    sends: Sends,
    rules: OwnerRules,
    max_tasks: u64,
    min_free: u64,
    change: fn(TasksLayer) -> TasksLayer,
    clock: SharedClock,
}

/// Hands every call to the test.
#[derive(Clone)]
pub struct Scripted(mpsc::UnboundedSender<(Call, ReplySender)>, Sends);

impl Service<Call> for Scripted {
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let (sender, reply) = match self.1 {
            Sends::AtOnce => Reply::channel(),
            Sends::WhenLetGo => Reply::gated(),
        };
        let _ = self.0.send((call, sender));
        std::future::ready(Ok(reply))
    }
}

/// How a store for tests is set up.
pub fn store_config(path: &Path) -> StoreConfig {
    StoreConfig {
        path: path.to_owned(),
        durability: Durability::Process,
        cache_bytes: 16 << 20,
        min_free_bytes: Some(0),
        max_tasks: 100_000,
    }
}

impl Scripted {
    /// A service, and where its calls come in.
    pub fn new() -> (Self, Sent) {
        let (sender, sent) = mpsc::unbounded_channel();
        (Self(sender, Sends::AtOnce), sent)
    }
}

impl Setup {
    fn of(policy: ToolPolicy) -> Self {
        Self {
            policy,
            bounds: Bounds { running: 100, waiting: 100, rate: None },
            linger: Linger::AtMost(Duration::from_millis(50)),
            sends: Sends::AtOnce,
            rules: OwnerRules::default(),
            max_tasks: 100_000,
            min_free: 0,
            change: |layer| layer,
            clock: Arc::new(SystemClock),
        }
    }

    fn start(self) -> Proxy {
        self.start_in(tempfile::tempdir().unwrap())
    }

    fn start_in(self, folder: TempDir) -> Proxy {
        let Self { policy, bounds, linger, sends, rules, max_tasks, min_free, change, clock } = self;
        let runs = Jobs::new();
        let min_free_bytes = Some(min_free);
        let config = StoreConfig { max_tasks, min_free_bytes, ..store_config(&folder.path().join("store")) };
        let Opened { store, left_open } = Store::open(&config, clock, &Jobs::new()).unwrap();
        let runner = Runner::with_owners(store.clone(), runs.clone(), bounds, rules);
        let (Scripted(script, _), sent) = Scripted::new();
        let scripted = Scripted(script, sends);
        let layer = TasksLayer::new(runner.clone(), "reports", Policies::uniform(policy)).sends(sends);
        let service = change(layer.linger(linger)).layer(scripted);
        service.recover(left_open);
        Proxy { service, store, runner, runs, sent, folder, sends }
    }
}

impl Proxy {
    pub fn new(policy: ToolPolicy) -> Self {
        Setup::of(policy).start()
    }

    /// With a clock that the test sets.
    pub fn timed(clock: SharedClock, policy: ToolPolicy) -> Self {
        Setup { clock, ..Setup::of(policy) }.start()
    }

    pub fn bounded(policy: ToolPolicy, bounds: Bounds) -> Self {
        Setup { bounds, ..Setup::of(policy) }.start()
    }

    /// With slots that stay taken that long after a stop.
    pub fn lingering(policy: ToolPolicy, linger: Linger) -> Self {
        Setup { linger, ..Setup::of(policy) }.start()
    }

    /// On a disk that has no room for a task.
    pub fn full(policy: ToolPolicy) -> Self {
        Setup { min_free: u64::MAX, ..Setup::of(policy) }.start()
    }

    /// Around a service that never issues a `requestState`.
    pub fn refusing(policy: ToolPolicy) -> Self {
        Setup { change: TasksLayer::refuse_strange_states, ..Setup::of(policy) }.start()
    }

    /// With a store for so few tasks.
    pub fn holding(policy: ToolPolicy, max_tasks: u64) -> Self {
        Setup { max_tasks, ..Setup::of(policy) }.start()
    }

    /// With limits for owners.
    pub fn ruled(policy: ToolPolicy, bounds: Bounds, rules: OwnerRules) -> Self {
        Setup { bounds, rules, ..Setup::of(policy) }.start()
    }

    /// Around a service that gets its calls before they may be sent, with limits for owners.
    pub fn gated(policy: ToolPolicy, rules: OwnerRules) -> Self {
        Setup { sends: Sends::WhenLetGo, rules, ..Setup::of(policy) }.start()
    }

    /// Another process on the same store.
    pub async fn restarted(self, policy: ToolPolicy, bounds: Bounds, rules: OwnerRules) -> Self {
        self.end().await;
        self.store.close().await;
        Setup { bounds, rules, sends: self.sends, ..Setup::of(policy) }.start_in(self.folder)
    }

    /// The process is killed, and another one takes up what is in the store.
    pub async fn crashes(self, policy: ToolPolicy) -> Self {
        self.crashes_until(Arc::new(SystemClock), policy).await
    }

    /// The process is killed, and so much later another one takes up what is in the store. There time stands still.
    pub async fn crashes_for(self, pause: Duration, policy: ToolPolicy) -> Self {
        let clock = Arc::new(ManualClock::new(SystemClock.now().after(pause)));
        self.crashes_until(clock, policy).await
    }

    /// The process is killed, and another one with limits for owners takes up what is in the store.
    pub async fn crashes_ruled(self, policy: ToolPolicy, rules: OwnerRules) -> Self {
        self.store.close().await;
        self.end().await;
        Setup { rules, sends: self.sends, ..Setup::of(policy) }.start_in(self.folder)
    }

    /// The process is killed, and another one with this clock takes up what is in the store.
    pub async fn crashes_until(self, clock: SharedClock, policy: ToolPolicy) -> Self {
        // Nothing can be written any more.
        self.store.close().await;
        self.end().await;
        Setup { clock, sends: self.sends, ..Setup::of(policy) }.start_in(self.folder)
    }

    /// The process is stopped in good order, and another one takes up what it has left.
    pub async fn stops(self, policy: ToolPolicy) -> Self {
        self.end().await;
        self.store.close().await;
        Setup { sends: self.sends, ..Setup::of(policy) }.start_in(self.folder)
    }

    async fn end(&self) {
        self.runner.drain();
        self.runs.stop();
        timeout(PATIENCE, self.runner.idle()).await.expect("it does not end");
    }

    /// Sends a call and gives its reply back at once.
    pub async fn send(&self, call: Call) -> Reply {
        self.service.clone().oneshot(call).await.unwrap()
    }

    /// Sends a call whose service first asks something else; its reply.
    pub fn sending(&self, call: Call) -> JoinHandle<Reply> {
        let service = self.service.clone();
        tokio::spawn(async move { service.oneshot(call).await.unwrap().in_background() })
    }

    /// Sends a call, while the test does something else; what its outcome says on the wire.
    pub fn send_in_background(&self, call: Call) -> JoinHandle<Value> {
        let service = self.service.clone();
        tokio::spawn(async move {
            let reply = service.oneshot(call).await.unwrap();
            shown(timeout(PATIENCE, reply.outcome()).await.expect("no outcome"))
        })
    }

    /// Sends a call and waits for its outcome.
    pub async fn ask(&self, call: Call) -> Outcome {
        let reply = self.send(call).await;
        timeout(PATIENCE, reply.outcome()).await.expect("no outcome")
    }

    /// Sends a call and waits for what it says on the wire.
    pub async fn value(&self, call: Call) -> Value {
        shown(self.ask(call).await)
    }

    /// The next call that reaches the service.
    pub async fn next_sent(&mut self) -> (Call, ReplySender) {
        timeout(PATIENCE, self.sent.recv()).await.expect("nothing was sent").unwrap()
    }

    /// Ann's `tasks/get`.
    pub async fn get(&self, id: &str) -> Value {
        self.value(call("tasks/get", json!({ "taskId": id }))).await
    }

    /// What somebody else is told of the task.
    pub async fn asked_by(&self, who: &str, method: &str, id: &str) -> Value {
        let params = json!({ "taskId": id, "inputResponses": {} });
        self.value(call_of(who, true, method, params)).await
    }

    /// Polls Ann's task until it has ended.
    pub async fn ended(&self, id: &str) -> Value {
        let polling = async {
            loop {
                let task = self.get(id).await;
                if task["status"] != "working" {
                    return task;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, polling).await.expect("the task does not end")
    }
}
