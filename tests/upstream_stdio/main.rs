//! The stdio upstream with real child processes.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test ends where it fails")]

mod asks;
mod clients;
mod faults;
mod life;
mod listening;
mod scripted;
mod tasks;
mod traffic;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use raincheck::config::{ForwardCancel, Limits, ServerConfig, SessionCount, StderrFor, Transport, UpstreamEra};
use raincheck::jobs::Jobs;
use raincheck::protocol::{
    Abilities, Ask, Call, Caller, ClientSession, Credentials, Event, Failure, Json, Method, Outcome, Params, Principal,
    Reply, TaskSupport,
};
use raincheck::upstream::{GuardProgram, Upstream};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::Service;

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
    ServerConfig {
        name: "scripted".to_owned(),
        transport: Transport::Stdio {
            command: scripted::command(),
            env: env.map(|(name, value)| (name.to_owned(), value)).into(),
            cwd: None,
            hide: Vec::new(),
        },
        share: false,
        sessions: SessionCount::Auto,
        serial: false,
        offer: Vec::new(),
        cancel: ForwardCancel::Forward,
        cancel_grace: Duration::from_secs(30),
        connect_timeout: Duration::from_secs(20),
        max_sessions: 8,
        session_idle: Duration::from_mins(5),
        era: UpstreamEra::Legacy,
        stderr: StderrFor::Local,
        companion_tools: raincheck::config::CompanionNames::default(),
    }
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
        futures_util::FutureExt::now_or_never(upstream.call(call)).unwrap().unwrap()
    }

    /// How often each word stands in the ledger.
    fn ledger(&self, word: &str) -> usize {
        let text = std::fs::read_to_string(self.dir.path().join("ledger")).unwrap_or_default();
        text.lines().filter(|line| *line == word).count()
    }

    /// Resolves when the ledger has `word` `count` times.
    async fn noted(&self, word: &str, count: usize) {
        let looked = async {
            while self.ledger(word) < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, looked).await.unwrap_or_else(|_| panic!("never noted: {word}"));
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

/// The next event.
async fn next(reply: &mut Reply) -> Event {
    tokio::time::timeout(PATIENCE, reply.next()).await.expect("nothing comes").unwrap()
}

async fn asked(reply: &mut Reply) -> Ask {
    match next(reply).await {
        Event::Ask(ask) => ask,
        other => panic!("{other:?}"),
    }
}

async fn outcome(reply: Reply) -> Outcome {
    tokio::time::timeout(PATIENCE, reply.outcome()).await.expect("the call hangs")
}

async fn result(reply: Reply) -> Value {
    match outcome(reply).await {
        Outcome::Result(result) => result.read().unwrap(),
        other => panic!("{other:?}"),
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
