use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines as TokioLines, ReadHalf, WriteHalf};
use tokio::time::{Instant, timeout};

use super::*;
use crate::config::{Limits, ServerConfig, Transport};
use crate::jobs::Jobs;
use crate::protocol::{Caller, Credentials, Event, Method, Params, Principal, Reason};
use crate::upstream::Shared;
use crate::upstream::handshake::LastSeen;
use crate::upstream::sessions::Audience;

/// The server's end of a connection.
struct Server {
    lines: TokioLines<BufReader<ReadHalf<DuplexStream>>>,
    out: WriteHalf<DuplexStream>,
}

impl Server {
    async fn read(&mut self) -> serde_json::Value {
        let line = timeout(Duration::from_secs(10), self.lines.next_line()).await.expect("nothing is sent");
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    }

    async fn write(&mut self, line: &str) {
        self.out.write_all(line.as_bytes()).await.unwrap();
        self.out.write_all(b"\n").await.unwrap();
    }
}

fn setup(cancel: ForwardCancel, message: usize) -> Setup {
    let transport = Transport::Stdio { command: vec!["x".to_owned()], env: [].into(), cwd: None, hide: Vec::new() };
    let config = ServerConfig { cancel, max_sessions: 1, ..ServerConfig::new("mock", transport) };
    let limits = Limits { message, ..Limits::default() };
    let (config, limits) = (config.into(), limits.into());
    Setup { config, limits, jobs: Jobs::new(), last_seen: LastSeen::default(), shared: Shared::default() }
}

fn open_with(setup: &Setup, room: usize) -> (Connection, Server) {
    let (ours, theirs) = tokio::io::duplex(room);
    let (reader, writer) = tokio::io::split(ours);
    let (lines, out) = tokio::io::split(theirs);
    (
        Connection::open(setup, Hearer::Audience(Audience::Everybody), reader, writer),
        Server { lines: BufReader::new(lines).lines(), out },
    )
}

fn open() -> (Connection, Server) {
    open_with(&setup(ForwardCancel::Forward, 1 << 20), 1 << 20)
}

fn call(params: &str) -> Call {
    let method = Method::CallTool;
    let params = Params::read(&method, Some(Json::parse(Bytes::from(params.to_owned())).unwrap())).unwrap();
    let caller = Caller::of_modern(&params, Principal::Local, Credentials::default());
    Call { method, params, caller, arrived: Instant::now() }
}

/// Starts a call in the background.
fn send(connection: &Connection, params: &str) -> Reply {
    let (sender, reply) = Reply::channel();
    let (connection, call) = (connection.clone(), call(params));
    let jobs = connection.0.setup.jobs.clone();
    jobs.spawn("call", async move {
        let _ = connection.call(&call, sender).await;
    });
    reply
}

async fn outcome_of(reply: Reply) -> String {
    match timeout(Duration::from_secs(10), reply.outcome()).await.expect("the call hangs") {
        Outcome::Result(json) => json.as_str().to_owned(),
        Outcome::Error(error) => error.raw().as_str().to_owned(),
        Outcome::Failed(failure) => format!("{:?}", failure.reason),
        other => format!("{other:?}"),
    }
}

/// The reader has taken in everything that was written so far, once a ping is answered.
async fn settle(server: &mut Server) {
    server.write(r#"{"jsonrpc":"2.0","id":"sync","method":"ping"}"#).await;
    assert_eq!(server.read().await, serde_json::json!({"jsonrpc": "2.0", "id": "sync", "result": {}}));
}

#[tokio::test]
async fn answers_in_reverse_order_reach_their_own_callers() {
    let (connection, mut server) = open();
    let ann = send(&connection, r#"{"name":"who","arguments":{"who":"ann"}}"#);
    let one = server.read().await;
    let bo = send(&connection, r#"{"name":"who","arguments":{"who":"bo"}}"#);
    let two = server.read().await;
    assert_ne!(one["id"], two["id"]);
    for request in [two, one] {
        let who = request["params"]["arguments"]["who"].as_str().unwrap();
        server.write(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"who":"{who}"}}}}"#, request["id"])).await;
    }
    assert_eq!(outcome_of(ann).await, r#"{"who":"ann"}"#);
    assert_eq!(outcome_of(bo).await, r#"{"who":"bo"}"#);
}

#[tokio::test]
async fn what_is_no_message_is_skipped_and_counted() {
    let (connection, mut server) = open();
    let reply = send(&connection, r#"{"name":"t"}"#);
    server.read().await;
    for noise in ["Server started", "\u{1b}[32mready\u{1b}[0m", r#"{"level":"info","id":1}"#, "null", "42", ""] {
        server.write(noise).await;
    }
    server.write(r#"{"jsonrpc":"2.0","id":1,"result":{"ok":1.0}}"#).await;
    assert_eq!(outcome_of(reply).await, r#"{"ok":1.0}"#);
    assert_eq!(connection.noise(), 6);
}

#[tokio::test]
async fn a_byte_order_mark_before_a_line_is_passed_over() {
    let (connection, mut server) = open();
    for id in [1, 2] {
        let reply = send(&connection, r#"{"name":"t"}"#);
        server.read().await;
        server.write(&format!("\u{feff}{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}")).await;
        assert_eq!(outcome_of(reply).await, "{}");
    }
    assert_eq!(connection.noise(), 0);
}

#[tokio::test]
async fn a_request_that_is_none_of_mcp_is_answered_under_its_id() {
    let (connection, mut server) = open();
    let reply = send(&connection, r#"{"name":"t"}"#);
    server.read().await;
    // The second has the id of the call, as ids of the other side may.
    for (id, rest, code) in [
        (r#""a""#, r#""method":"roots/list","params":[1]"#, -32602),
        ("1", r#""method":7"#, -32600),
        ("2", r#""method":"x","params":7"#, -32602),
    ] {
        server.write(&format!(r#"{{"jsonrpc":"2.0","id":{id},{rest}}}"#)).await;
        let told = server.read().await;
        assert_eq!((told["id"].to_string(), &told["error"]["code"]), (id.to_owned(), &code.into()), "{told}");
    }
    // What nobody waits for an answer to.
    for line in [r#"{"id":1,"method":7}"#, r#"{"jsonrpc":"2.0","method":"x","params":[1]}"#] {
        server.write(line).await;
    }
    settle(&mut server).await;
    assert_eq!(connection.noise(), 2);
    server.write(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    assert_eq!(outcome_of(reply).await, "{}");
}

#[tokio::test]
async fn an_array_of_answers_is_unpacked() {
    let (connection, mut server) = open();
    let one = send(&connection, r#"{"name":"a"}"#);
    server.read().await;
    let two = send(&connection, r#"{"name":"b"}"#);
    server.read().await;
    server
        .write(r#" [{"jsonrpc":"2.0","id":2,"result":{"n":2}},7,{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}}]"#)
        .await;
    assert_eq!(outcome_of(one).await, r#"{"code":-1,"message":"m"}"#);
    assert_eq!(outcome_of(two).await, r#"{"n":2}"#);
}

#[tokio::test]
async fn a_broken_answer_ends_its_call_instead_of_letting_it_hang() {
    let deep = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{}{}}}"#, "[".repeat(5000), "]".repeat(5000));
    for broken in [
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"cut":"of"#,
        r#"{"jsonrpc":"2.0","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":"text"}"#,
        &deep,
    ] {
        let (connection, mut server) = open();
        let reply = send(&connection, r#"{"name":"t"}"#);
        server.read().await;
        server.write(broken).await;
        assert_eq!(outcome_of(reply).await, "BadAnswer", "{}", &broken[..broken.len().min(60)]);
    }
}

#[tokio::test]
async fn half_an_answer_of_a_server_that_died_is_none_and_a_whole_one_without_its_line_end_counts() {
    for (last, expected) in [
        (r#"{"jsonrpc":"2.0","id":1,"result":{"cut":"of"#, "OutcomeUnknown"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{"whole":1}}"#, r#"{"whole":1}"#),
        (r#"[{"jsonrpc":"2.0","id":1,"result":{"whole":2}}]"#, r#"{"whole":2}"#),
    ] {
        let (connection, mut server) = open();
        let reply = send(&connection, r#"{"name":"t"}"#);
        server.read().await;
        server.out.write_all(last.as_bytes()).await.unwrap();
        drop(server);
        connection.read_to_end().await;
        connection.end("it died");
        assert_eq!(outcome_of(reply).await, expected);
    }
}

#[tokio::test]
async fn separators_inside_strings_survive_the_way_in_and_never_go_out_raw() {
    let (connection, mut server) = open();
    let reply = send(&connection, "{\"name\":\r\n\"t\",\"arguments\":{\"a\":\"l\u{2028}m\u{2029}n\u{85}r\"}\n}");
    let line = server.lines.next_line().await.unwrap().unwrap();
    assert!(!line.contains(['\r', '\u{2028}', '\u{2029}', '\u{85}']));
    let request: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(request["params"]["arguments"]["a"], "l\u{2028}m\u{2029}n\u{85}r");
    server.write("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"t\":\"left\u{2028}right\"}}").await;
    assert_eq!(outcome_of(reply).await, "{\"t\":\"left\u{2028}right\"}");
}

#[tokio::test]
async fn an_answer_over_the_limit_fails_its_own_call_only() {
    let (connection, mut server) = open_with(&setup(ForwardCancel::Forward, 1000), 1 << 20);
    let big = send(&connection, r#"{"name":"big"}"#);
    server.read().await;
    let small = send(&connection, r#"{"name":"small"}"#);
    server.read().await;
    let filler = "x".repeat(100_000);
    server.write(&format!(r#"{{"result":{{"t":"{filler}"}},"jsonrpc":"2.0","id":1}}"#)).await;
    assert_eq!(outcome_of(big).await, "TooLarge");
    server.write(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#).await;
    assert_eq!(outcome_of(small).await, "{}");
    assert!(!connection.is_over());
}

#[tokio::test]
async fn a_server_that_asks_is_answered_at_once_even_before_it_answers() {
    let (connection, mut server) = open();
    let reply = send(&connection, r#"{"name":"t"}"#);
    server.read().await;
    for (id, method) in [(0, "ping"), (1, "roots/list"), (2, "made/up")] {
        server.write(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#)).await;
        let answer = server.read().await;
        assert_eq!(answer["id"], id);
        assert_eq!(answer["error"]["code"].as_i64(), (id != 0).then_some(-32601));
    }
    server.write(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    assert_eq!(outcome_of(reply).await, "{}");
}

#[tokio::test]
async fn late_and_foreign_progress_is_dropped_and_hurts_nobody() {
    let (connection, mut server) = open();
    let one = send(&connection, r#"{"name":"a"}"#);
    server.read().await;
    let mut two = send(&connection, r#"{"name":"b"}"#);
    assert_eq!(server.read().await["params"]["_meta"]["progressToken"], 2);
    server.write(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    for token in ["1", "1", "\"ghost\"", "null", "{}"] {
        let params = format!(r#"{{"progressToken":{token},"progress":1}}"#);
        server.write(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#)).await;
    }
    server
        .write(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":5}}"#)
        .await;
    server.write(r#"{"jsonrpc":"2.0","id":2,"result":{"n":2}}"#).await;
    assert_eq!(outcome_of(one).await, "{}");
    let Some(Event::Progress(progress)) = two.next().await else { panic!() };
    assert_eq!(progress.progress.as_str(), "5");
    assert_eq!(outcome_of(two).await, r#"{"n":2}"#);
}

#[tokio::test]
async fn a_cancelled_call_is_told_to_the_server_and_may_still_be_answered() {
    let (connection, mut server) = open();
    let reply = send(&connection, r#"{"name":"t"}"#);
    server.read().await;
    reply.cancel();
    let note = server.read().await;
    assert_eq!((&note["method"], &note["params"]["requestId"]), (&"notifications/cancelled".into(), &1.into()));
    server.write(r#"{"jsonrpc":"2.0","id":1,"result":{"won":true}}"#).await;
    assert_eq!(outcome_of(reply).await, r#"{"won":true}"#);
    assert!(!connection.is_over());
}

#[tokio::test]
async fn a_server_is_told_why_it_is_to_stop() {
    let (connection, mut server) = open();
    for (cause, says) in [
        (StopCause::Caller, "the caller cancelled or left"),
        (StopCause::GivenUp(Reason::Timeout), "the call ran into its timeout"),
    ] {
        let reply = send(&connection, r#"{"name":"t"}"#);
        server.read().await;
        reply.cancel_for(cause);
        assert_eq!(server.read().await["params"]["reason"], says);
    }
}

#[tokio::test]
async fn an_abandoned_call_is_cancelled_and_its_late_answer_dropped() {
    let (connection, mut server) = open();
    drop(send(&connection, r#"{"name":"never sent"}"#));
    let reply = send(&connection, r#"{"name":"t"}"#);
    // The first may or may not have been sent before it was dropped.
    let id = loop {
        let line = server.read().await;
        if line["params"]["name"] == "t" {
            break line["id"].clone();
        }
    };
    drop(reply);
    while server.read().await["params"]["requestId"] != id {}
    server.write(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)).await;
    settle(&mut server).await;
    assert_eq!(connection.0.pending.waiting(), 0);
    assert!(!connection.is_over());
}

#[tokio::test]
async fn with_cancel_never_the_server_is_not_told() {
    let (connection, mut server) = open_with(&setup(ForwardCancel::Never, 1 << 20), 1 << 20);
    let reply = send(&connection, r#"{"name":"t"}"#);
    server.read().await;
    drop(reply);
    settle(&mut server).await;
}

#[tokio::test]
async fn the_end_of_the_stream_leaves_sent_calls_unknown_and_gives_unsent_ones_back() {
    // So little room that the second call stays in the queue, the first half written.
    let (connection, mut server) = open_with(&setup(ForwardCancel::Forward, 1 << 20), 64);
    let sent = send(&connection, &format!(r#"{{"name":"{}"}}"#, "x".repeat(1000)));
    let mut first = [0; 1];
    tokio::io::AsyncReadExt::read_exact(server.lines.get_mut(), &mut first).await.unwrap();
    let (sender, _unsent) = Reply::channel();
    let unsent_call = call(r#"{"name":"t"}"#);
    let unsent = connection.call(&unsent_call, sender);
    let end = async {
        tokio::task::yield_now().await;
        drop(server);
        connection.over().await;
        connection.end("the process ended");
    };
    let (unsent, ()) = tokio::join!(unsent, end);
    assert!(matches!(unsent, Handed::NotTaken(_)), "{unsent:?}");
    assert_eq!(outcome_of(sent).await, "OutcomeUnknown");
    let (sender, _late) = Reply::channel();
    assert!(matches!(connection.call(&unsent_call, sender).await, Handed::NotTaken(_)));
}

#[tokio::test]
async fn a_server_that_does_not_read_holds_calls_back_but_not_their_cancel() {
    let (connection, server) = open_with(&setup(ForwardCancel::Forward, 1 << 20), 64);
    let stuck: Vec<_> = (0..REQUESTS * 2).map(|_| send(&connection, r#"{"name":"t","arguments":{}}"#)).collect();
    for reply in stuck.iter().skip(1) {
        reply.cancel();
    }
    for reply in stuck.into_iter().skip(1) {
        assert_eq!(outcome_of(reply).await, "NotStarted");
    }
    drop(server);
}

/// As of a pipe: what does not fit whole is not begun.
#[tokio::test]
async fn a_request_of_which_no_byte_is_out_waits_until_the_server_reads_and_is_withdrawn_with_its_call() {
    let params = r#"{"name":"t","arguments":{}}"#;
    let room = wire::line(wire::request(&call(params), ServerEra::Legacy, 1)).len();
    let (connection, mut server) = open_with(&setup(ForwardCancel::Forward, 1 << 20), room);
    let settle_down = || async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    let written = send(&connection, params);
    settle_down().await;
    assert!(!written.is_unwritten());
    let (stuck, behind) = (send(&connection, params), send(&connection, params));
    settle_down().await;
    assert_eq!(connection.0.requests.capacity(), REQUESTS - 1, "the writer has not begun");
    assert!(stuck.is_unwritten() && behind.is_unwritten());
    stuck.cancel();
    assert_eq!(outcome_of(stuck).await, "NotStarted");
    assert_eq!(server.read().await["id"], 1);
    assert_eq!(server.read().await["id"], 3);
    settle_down().await;
    assert!(!behind.is_unwritten());
}

#[tokio::test]
async fn a_request_whose_call_has_ended_takes_no_memory_although_the_server_does_not_read() {
    struct Text {
        text: Vec<u8>,
        _in_use: Arc<()>,
    }
    impl AsRef<[u8]> for Text {
        fn as_ref(&self) -> &[u8] {
            &self.text
        }
    }
    let (connection, _server) = open_with(&setup(ForwardCancel::Forward, 1 << 20), 64);
    let _being_written = send(&connection, &format!(r#"{{"name":"{}"}}"#, "x".repeat(1000)));
    let in_use = Arc::new(());
    let text = format!(r#"{{"name":"t","arguments":"{}"}}"#, "x".repeat(10_000));
    let params =
        Json::parse(Bytes::from_owner(Text { text: text.into_bytes(), _in_use: Arc::clone(&in_use) })).unwrap();
    let unsent = Call { params: Params::read(&Method::CallTool, Some(params)).unwrap(), ..call(r#"{"name":"t"}"#) };
    let (sender, reply) = Reply::channel();
    let calling = connection.clone();
    connection.0.setup.jobs.spawn("call", async move {
        let _ = calling.call(&unsent, sender).await;
    });
    // Until it waits to be written.
    while connection.0.requests.capacity() == REQUESTS {
        tokio::task::yield_now().await;
    }
    reply.cancel();
    assert_eq!(outcome_of(reply).await, "NotStarted");
    let freed = async {
        while Arc::strong_count(&in_use) > 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), freed).await.expect("its request is still in memory");
}

#[tokio::test]
async fn a_modern_server_that_sends_a_request_gets_no_answer() {
    let (connection, mut server) = open();
    connection.set_era(ServerEra::Modern);
    server.write(r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#).await;
    let _reply = send(&connection, r#"{"name":"t"}"#);
    let request = server.read().await;
    assert_eq!(request["method"], "tools/call");
    assert_eq!(request["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
}

#[tokio::test]
async fn what_a_modern_server_says_of_a_subscription_reaches_the_one_that_it_names() {
    let (connection, mut server) = open();
    connection.set_era(ServerEra::Modern);
    let listen = |wanted: &str| {
        let params = format!(r#"{{"notifications":{{"{wanted}":true}}}}"#);
        let params = Params::read(&Method::Listen, Some(Json::parse(Bytes::from(params)).unwrap())).unwrap();
        let caller = Caller::of_modern(&params, Principal::Local, Credentials::default());
        let call = Call { method: Method::Listen, params, caller, arrived: Instant::now() };
        let (sender, reply) = Reply::channel();
        let connection = connection.clone();
        Jobs::new().spawn("call", async move {
            crate::upstream::drive::on_connection(&connection, &call, sender).await;
        });
        reply
    };
    let mut tools = listen("toolsListChanged");
    let first = server.read().await;
    let _prompts = listen("promptsListChanged");
    let second = server.read().await;
    assert_eq!((&first["method"], &second["method"]), (&"subscriptions/listen".into(), &"subscriptions/listen".into()));
    for (list, id) in [("prompts", &second["id"]), ("tools", &first["id"])] {
        let said = serde_json::json!({
            "jsonrpc": "2.0", "method": format!("notifications/{list}/list_changed"),
            "params": { "_meta": { "io.modelcontextprotocol/subscriptionId": id, "x": 1 } },
        });
        server.write(&said.to_string()).await;
    }
    let Some(Event::Notification(said)) = timeout(Duration::from_secs(10), tools.next()).await.unwrap() else {
        panic!()
    };
    assert_eq!(said.method, "notifications/tools/list_changed");
    assert_eq!(said.params.unwrap().as_str(), r#"{"_meta":{"x":1}}"#);
    drop(tools);
    let cancelled = server.read().await;
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&"notifications/cancelled".into(), &first["id"])
    );
}

#[tokio::test]
async fn a_call_that_cannot_be_asked_ends_so_whatever_its_server_says_of_the_refusal() {
    let mut setup = setup(ForwardCancel::Forward, 1 << 20);
    let offer = vec![crate::config::Offer::Elicitation];
    setup.config = ServerConfig { offer, ..ServerConfig::clone(&setup.config) }.into();
    for answer in [r#""error":{"code":-32601,"message":"no"}"#, r#""result":{"content":[],"isError":true}"#] {
        let (connection, mut server) = open_with(&setup, 1 << 20);
        let reply = send(&connection, r#"{"name":"t"}"#);
        let id = server.read().await["id"].clone();
        // Both are there before the call is looked at again.
        let asks = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"who?"}}"#;
        server.write(&format!("{asks}\n{{\"jsonrpc\":\"2.0\",\"id\":{id},{answer}}}")).await;
        let outcome = outcome_of(reply).await;
        assert!(outcome.contains("-32021"), "{outcome}");
    }
}
