//! The operators' side, over sockets.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test ends where it fails")]

mod support;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use raincheck::admin::Admin;
use raincheck::clock::{Clock, SystemClock};
use raincheck::config::{AdminConfig, Mode, OwnerRules, TokenProof, ToolPolicy};
use raincheck::history::End;
use raincheck::jobs::Jobs;
use raincheck::protocol::{Abilities, Ask, ClientSession, Event, Json, Outcome, Question, QuestionKind, RpcError};
use raincheck::runner::Linger;
use serde_json::{Value, json};
use support::calls::{call, call_of, text};
use support::layer::{PATIENCE, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// A listener for operators of `proxy`.
struct Operators {
    address: SocketAddr,
    jobs: Jobs,
}

impl Operators {
    async fn of(proxy: &Proxy, token: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let token = token.map(|token| TokenProof::Plain(token.to_owned()));
        let admin = Admin::new(proxy.runner.clone(), &AdminConfig { http: address, token }, address);
        let tokens = ["ann", "beef"].map(str::to_owned).into();
        let admin = admin.with_owners(&OwnerRules { tokens, ..OwnerRules::default() });
        let jobs = Jobs::new();
        jobs.spawn("operators", admin.serve(listener, jobs.clone()));
        Self { address, jobs }
    }

    /// The status, the head and the body of an answer.
    async fn send(&self, line: &str, headers: &str) -> (u16, String, String) {
        let exchange = async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            let request = format!("{line} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head[9..12].parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
        };
        timeout(PATIENCE, exchange).await.expect("no answer")
    }

    async fn ask(&self, line: &str) -> (u16, String) {
        let (status, _, body) = self.send(line, &format!("Host: {}\r\n", self.address)).await;
        (status, body)
    }

    async fn value(&self, line: &str) -> (u16, Value) {
        let (status, body) = self.ask(line).await;
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    /// The ids of a list.
    async fn ids(&self, query: &str) -> Vec<String> {
        let (status, list) = self.value(&format!("GET /api/tasks?{query}")).await;
        assert_eq!(status, 200, "{list}");
        list["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Operators {
    fn drop(&mut self) {
        self.jobs.stop();
    }
}

fn proxy() -> Proxy {
    Proxy::new(ToolPolicy { mode: Mode::Task, ..ToolPolicy::default() })
}

async fn task(proxy: &Proxy, who: &str, tool: &str) -> String {
    let params = json!({ "name": tool, "arguments": { "secret": "s3cr3t" } });
    let created = proxy.value(call_of(who, true, "tools/call", params)).await;
    // Ids of one millisecond have no order.
    let made = SystemClock.now();
    while SystemClock.now() == made {
        tokio::task::yield_now().await;
    }
    created["taskId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_client_that_closes_its_sending_side_behind_its_request_is_answered() {
    let proxy = proxy();
    let operators = Operators::of(&proxy, None).await;
    task(&proxy, "ann", "export").await;
    for path in ["/healthz", "/metrics", "/api/tasks"] {
        let mut stream = TcpStream::connect(operators.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", operators.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("not closed").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {answer}");
    }
}

#[tokio::test]
async fn a_probe_is_answered_at_once_whoever_else_holds_connections_and_says_nothing() {
    let proxy = proxy();
    let operators = Operators::of(&proxy, None).await;
    let mut held = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(operators.address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: ").await.unwrap();
        held.push(stream);
    }
    // Some have asked before, and stay.
    let mut staying = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(operators.address).await.unwrap();
        let request = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", operators.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        staying.push(stream);
    }
    let begun = Instant::now();
    assert_eq!(operators.ask("GET /healthz").await.0, 200);
    // Those that say nothing are given up after two seconds; nobody waits for that.
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    // The first of them had to leave.
    let mut rest = Vec::new();
    timeout(PATIENCE, held[0].read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(rest.is_empty());
}

#[tokio::test]
async fn an_operator_sees_every_task_and_neither_arguments_nor_results() {
    let mut proxy = proxy();
    let operators = Operators::of(&proxy, None).await;
    assert_eq!(operators.value("GET /api/tasks").await, (200, json!({ "tasks": [] })));
    let (one, two) = (task(&proxy, "ann", "export").await, task(&proxy, "bo", "import").await);
    let three = task(&proxy, "ann", "import").await;
    let (_, sender) = proxy.next_sent().await;
    sender.done(Outcome::Result(text(r#"{"content":[{"type":"text","text":"s3cr3t"}]}"#)));
    proxy.ended(&one).await;

    assert_eq!(operators.ids("").await, [three.as_str(), &two, &one]);
    assert_eq!(operators.ids("state=running&tool=import").await, [three.as_str(), &two]);
    assert_eq!(operators.ids("state=completed").await, [one.as_str()]);
    let (_, first) = operators.value("GET /api/tasks?limit=2").await;
    let next = first["nextCursor"].as_str().unwrap();
    assert_eq!(operators.ids(&format!("limit=2&cursor={next}")).await, [one.as_str()]);
    let (_, shown) = operators.value(&format!("GET /api/tasks/{one}")).await;
    let owner = shown["owner"].as_str().unwrap();
    assert_eq!(shown["ownerName"], "ann");
    let names = |list: &Value| -> Vec<Value> {
        list["tasks"].as_array().unwrap().iter().map(|task| task["ownerName"].clone()).collect()
    };
    // The config does not name the other.
    assert_eq!(names(&operators.value("GET /api/tasks").await.1), [json!("ann"), Value::Null, json!("ann")]);
    assert_eq!(operators.ids(&format!("owner={owner}")).await, [three.as_str(), &one]);
    assert_eq!(operators.ids("owner=000000000000").await, [""; 0]);
    // By name, where the config has it; a name of hex digits is a name.
    assert_eq!(operators.ids("owner=ann").await, [three.as_str(), &one]);
    assert_eq!(operators.ids("owner=beef").await, [""; 0]);
    let (status, unclear) = operators.value("GET /api/tasks?owner=bo").await;
    assert_eq!(
        (status, unclear["error"].as_str().unwrap().starts_with("owner: a name that")),
        (400, true),
        "{unclear}"
    );
    assert_eq!(
        (&shown["state"], &shown["tool"], &shown["server"]),
        (&json!("completed"), &json!("export"), &json!("reports"))
    );
    let (_, shown) = operators.value(&format!("GET /api/tasks/{two}")).await;
    assert!(shown["statusMessage"].as_str().unwrap().starts_with("running for"), "{shown}");
    assert!(shown["facts"]["dev.raincheck/elapsedMs"].is_u64(), "{shown}");
    for path in ["/api/tasks", &format!("/api/tasks/{one}"), "/metrics"] {
        assert!(!operators.ask(&format!("GET {path}")).await.1.contains("s3cr3t"), "{path}");
    }
    for (line, status) in [
        ("GET /api/tasks?limit=0", 400),
        ("GET /api/tasks/x", 400),
        ("GET /api/tasks/x!", 404),
        ("GET /api/tasks/zzzzzzzz", 404),
        ("GET /api/tasks/0000%E2%80%A6", 404),
        ("GET /api/nothing", 404),
        ("POST /api/tasks", 405),
        ("DELETE /api/tasks", 405),
        (&format!("GET /api/tasks/{two}/cancel"), 405),
    ] {
        assert_eq!(operators.ask(line).await.0, status, "{line}");
    }
}

#[tokio::test]
async fn the_beginning_of_an_id_stands_for_it_where_no_other_begins_so() {
    let mut proxy = proxy();
    let operators = Operators::of(&proxy, None).await;
    let (one, two) = (task(&proxy, "ann", "export").await, task(&proxy, "bo", "import").await);
    let same = one.bytes().zip(two.bytes()).take_while(|(one, two)| one == two).count();
    let (status, why) = operators.ask(&format!("GET /api/tasks/{}", &one[..same])).await;
    assert!(status == 409 && why.contains("several tasks"), "{status} {why}");
    for short in [&one[..=same], &format!("{}%E2%80%A6", &one[..=same]), &format!("{}...", &one[..20])] {
        let (status, shown) = operators.value(&format!("GET /api/tasks/{short}")).await;
        assert_eq!((status, &shown["id"]), (200, &json!(one)), "{short}");
    }
    let (_, first) = proxy.next_sent().await;
    let (_, sender) = proxy.next_sent().await;
    let (status, shown) = operators.value(&format!("POST /api/tasks/{}/cancel", &two[..=same])).await;
    assert_eq!((status, &shown["id"]), (202, &json!(two)));
    timeout(PATIENCE, sender.cancelled()).await.unwrap();
    assert!(!first.is_cancelled());
}

#[tokio::test]
async fn a_store_that_holds_its_tasks_is_not_ready_and_says_so() {
    let proxy = Proxy::holding(ToolPolicy { mode: Mode::Task, ..ToolPolicy::default() }, 2);
    let operators = Operators::of(&proxy, None).await;
    task(&proxy, "ann", "export").await;
    assert_eq!(operators.ask("GET /readyz").await.0, 200);
    task(&proxy, "bo", "export").await;
    let (status, why) = operators.ask("GET /readyz").await;
    assert!(status == 503 && why.contains("holds its 2 tasks") && why.contains("max_tasks"), "{status} {why}");
    let metrics = operators.ask("GET /metrics").await.1;
    assert!(metrics.contains("raincheck_store_health{health=\"full\"} 1"), "{metrics}");
}

#[tokio::test]
async fn a_disk_without_room_is_not_ready_and_says_so() {
    let proxy = Proxy::full(ToolPolicy::default());
    let operators = Operators::of(&proxy, None).await;
    let (status, why) = operators.ask("GET /readyz").await;
    assert!(status == 503 && why.contains("too little disk space"), "{status} {why}");
}

#[tokio::test]
async fn an_operator_stops_any_task_and_its_owner_is_told_who_it_was() {
    let mut proxy = proxy();
    let operators = Operators::of(&proxy, None).await;
    let id = task(&proxy, "ann", "export").await;
    let (_, sender) = proxy.next_sent().await;
    let cancel = format!("POST /api/tasks/{id}/cancel");
    let (status, shown) = operators.value(&cancel).await;
    assert_eq!((status, &shown["id"]), (202, &json!(id)));
    timeout(PATIENCE, sender.cancelled()).await.unwrap();
    sender.done(Outcome::Error(RpcError::new(0, "Request cancelled")));
    let ended = proxy.ended(&id).await;
    assert_eq!((&ended["status"], &ended["statusMessage"]), (&json!("cancelled"), &json!("cancelled by the operator")));
    let (status, shown) = operators.value(&cancel).await;
    assert_eq!((status, &shown["state"]), (200, &json!("cancelled")));
}

#[tokio::test]
async fn probes_and_metrics_say_how_the_proxy_is() {
    let mut proxy = proxy();
    let operators = Operators::of(&proxy, None).await;
    assert_eq!(operators.ask("GET /healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(operators.ask("GET /readyz").await, (200, "ready\n".to_owned()));
    task(&proxy, "ann", "export").await;
    let quick = task(&proxy, "ann", "quick").await;
    let _running = proxy.next_sent().await;
    proxy.next_sent().await.1.done(Outcome::Result(text("{}")));
    proxy.ended(&quick).await;
    // A run is let go a moment after its end can be seen.
    let metrics = async {
        loop {
            let (status, metrics) = operators.ask("GET /metrics").await;
            assert_eq!(status, 200);
            if metrics.contains("raincheck_live_tasks 1\n") {
                return metrics;
            }
        }
    };
    let metrics = timeout(PATIENCE, metrics).await.unwrap();
    for line in [
        "raincheck_store_health{health=\"ready\"} 1",
        "raincheck_store_tasks 2",
        "raincheck_tasks_open{state=\"running\"} 1",
        "raincheck_tasks_open{state=\"queued\"} 0",
        "raincheck_live_tasks 1",
        "raincheck_calls_waiting 0",
        "raincheck_calls_running 1",
        "raincheck_runs_lingering 0",
        "raincheck_draining 0",
        "raincheck_runs_total{server=\"reports\",tool=\"quick\",outcome=\"completed\"} 1",
        "raincheck_run_seconds_count{server=\"reports\",tool=\"quick\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
    assert!(
        metrics.lines().all(|line| line.starts_with('#') || line.rsplit_once(' ').unwrap().1.parse::<f64>().is_ok())
    );
    let now = proxy.store.clock().now();
    proxy.runner.history().ended("reports", "slow", End::Completed, Duration::from_secs(40), now);
    let (_, tools) = operators.value("GET /api/tools").await;
    assert_eq!((&tools["tools"][1]["tool"], &tools["tools"][1]["samples"]), (&json!("slow"), &json!(1)));
    proxy.runner.drain();
    assert_eq!(operators.ask("GET /readyz").await, (503, "not ready: it is stopping\n".to_owned()));
    assert_eq!(operators.ask("GET /healthz").await.0, 200);
}

#[tokio::test]
async fn pages_of_others_and_whoever_has_no_token_are_kept_out() {
    let proxy = proxy();
    let id = task(&proxy, "ann", "export").await;
    let cancel = format!("POST /api/tasks/{id}/cancel");
    let open = Operators::of(&proxy, None).await;
    for (headers, status) in [
        ("Host: evil.example\r\n", 403),
        ("Host: localhost\r\nOrigin: https://evil.example\r\n", 403),
        ("Host: localhost\r\nOrigin: null\r\n", 403),
    ] {
        let (found, head, _) = open.send(&cancel, headers).await;
        assert_eq!(found, status, "{headers}");
        assert!(!head.contains("access-control"), "{head}");
    }
    let (status, head, page) = open.send("GET /", "Host: localhost\r\n").await;
    assert!(status == 200 && page.contains("/page.js") && head.contains("content-security-policy: default-src 'none'"));
    assert!(!page.contains("<script>") && !page.contains("http"), "the page needs nothing from elsewhere");
    for file in ["/page.js", "/page.css"] {
        assert_eq!(open.ask(&format!("GET {file}")).await.0, 200);
    }

    let closed = Operators::of(&proxy, Some("t0ken")).await;
    let with = |token: &str| format!("Host: admin.example\r\nAuthorization: Bearer {token}\r\n");
    for line in ["GET /api/tasks", "GET /metrics", "GET /api/tools", "GET /nothing", cancel.as_str()] {
        let (status, head, _) = closed.send(line, "Host: admin.example\r\n").await;
        assert!(status == 401 && head.contains("www-authenticate: bearer"), "{line}: {head}");
        assert_eq!(closed.send(line, &with("wrong")).await.0, 401, "{line}");
    }
    for line in ["GET /healthz", "GET /readyz", "GET /"] {
        assert_eq!(closed.send(line, "Host: 10.0.0.7\r\n").await.0, 200, "{line}");
    }
    assert_eq!(proxy.value(call("tasks/get", json!({ "taskId": id }))).await["status"], "working");
    assert_eq!(closed.send(&cancel, &with("t0ken")).await.0, 202);
}

/// The held calls that are shown, once there are so many.
async fn held(operators: &Operators, many: usize) -> Vec<Value> {
    let looked = async {
        loop {
            let (status, list) = operators.value("GET /api/held").await;
            assert_eq!(status, 200, "{list}");
            let held = list["held"].as_array().unwrap();
            if held.len() == many {
                return held.clone();
            }
        }
    };
    timeout(PATIENCE, looked).await.expect("another number of calls is shown")
}

#[tokio::test]
async fn a_held_call_that_is_no_task_is_seen_and_stopped_wherever_it_is() {
    let policy = ToolPolicy { mode: Mode::Sync, max_running: Some(1), ..ToolPolicy::default() };
    // A server that does not answer the cancel keeps the slot, but not the caller.
    let mut proxy = Proxy::lingering(policy, Linger::AtMost(Duration::from_hours(1)));
    let operators = Operators::of(&proxy, None).await;
    let of =
        |who: &str| call_of(who, false, "tools/call", json!({ "name": "export", "arguments": { "secret": "s3cr3t" } }));
    let running = proxy.send_in_background(of("ann"));
    let (_, server) = proxy.next_sent().await;
    let waiting = proxy.send_in_background(of("bo"));
    // What waits is seen at once, what runs after a second; a quick call is never.
    let first = held(&operators, 1).await;
    assert!(first[0]["statusMessage"].as_str().unwrap().ends_with("number 1 in line for a free slot"), "{first:?}");
    let both = held(&operators, 2).await;
    let (run, wait) = (&both[1], &both[0]);
    assert!(run["statusMessage"].as_str().unwrap().ends_with(": running"), "{run}");
    for call in &both {
        let seen = (&call["state"], &call["server"], &call["tool"]);
        assert_eq!(seen, (&json!("held"), &json!("reports"), &json!("export")));
        assert!(!call.to_string().contains("s3cr3t"), "{call}");
    }
    assert_ne!(run["owner"], wait["owner"]);
    let owner = run["owner"].as_str().unwrap();
    let (_, of_ann) = operators.value(&format!("GET /api/held?owner={owner}&tool=export&server=reports")).await;
    assert_eq!(of_ann["held"][0]["id"], run["id"]);
    assert_eq!(operators.value("GET /api/held?tool=other").await.1, json!({ "held": [] }));
    assert_eq!(operators.value("GET /api/held?state=held").await.0, 400);
    assert!(operators.ask("GET /metrics").await.1.contains("\nraincheck_calls_held 2\n"));

    let id = |call: &Value| call["id"].as_str().unwrap().to_owned();
    let (status, shown) = operators.value(&format!("GET /api/tasks/{}", id(run))).await;
    assert_eq!((status, &shown["id"]), (200, &run["id"]));
    let (status, gone) = operators.value(&format!("POST /api/tasks/{}/cancel", id(wait))).await;
    assert_eq!((status, &gone["state"]), (200, &json!("cancelled")), "{gone}");
    assert!(gone["statusMessage"].as_str().unwrap().ends_with("s, and over now"), "{gone}");
    assert_eq!(timeout(PATIENCE, waiting).await.unwrap().unwrap()["failed"], "not_started");
    assert!(!server.is_cancelled());
    let (status, gone) = operators.value(&format!("POST /api/tasks/{}/cancel", id(run))).await;
    assert_eq!((status, &gone["state"], &gone["ownerName"]), (200, &json!("cancelled"), &json!("ann")), "{gone}");
    assert_eq!(timeout(PATIENCE, running).await.unwrap().unwrap()["failed"], "outcome_unknown");
    timeout(PATIENCE, server.cancelled()).await.expect("the server was not told to stop");
    assert!(held(&operators, 0).await.is_empty());
    assert_eq!(operators.ask(&format!("GET /api/tasks/{}", id(run))).await.0, 404);
    assert!(proxy.sent.try_recv().is_err(), "what waited was sent");
}

#[tokio::test]
async fn a_held_call_whose_caller_is_asked_is_seen_as_that_and_found_by_server_and_owner() {
    let mut proxy = Proxy::new(ToolPolicy { mode: Mode::Sync, ..ToolPolicy::default() });
    let operators = Operators::of(&proxy, None).await;
    let mut asked = call_of("ann", false, "tools/call", json!({ "name": "export" }));
    asked.caller.session = ClientSession::Legacy(1);
    asked.caller.abilities = Abilities::of(Json::from_value(&json!({ "elicitation": {} })));
    let mut reply = proxy.send(asked).await;
    let (_, server) = proxy.next_sent().await;
    let question = Question { kind: QuestionKind::Elicitation, params: Json::empty_object(), key: None };
    let (ask, _asking) = Ask::new(question);
    server.event(Event::Ask(ask));
    let event = timeout(PATIENCE, reply.next()).await.unwrap();
    assert!(matches!(event, Some(Event::Ask(_))), "{event:?}");
    let seen = &held(&operators, 1).await[0];
    assert!(seen["statusMessage"].as_str().unwrap().ends_with(": the tool asks its caller"), "{seen}");
    for (query, many) in [
        ("server=reports", 1),
        ("server=others", 0),
        ("owner=00000000", 0),
        ("owner=ann", 1),
        ("owner=beef", 0),
        ("tool=export", 1),
    ] {
        let (_, list) = operators.value(&format!("GET /api/held?{query}")).await;
        assert_eq!(list["held"].as_array().unwrap().len(), many, "{query}: {list}");
    }
}

#[tokio::test]
async fn a_held_call_that_has_become_a_task_is_seen_as_that_and_one_that_asks_at_once() {
    let mode = |mode, after| ToolPolicy { mode, after, ..ToolPolicy::default() };
    let mut proxy = Proxy::new(mode(Mode::Auto, Duration::from_millis(1500)));
    let operators = Operators::of(&proxy, None).await;
    let export = || json!({ "name": "export" });
    let created = proxy.send_in_background(call("tools/call", export()));
    let _server = proxy.next_sent().await;
    held(&operators, 1).await;
    let created = timeout(PATIENCE, created).await.unwrap().unwrap();
    assert_eq!(operators.ids("").await, [created["taskId"].as_str().unwrap()]);
    assert!(held(&operators, 0).await.is_empty());

    let mut proxy = Proxy::new(mode(Mode::Sync, Duration::ZERO));
    let operators = Operators::of(&proxy, None).await;
    let mut asked = call("tools/call", export());
    asked.caller.abilities = Abilities::of(Json::from_value(&json!({ "elicitation": {} })));
    let round = proxy.send_in_background(asked);
    let (_, server) = proxy.next_sent().await;
    let question = Question { kind: QuestionKind::Elicitation, params: Json::empty_object(), key: None };
    let (ask, _asking) = Ask::new(question);
    server.event(Event::Ask(ask));
    let round = timeout(PATIENCE, round).await.unwrap().unwrap();
    assert_eq!(round["resultType"], "input_required", "{round}");
    let parked = &held(&operators, 1).await[0];
    assert!(parked["statusMessage"].as_str().unwrap().contains("sent away with questions"), "{parked}");
    let cancel = format!("POST /api/tasks/{}/cancel", parked["id"].as_str().unwrap());
    assert_eq!(operators.value(&cancel).await.0, 200);
    timeout(PATIENCE, server.cancelled()).await.expect("the server was not told to stop");
}
