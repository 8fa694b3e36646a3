//! The tasks layer around a scripted service.

use std::convert::Infallible;
use std::future::Ready;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use raincheck::clock::SystemClock;
use raincheck::config::{Durability, OwnerRules, StoreConfig, ToolPolicy};
use raincheck::jobs::Jobs;
use raincheck::policy::Policies;
use raincheck::protocol::{Call, Outcome, Reply, ReplySender};
use raincheck::runner::{Bounds, Linger, Runner};
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
    /// The calls that reached the service, with the way to answer each.
    pub sent: mpsc::UnboundedReceiver<(Call, ReplySender)>,
    folder: TempDir,
}

/// Hands every call to the test.
#[derive(Clone)]
pub struct Scripted(mpsc::UnboundedSender<(Call, ReplySender)>);

impl Service<Call> for Scripted {
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let (sender, reply) = Reply::channel();
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

impl Proxy {
    pub fn new(policy: ToolPolicy) -> Self {
        Self::bounded(policy, Bounds { running: 100, waiting: 100 })
    }

    pub fn bounded(policy: ToolPolicy, bounds: Bounds) -> Self {
        Self::built(policy, bounds, Linger::AtMost(Duration::from_millis(50)))
    }

    /// With slots that stay taken that long after a stop.
    pub fn lingering(policy: ToolPolicy, linger: Linger) -> Self {
        Self::built(policy, Bounds { running: 100, waiting: 100 }, linger)
    }

    /// On a disk that has no room for a task.
    pub fn full(policy: ToolPolicy) -> Self {
        let bounds = Bounds { running: 100, waiting: 100 };
        Self::with_free(policy, bounds, Linger::AtMost(Duration::from_millis(50)), |layer| layer, u64::MAX)
    }

    /// Around a service that never issues a `requestState`.
    pub fn refusing(policy: ToolPolicy) -> Self {
        let bounds = Bounds { running: 100, waiting: 100 };
        Self::around(policy, bounds, Linger::AtMost(Duration::from_millis(50)), TasksLayer::refuse_strange_states)
    }

    /// With a store for so few tasks.
    pub fn holding(policy: ToolPolicy, max_tasks: u64) -> Self {
        let change = |config: &mut StoreConfig| config.max_tasks = max_tasks;
        let (bounds, linger) = (Bounds { running: 100, waiting: 100 }, Linger::AtMost(Duration::from_millis(50)));
        Self::configured(
            tempfile::tempdir().unwrap(),
            policy,
            bounds,
            linger,
            |layer| layer,
            change,
            OwnerRules::default(),
        )
    }

    /// With limits for owners.
    pub fn ruled(policy: ToolPolicy, bounds: Bounds, rules: OwnerRules) -> Self {
        Self::in_folder(tempfile::tempdir().unwrap(), policy, bounds, rules)
    }

    /// Another process on the same store.
    pub async fn restarted(self, policy: ToolPolicy, bounds: Bounds, rules: OwnerRules) -> Self {
        self.runner.drain();
        self.runs.stop();
        timeout(PATIENCE, self.runner.idle()).await.unwrap();
        self.store.close().await;
        Self::in_folder(self.folder, policy, bounds, rules)
    }

    fn in_folder(folder: TempDir, policy: ToolPolicy, bounds: Bounds, rules: OwnerRules) -> Self {
        Self::open(folder, policy, bounds, Linger::AtMost(Duration::from_millis(50)), |layer| layer, 0, rules)
    }

    fn built(policy: ToolPolicy, bounds: Bounds, linger: Linger) -> Self {
        Self::around(policy, bounds, linger, |layer| layer)
    }

    fn around(
        policy: ToolPolicy,
        bounds: Bounds,
        linger: Linger,
        change: impl FnOnce(TasksLayer) -> TasksLayer,
    ) -> Self {
        Self::with_free(policy, bounds, linger, change, 0)
    }

    fn with_free(
        policy: ToolPolicy,
        bounds: Bounds,
        linger: Linger,
        change: impl FnOnce(TasksLayer) -> TasksLayer,
        min_free: u64,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::open(folder, policy, bounds, linger, change, min_free, OwnerRules::default())
    }

    fn open(
        folder: TempDir,
        policy: ToolPolicy,
        bounds: Bounds,
        linger: Linger,
        change: impl FnOnce(TasksLayer) -> TasksLayer,
        min_free: u64,
        rules: OwnerRules,
    ) -> Self {
        let adjust = |config: &mut StoreConfig| config.min_free_bytes = Some(min_free);
        Self::configured(folder, policy, bounds, linger, change, adjust, rules)
    }

    fn configured(
        folder: TempDir,
        policy: ToolPolicy,
        bounds: Bounds,
        linger: Linger,
        change: impl FnOnce(TasksLayer) -> TasksLayer,
        adjust: impl FnOnce(&mut StoreConfig),
        rules: OwnerRules,
    ) -> Self {
        let runs = Jobs::new();
        let path = folder.path().join("store");
        let mut config = store_config(&path);
        adjust(&mut config);
        let Opened { store, left_open } = Store::open(&config, Arc::new(SystemClock), &Jobs::new()).unwrap();
        let runner = Runner::with_owners(store.clone(), runs.clone(), bounds, rules);
        let (sender, sent) = mpsc::unbounded_channel();
        let layer = TasksLayer::new(runner.clone(), "reports", Policies::uniform(policy));
        let service = change(layer.linger(linger)).layer(Scripted(sender));
        service.recover(left_open);
        Self { service, store, runner, runs, sent, folder }
    }

    /// The process is killed, and another one takes up what is in the store.
    pub async fn crashes(self, policy: ToolPolicy) -> Self {
        // Nothing can be written any more.
        self.store.close().await;
        self.starts_again(policy, Bounds { running: 100, waiting: 100 }).await
    }

    /// The process is stopped in good order, and another one takes up what it has left.
    pub async fn stops(self, policy: ToolPolicy) -> Self {
        self.runner.drain();
        self.runs.stop();
        timeout(PATIENCE, self.runner.idle()).await.expect("it does not stop");
        self.store.close().await;
        self.starts_again(policy, Bounds { running: 100, waiting: 100 }).await
    }

    async fn starts_again(self, policy: ToolPolicy, bounds: Bounds) -> Self {
        self.runner.drain();
        self.runs.stop();
        timeout(PATIENCE, self.runner.idle()).await.expect("it does not end");
        let linger = Linger::AtMost(Duration::from_millis(50));
        Self::open(self.folder, policy, bounds, linger, |layer| layer, 0, OwnerRules::default())
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
