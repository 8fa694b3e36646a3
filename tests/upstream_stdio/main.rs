//! The stdio upstream with real child processes.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test ends where it fails")]

mod asks;
mod clients;
mod faults;
mod life;
mod listening;
mod naming;
#[path = "../support/replies.rs"]
mod replies;
mod scripted;
#[path = "../support/signs.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod signs;
mod tasks;
mod traffic;
mod turns;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use raincheck::config::{Limits, ServerConfig, Transport};
use raincheck::jobs::Jobs;
use raincheck::protocol::{
    Abilities, Call, Caller, ClientSession, Credentials, Event, Failure, Json, Method, Outcome, Params, Principal,
    Reply, TaskSupport,
};
use raincheck::upstream::{GuardProgram, Upstream};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::Service;

use replies::{asked, next, outcome, result};

/// No step of a test takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// One upstream, its scripted server, and where that leaves its traces.
struct Bench {
    upstream: Upstream,
    dir: TempDir,
}

fn guard() -> GuardProgram {
    GuardProgram::at(env!("CARGO_BIN_EXE_raincheck"))
}

fn config(script: &str, dir: &TempDir) -> ServerConfig {
    let env = [("SCRIPT", script.to_owned()), ("LEDGER", dir.path().join("ledger").to_str().unwrap().to_owned())];
    let transport = Transport::Stdio {
        command: scripted::command(),
        env: env.map(|(name, value)| (name.to_owned(), value)).into(),
        cwd: None,
        hide: Vec::new(),
    };
    let connect_timeout = Duration::from_secs(20);
    ServerConfig { connect_timeout, max_sessions: 8, ..ServerConfig::new("scripted", transport) }
}

impl Bench {
    fn new(script: &str) -> Self {
        Self::with(script, Limits::default(), |_| {})
    }

    fn with(script: &str, limits: Limits, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let dir = TempDir::new().unwrap();
        let mut config = config(script, &dir);
        change(&mut config);
        let upstream = Upstream::with_guard(Arc::new(config), &limits, &Jobs::new(), guard());
        Self { upstream, dir }
    }

    /// Starts a call.
    fn call_as(&self, who: &str, tool: &str, arguments: Value) -> Reply {
        self.send(who, Method::CallTool, json!({ "name": tool, "arguments": arguments }))
    }

    fn call(&self, tool: &str, arguments: Value) -> Reply {
        self.call_as("ann", tool, arguments)
    }

    fn send(&self, who: &str, method: Method, params: Value) -> Reply {
        self.unread(who, method, params).in_background()
    }

    /// The same, for a reply that may still be kept back.
    fn unread(&self, who: &str, method: Method, params: Value) -> Reply {
        let params = Params::read(&method, Some(Json::from_value(&params))).unwrap();
        let caller = Caller::of_modern(&params, Principal::Named(who.into()), Credentials::default());
        let call = Call { method, params, caller, arrived: tokio::time::Instant::now() };
        let mut upstream = self.upstream.clone();
        futures_util::FutureExt::now_or_never(upstream.call(call)).unwrap().unwrap()
    }

    /// Sends a request of somebody's client that can be asked this.
    fn ask_as(&self, caller: Caller, method: Method, params: Value) -> Reply {
        let params = Params::read(&method, Some(Json::from_value(&params))).unwrap();
        let call = Call { method, params, caller, arrived: tokio::time::Instant::now() };
        let mut upstream = self.upstream.clone();
        futures_util::FutureExt::now_or_never(upstream.call(call)).unwrap().unwrap().in_background()
    }

    /// How often each word stands in the ledger.
    fn ledger(&self, word: &str) -> usize {
        let text = std::fs::read_to_string(self.dir.path().join("ledger")).unwrap_or_default();
        text.lines().filter(|line| *line == word).count()
    }

    /// Resolves when the ledger has `word` `count` times.
    async fn noted(&self, word: &str, count: usize) {
        signs::files(word, self.dir.path(), PATIENCE, || self.ledger(word) >= count).await;
    }
}

fn caller(who: &str, session: ClientSession, abilities: &Value) -> Caller {
    Caller {
        principal: Principal::Named(who.into()),
        session,
        abilities: Abilities::of(Json::from_value(abilities)),
        tasks: TaskSupport::Undeclared,
        progress_token: None,
        key: None,
        credentials: Credentials::default(),
    }
}

async fn failure(reply: Reply) -> Failure {
    match outcome(reply).await {
        Outcome::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

async fn pid(bench: &Bench, who: &str) -> u64 {
    result(bench.call_as(who, "who", json!({}))).await["pid"].as_u64().unwrap()
}

/// A pipe that ends when the last process that holds it has ended.
struct Life(PathBuf);

impl Life {
    fn new(dir: &TempDir) -> Self {
        let path = dir.path().join("life");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        Self(path)
    }

    fn path(&self) -> String {
        self.0.to_str().unwrap().to_owned()
    }

    /// Starts to watch; resolves when every process that held the pipe has ended. To be called before any
    /// process is started.
    fn ended(&self) -> tokio::sync::oneshot::Receiver<()> {
        let path = self.0.clone();
        let (sender, ended) = tokio::sync::oneshot::channel();
        // Not on the runtime, which would wait for it when a test fails.
        std::thread::spawn(move || {
            let mut life = std::fs::File::open(path).unwrap();
            std::io::copy(&mut life, &mut std::io::sink()).unwrap();
            let _ = sender.send(());
        });
        ended
    }
}

fn raw(text: &str) -> Json {
    Json::parse(Bytes::from(text.to_owned())).unwrap()
}

fn progress_of(event: Option<Event>) -> String {
    match event {
        Some(Event::Progress(progress)) => progress.describe(),
        other => panic!("{other:?}"),
    }
}
