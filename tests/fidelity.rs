//! What clients and servers say to each other stays as it was spelled, byte for byte: from a client's socket through the
//! front, the tasks, the store and the upstream to a server's socket, and back.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test ends where it fails")]

#[path = "support/http_server.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod http_server;
mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use raincheck::clock::SystemClock;
use raincheck::config::{Limits, Listen, Mode, OwnerConfig, OwnerSource, ServerConfig, ToolPolicy, Transport};
use raincheck::front::{Front, Mount};
use raincheck::jobs::Jobs;
use raincheck::policy::Policies;
use raincheck::protocol::Json;
use raincheck::runner::{Bounds, Runner};
use raincheck::store::{Opened, Store};
use raincheck::tasks::TasksLayer;
use raincheck::upstream::Upstream;
use tempfile::TempDir;
use tower::Layer;

use crate::http_server::{Seen, Server, Wire};

/// Cases; each is two calls and a task.
const CASES: u32 = 24;

/// Everything between a client and a server, in this process, over real sockets.
struct World {
    url: String,
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    server: Server,
    /// What the server answers next.
    result: Arc<Mutex<String>>,
    jobs: Jobs,
    _folder: TempDir,
}

/// A number in a spelling that reading and writing it again would change. The servers of these tests read it as a float,
/// so that none is too large for one.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?",
        Just("9007199254740995".to_owned()),
        Just("-9223372036854775808".to_owned()),
        Just("18446744073709551615".to_owned()),
        Just("-0".to_owned()),
    ]
}

/// A string with escapes that need not be there, and characters that some escape.
fn string() -> impl Strategy<Value = String> {
    "(\\\\u00e9|\\\\/|\\\\n|\\\\ud83d\\\\ude00|\u{2028}|\u{e9}|[a-z /]|\u{1f600}){0,12}"
        .prop_map(|text| format!("\"{text}\""))
}

fn value() -> impl Strategy<Value = String> {
    let word = prop_oneof![Just("null"), Just("true"), Just("false"), Just("[]"), Just("{ }")];
    let leaf = prop_oneof![number(), string(), word.prop_map(str::to_owned)];
    leaf.prop_recursive(3, 20, 4, |inner| {
        let space = prop_oneof![Just(""), Just(" "), Just("\t")];
        let list = (prop::collection::vec(inner.clone(), 0..4), space.clone())
            .prop_map(|(values, space)| format!("[{space}{}{space}]", values.join(&format!(",{space}"))));
        // Names may come twice: whose object it is, is to judge.
        let object = (prop::collection::vec(("[a-c]|_meta|resultType|taskId", inner), 0..4), space).prop_map(
            |(members, space)| {
                let members: Vec<_> =
                    members.iter().map(|(name, value)| format!("\"{name}\"{space}:{value}")).collect();
                format!("{{{space}{}}}", members.join(&format!("{space},")))
            },
        );
        prop_oneof![list, object]
    })
}

/// The members of an object with names that come once each, in any order.
fn members() -> impl Strategy<Value = String> {
    let named = prop::collection::btree_map("structuredContent|zzz|[a-z]{1,5}\\.[a-z]{1,3}", value(), 0..5);
    (named, any::<prop::sample::Index>()).prop_map(|(named, first)| {
        let mut members: Vec<_> = named.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
        members.push(r#""content":[{"type":"hologram","n":1.50}]"#.to_owned());
        let by = first.index(members.len());
        members.rotate_left(by);
        members.join(" ,")
    })
}

/// Names and values of an object as they are spelled, but for those of the envelope.
fn spelled(object: &str, skipped: &[&str]) -> Vec<(String, String)> {
    let object = Json::parse(Bytes::copy_from_slice(object.as_bytes())).unwrap();
    let members = object.members().unwrap();
    let kept = members.iter().filter(|(name, _)| !skipped.contains(name));
    kept.map(|(name, raw)| (name.to_owned(), raw.get().to_owned())).collect()
}

fn member(object: &str, name: &str) -> String {
    let found = spelled(object, &[]).into_iter().find(|(of, _)| of == name);
    found.unwrap_or_else(|| panic!("no {name} in {object}")).1
}

async fn world() -> World {
    let result = Arc::new(Mutex::new(String::new()));
    let next = Arc::clone(&result);
    let server = Server::legacy(move |seen: Seen, wire: Wire| {
        let result = next.lock().unwrap().clone();
        async move { wire.json(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, seen.id())).await }
    })
    .await;
    let (folder, jobs, limits) = (TempDir::new().unwrap(), Jobs::new(), Limits::default());
    let config = support::layer::store_config(&folder.path().join("store"));
    let Opened { store, .. } = Store::open(&config, Arc::new(SystemClock), &jobs).unwrap();
    let runner = Runner::new(store, jobs.clone(), Bounds { running: 10, waiting: 10, rate: None });
    let upstream = Upstream::new(Arc::new(behind(&server)), &limits, &jobs);
    let mount = |name: &str, mode| {
        let policy = ToolPolicy { mode, ..ToolPolicy::default() };
        let layer = TasksLayer::new(runner.clone(), name, Policies::uniform(policy));
        Mount { name: name.to_owned(), service: layer.layer(upstream.clone()) }
    };
    let mounts = vec![mount("sync", Mode::Sync), mount("task", Mode::Task)];
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let listen = Listen {
        http: listener.local_addr().unwrap(),
        public_url: None,
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
        keep_alive: Duration::from_secs(15),
        session_idle: Duration::from_hours(1),
    };
    let owner = OwnerConfig { from: OwnerSource::Authorization, tokens: Vec::new(), jwt: None, allow_anonymous: false };
    let front = Front::new(listen, limits, owner, mounts);
    tokio::spawn(front.serve(listener, jobs.clone(), Duration::from_secs(1)));
    let http = legacy::Client::builder(TokioExecutor::new()).build_http();
    World { url, http, server, result, jobs, _folder: folder }
}

fn behind(server: &Server) -> ServerConfig {
    let url = server.url().parse().unwrap();
    let transport = Transport::Http { url, headers: http::HeaderMap::new(), forward: Vec::new() };
    ServerConfig { cancel_grace: Duration::from_secs(1), ..ServerConfig::new("behind", transport) }
}

impl World {
    /// Posts a text; the session that came back, and the message.
    async fn post(&self, mount: &str, headers: &[(&str, &str)], text: String) -> (Option<String>, String) {
        let mut request = Request::post(format!("{}/{mount}/mcp", self.url))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(text))).unwrap();
        let response = tokio::time::timeout(http_server::PATIENCE, self.http.request(request)).await.unwrap().unwrap();
        let session = response.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        let body = String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let event = body.lines().rev().find_map(|line| line.strip_prefix("data: ")).map(str::to_owned);
        (session, event.unwrap_or(body))
    }

    /// A request of 2026-07-28 that declares Tasks.
    async fn modern(&self, mount: &str, method: &str, name: &str, params: &str) -> String {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{"extensions":{{"io.modelcontextprotocol/tasks":{{}}}}}}}}}}}}"#
        );
        let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", name)];
        self.post(mount, &headers, text).await.1
    }

    /// Opens a session of 2025-11-25.
    async fn session(&self) -> String {
        let text = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
        let session = self.post("sync", &[], text.to_owned()).await.0.expect("a session");
        let text = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        self.post("sync", &[("mcp-session-id", &session)], text.to_owned()).await;
        session
    }

    /// The arguments of the last call that reached the server.
    fn arguments(&self) -> String {
        let last = self.server.seen().into_iter().rev().find(|seen| seen.text.contains("tools/call")).unwrap();
        member(&member(&last.text, "params"), "arguments")
    }

    async fn check(&self, session: &str, arguments: &str, members: &str) {
        let result = format!("{{{members}}}");
        self.result.lock().unwrap().clone_from(&result);
        let call = format!(r#""name":"t","arguments":{arguments}"#);

        let answer = self.modern("sync", "tools/call", "t", &call).await;
        assert_eq!(self.arguments(), arguments);
        let ours = ["resultType"];
        assert_eq!(spelled(&member(&answer, "result"), &ours), spelled(&result, &[]), "a modern client");

        let text = format!(r#"{{"jsonrpc":"2.0","id":1e2,"method":"tools/call","params":{{{call}}}}}"#);
        let (_, answer) = self.post("sync", &[("mcp-session-id", session)], text).await;
        assert_eq!(self.arguments(), arguments);
        // Its streams are lines, which some readers would end here.
        let lined = result.replace('\u{2028}', "\\u2028");
        assert_eq!(answer, format!(r#"{{"jsonrpc":"2.0","id":1e2,"result":{lined}}}"#), "a legacy client");

        let created = self.modern("task", "tools/call", "t", &call).await;
        let id = member(&member(&created, "result"), "taskId").replace('"', "");
        let task = loop {
            let answer = self.modern("task", "tasks/get", &id, &format!(r#""taskId":"{id}""#)).await;
            let task = member(&answer, "result");
            if member(&task, "status") != r#""working""# {
                break task;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(self.arguments(), arguments);
        assert_eq!(spelled(&member(&task, "result"), &ours), spelled(&result, &[]), "a task: {task}");
    }
}

#[test]
fn every_byte_of_arguments_and_results_survives_both_ways() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let world = runtime.block_on(world());
    let session = runtime.block_on(world.session());
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let arguments = prop::collection::vec(("[a-c]|é|\\\\u0061", value()), 0..5).prop_map(|members| {
        let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\" :{value}")).collect();
        format!("{{ {}}}", members.join(", "))
    });
    let outcome = TestRunner::new(config).run(&(arguments, members()), |(arguments, members)| {
        runtime.block_on(world.check(&session, &arguments, &members));
        Ok(())
    });
    world.jobs.stop();
    outcome.unwrap();
}
