//! The demo server over a pipe in memory, on a clock that does not wait.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex, split};

use super::session::serve;
use crate::jobs::Jobs;

struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    output: WriteHalf<DuplexStream>,
    _jobs: Jobs,
}

impl Client {
    /// A client that has shaken hands.
    async fn connect(capabilities: Value) -> Self {
        let mut client = Self::start();
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {} });
        client.send(json!({ "jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params })).await;
        let hello = client.receive().await;
        assert_eq!((&hello["id"], &hello["result"]["protocolVersion"]), (&json!("hello"), &json!("2025-11-25")));
        assert_eq!(hello["result"]["capabilities"], json!({ "tools": {} }));
        client.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        client
    }

    fn start() -> Self {
        let (ours, theirs) = duplex(1 << 16);
        let (input, output) = split(theirs);
        let jobs = Jobs::new();
        jobs.spawn("demo", async move { serve(input, output).await.unwrap() });
        let (input, output) = split(ours);
        Self { lines: BufReader::new(input).lines(), output, _jobs: jobs }
    }

    async fn send(&mut self, message: Value) {
        self.output.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        serde_json::from_str(&self.lines.next_line().await.unwrap().expect("the server has gone")).unwrap()
    }

    async fn call(&mut self, id: u64, tool: &str, arguments: Value) {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "p" } });
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })).await;
    }

    /// The answer to `id`, and the progress that came before it.
    async fn answer(&mut self, id: u64) -> (Value, Vec<Value>) {
        let mut progress = Vec::new();
        loop {
            let message = self.receive().await;
            if message["method"] == "notifications/progress" {
                assert_eq!(message["params"]["progressToken"], "p");
                progress.push(message["params"].clone());
            } else {
                assert_eq!(message["id"], id);
                return (message, progress);
            }
        }
    }
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_slow_report_reports_progress_and_ends() {
    let mut client = Client::connect(json!({})).await;
    let begun = tokio::time::Instant::now();
    client.call(1, "slow_report", json!({ "seconds": 3, "rows": 60 })).await;
    let (answer, progress) = client.answer(1).await;
    assert_eq!(answer["result"]["structuredContent"], json!({ "rows": 60, "seconds": 3.0 }));
    assert_eq!(begun.elapsed().as_secs(), 3);
    let seen: Vec<_> = progress.iter().map(|params| params["progress"].as_u64().unwrap()).collect();
    assert_eq!(seen, [10, 20, 30, 40, 50, 60]);
    assert!(progress.iter().all(|params| params["total"] == 60));
}

#[tokio::test(start_paused = true)]
async fn a_batch_tells_which_items_failed() {
    let mut client = Client::connect(json!({})).await;
    client.call(1, "batch", json!({ "items": ["a", "", "c"] })).await;
    let (answer, progress) = client.answer(1).await;
    let results = ["a: done", "failed: the item is empty", "c: done"];
    assert_eq!(answer["result"]["structuredContent"], json!({ "done": 2, "failed": 1, "results": results }));
    assert_eq!(progress.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn tools_fail_in_both_ways_and_wrong_arguments_are_the_tools_error() {
    let mut client = Client::connect(json!({})).await;
    client.call(1, "failing", json!({})).await;
    assert_eq!(client.answer(1).await.0["result"]["isError"], true);
    client.call(2, "broken", json!({})).await;
    assert_eq!(client.answer(2).await.0["error"]["code"], -32603);
    client.call(3, "no_such", json!({})).await;
    assert_eq!(client.answer(3).await.0["error"]["code"], -32602);
    for (id, arguments) in [(4, json!({ "rows": "many" })), (5, json!({ "seconds": -1 })), (6, json!({ "row": 1 }))] {
        client.call(id, "slow_report", arguments).await;
        let (answer, _) = client.answer(id).await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert!(text(&answer).starts_with("wrong arguments"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn asking_works_where_it_can_and_says_so_where_it_cannot() {
    let mut client = Client::connect(json!({})).await;
    client.call(1, "ask", json!({})).await;
    let (answer, _) = client.answer(1).await;
    assert_eq!(answer["result"]["isError"], true);
    assert!(text(&answer).contains("did not offer elicitation"));

    let mut client = Client::connect(json!({ "elicitation": {} })).await;
    let answers = [
        (json!({ "result": { "action": "accept", "content": { "name": "Ann" } } }), "Hello, Ann!"),
        (json!({ "result": { "action": "decline" } }), "You would rather not say. Hello, stranger!"),
        (json!({ "result": { "action": "cancel" } }), "The question was closed without an answer."),
        (json!({ "error": { "code": -32601, "message": "no" } }), "The client could not be asked: no (-32601)."),
    ];
    for (id, (reply, expected)) in (1..).zip(answers) {
        client.call(id, "ask", json!({})).await;
        let question = client.receive().await;
        assert_eq!(question["method"], "elicitation/create");
        let mut reply = reply;
        reply["jsonrpc"] = "2.0".into();
        reply["id"] = question["id"].clone();
        client.send(reply).await;
        assert_eq!(text(&client.answer(id).await.0), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn pings_are_answered_and_cancels_heeded_while_a_tool_runs() {
    let mut client = Client::connect(json!({})).await;
    client.call(1, "slow_report", json!({ "seconds": 3600 })).await;
    client.send(json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" })).await;
    assert_eq!(client.answer(2).await.0["result"], json!({}));
    let params = json!({ "requestId": 1, "reason": "enough" });
    client.send(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params })).await;
    client.call(3, "quick", json!({ "text": "still here" })).await;
    assert_eq!(text(&client.answer(3).await.0), "still here");
    // Nothing more comes of the first call, not even when its time is over.
    let silence = tokio::time::timeout(std::time::Duration::from_secs(4000), client.receive()).await;
    assert!(silence.is_err(), "{silence:?}");
}

#[tokio::test(start_paused = true)]
async fn bad_lines_are_answered_and_the_session_goes_on() {
    let mut client = Client::start();
    let cases = [
        ("nonsense", -32700),
        ("[]", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#, -32600),
    ];
    for (line, code) in cases {
        client.output.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        assert_eq!(client.receive().await["error"]["code"], code, "{line}");
    }
    client.send(json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" })).await;
    assert_eq!(client.receive().await["result"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn an_older_client_gets_its_revision_and_an_unknown_one_the_newest() {
    for (asked, expected) in [("2024-11-05", "2024-11-05"), ("2026-07-28", "2025-11-25"), ("", "2025-11-25")] {
        let mut client = Client::start();
        let params = json!({ "protocolVersion": asked, "capabilities": {} });
        client.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })).await;
        assert_eq!(client.receive().await["result"]["protocolVersion"], expected);
    }
}

#[test]
fn every_tool_has_a_schema_and_a_description() {
    let tools = super::tools::list();
    let tools = tools.as_array().unwrap();
    assert_eq!(tools.len(), 6);
    for tool in tools {
        assert!(tool["description"].as_str().is_some_and(|text| text.len() > 20), "{tool}");
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(tool.get("execution").is_none(), "the demo knows nothing of tasks");
    }
}
