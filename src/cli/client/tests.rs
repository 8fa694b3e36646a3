//! The client against a scripted server of 2026-07-28.

use std::sync::{Arc, Mutex};

use http::HeaderMap;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::view::Asked;
use super::*;
use crate::jobs::Jobs;
use crate::protocol::{Json, Progress};

/// One answer of the script.
enum Say {
    Json(u16, Value),
    /// `text/event-stream`, in these pieces.
    Stream(Vec<String>),
    /// Anything else.
    Raw(&'static str),
    /// The connection is closed without an answer.
    Nothing,
}

/// A server that answers each request with the next part of its script.
struct Server {
    url: String,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    _jobs: Jobs,
}

impl Server {
    async fn start(script: Vec<Say>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp?key=s3cret", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (jobs, record) = (Jobs::new(), seen.clone());
        jobs.spawn("scripted server", async move {
            for say in script {
                let (mut socket, _) = listener.accept().await.unwrap();
                let request = read(&mut socket).await;
                record.lock().unwrap().push(request);
                answer(&mut socket, say).await;
            }
        });
        Self { url, seen, _jobs: jobs }
    }

    fn endpoint(&self) -> Endpoint {
        let mut headers = HeaderMap::new();
        add_header(&mut headers, "Authorization: Bearer s3cret").unwrap();
        Endpoint::new(&self.url, headers).unwrap()
    }

    fn seen(&self) -> Vec<(String, Value)> {
        self.seen.lock().unwrap().clone()
    }
}

async fn read(socket: &mut TcpStream) -> (String, Value) {
    let mut text = Vec::new();
    loop {
        let mut part = [0; 4096];
        let count = socket.read(&mut part).await.unwrap();
        assert!(count > 0, "the request was cut");
        text.extend_from_slice(&part[..count]);
        let Some(end) = text.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(text[..end].to_vec()).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if text.len() >= end + 4 + length.parse::<usize>().unwrap() {
            return (head, serde_json::from_slice(&text[end + 4..]).unwrap());
        }
    }
}

async fn answer(socket: &mut TcpStream, say: Say) {
    match say {
        Say::Json(status, body) => {
            let body = body.to_string();
            let head = format!("HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-type: application/json\r\n");
            socket.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
        }
        Say::Stream(pieces) => {
            let head = "HTTP/1.1 200 x\r\nconnection: close\r\ncontent-type: text/event-stream; charset=utf-8\r\n\r\n";
            socket.write_all(head.as_bytes()).await.unwrap();
            for piece in pieces {
                socket.write_all(piece.as_bytes()).await.unwrap();
                socket.flush().await.unwrap();
            }
        }
        Say::Raw(text) => socket.write_all(text.as_bytes()).await.unwrap(),
        Say::Nothing => {}
    }
}

fn result(result: Value) -> Say {
    Say::Json(200, json!({ "jsonrpc": "2.0", "id": 1, "result": result }))
}

fn error(status: u16, code: i64, message: &str) -> Say {
    Say::Json(status, json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": code, "message": message } }))
}

fn task(kind: &str, status: &str, rest: Value) -> Say {
    let mut task = json!({
        "resultType": kind, "taskId": "t1", "status": status, "createdAt": "2026-07-28T10:30:00.000Z",
        "lastUpdatedAt": "2026-07-28T10:30:00.000Z", "ttlMs": null, "pollIntervalMs": 50,
    });
    task.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    result(task)
}

fn arguments(text: &'static str) -> Json {
    Json::parse(text.into()).unwrap()
}

async fn call(endpoint: &Endpoint, tool: &str, json: &'static str) -> Result<Json, ClientError> {
    let arguments = arguments(json);
    endpoint.ask(&Ask::Call { tool, arguments: &arguments, answered: None }, &HeaderMap::new(), &mut |_| {}).await
}

/// Follows the task that the call made, without ever being interrupted.
async fn follow(server: &Server) -> (End, Vec<String>) {
    follow_as(server, Person::Away).await
}

async fn follow_as(server: &Server, mut person: Person) -> (End, Vec<String>) {
    follow_both(server, &mut person, async || std::future::pending().await).await
}

async fn follow_until(server: &Server, interrupt: impl AsyncFnMut()) -> (End, Vec<String>) {
    follow_both(server, &mut Person::Away, interrupt).await
}

async fn follow_both(server: &Server, person: &mut Person, interrupt: impl AsyncFnMut()) -> (End, Vec<String>) {
    let endpoint = server.endpoint();
    let created = TaskView::handle(call(&endpoint, "slow", "{}").await.unwrap()).unwrap();
    let mut display = Display::Notes(Vec::new());
    let end = Follow {
        endpoint: &endpoint,
        display: &mut display,
        person,
        deadline: None,
        interrupt,
        at_interrupt: AtInterrupt::Cancel,
    }
    .run(created)
    .await;
    let Display::Notes(notes) = display else { panic!() };
    (end, notes)
}

#[tokio::test]
async fn a_task_that_is_followed_moves_the_bar() {
    let at = |done: u64| {
        let message = format!("running for 1s; progress {done} of 6: rows");
        let meta = json!({ "dev.raincheck/progress": { "progress": done, "total": 6, "message": "rows" } });
        task("complete", "working", json!({ "statusMessage": message, "_meta": meta }))
    };
    let done = task("complete", "completed", json!({ "result": { "resultType": "complete", "content": [] } }));
    let server = Server::start(vec![task("task", "working", json!({})), at(1), at(4), done]).await;
    let endpoint = server.endpoint();
    let created = TaskView::handle(call(&endpoint, "slow", "{}").await.unwrap()).unwrap();
    let bar = indicatif::ProgressBar::hidden();
    let (mut display, mut person) = (Display::Bar(bar.clone()), Person::Away);
    let interrupt = async || std::future::pending().await;
    let follow = Follow {
        endpoint: &endpoint,
        display: &mut display,
        person: &mut person,
        deadline: None,
        interrupt,
        at_interrupt: AtInterrupt::Cancel,
    };
    assert!(matches!(follow.run(created).await, End::Ended(_)));
    assert_eq!((bar.position(), bar.length()), (4, Some(6)));
}

#[tokio::test]
async fn a_request_carries_what_the_revision_wants() {
    let server = Server::start(vec![result(json!({ "resultType": "complete", "content": [] }))]).await;
    call(&server.endpoint(), "naïve tool", r#"{"n": 1.00, "big": 9007199254740993}"#).await.unwrap();
    let (head, body) = server.seen().pop().unwrap();
    for line in [
        "post /mcp?key=s3cret http/1.1",
        "mcp-protocol-version: 2026-07-28",
        "mcp-method: tools/call",
        "mcp-name: =?base64?bmfdr3zzihrvb2w=?=",
        "accept: application/json, text/event-stream",
        "content-type: application/json",
        "authorization: bearer s3cret",
    ] {
        let line = if line.starts_with("mcp-name") { "mcp-name: =?base64?" } else { line };
        assert!(head.lines().any(|found| found.starts_with(line)), "{line} in {head}");
    }
    let meta = &body["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(
        meta["io.modelcontextprotocol/clientCapabilities"],
        json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } })
    );
    assert_eq!(body["params"]["arguments"]["big"], 9_007_199_254_740_993_u64);
}

#[tokio::test]
async fn a_stream_gives_progress_and_then_the_result() {
    let progress = |done| {
        let params = json!({ "progressToken": 1, "progress": done, "total": 3, "message": "rows" });
        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
    };
    let last = json!({ "jsonrpc": "2.0", "id": 1, "result": { "resultType": "complete", "content": [] } });
    let pieces = vec![
        ": hello\r\n\r\n".to_owned(),
        format!("event: message\r\ndata: {}\r\n\r\nda", progress(1)),
        format!("ta: {}\n\n: x\n\n", progress(2)),
        // Not even the blank line at the end.
        format!("data: {last}"),
    ];
    let server = Server::start(vec![Say::Stream(pieces)]).await;
    let mut seen: Vec<Progress> = Vec::new();
    let arguments = arguments("{}");
    let ask = Ask::Call { tool: "t", arguments: &arguments, answered: None };
    server.endpoint().ask(&ask, &HeaderMap::new(), &mut |progress| seen.push(progress)).await.unwrap();
    let seen: Vec<_> = seen.iter().map(Progress::describe).collect();
    assert_eq!(seen, ["1 of 3: rows", "2 of 3: rows"]);
}

#[tokio::test]
async fn what_is_no_answer_is_told_apart() {
    let cases = [
        (error(200, -32602, "bad"), "bad (-32602)"),
        (error(400, -32022, "too new"), "too new: the server does not speak MCP 2026-07-28"),
        (Say::Raw("HTTP/1.1 401 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"), "add --header"),
        (Say::Raw("HTTP/1.1 404 x\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno"), "an MCP endpoint"),
        (
            Say::Raw(
                "HTTP/1.1 502 x\r\ncontent-type: application/json\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbad",
            ),
            "HTTP status 502",
        ),
        (
            Say::Raw("HTTP/1.1 200 x\r\ncontent-type: text/html\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"),
            "text/html",
        ),
        (Say::Json(200, json!({ "jsonrpc": "2.0", "id": 1, "result": 5 })), "no object"),
        (Say::Json(200, json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })), "a request came"),
        (Say::Stream(vec![": only this\n\n".to_owned()]), "broke before"),
        (Say::Nothing, "broke before"),
    ];
    for (say, expected) in cases {
        let server = Server::start(vec![say]).await;
        let found = explain(call(&server.endpoint(), "t", "{}").await.unwrap_err());
        assert!(found.to_string().contains(expected), "{found}");
        assert!(!format!("{found} {found:?}").contains("s3cret"));
    }
}

#[tokio::test]
async fn a_task_is_followed_through_its_states_to_the_result() {
    let server = Server::start(vec![
        task("task", "working", json!({})),
        task("complete", "working", json!({ "statusMessage": "1 of 2: rows" })),
        task("complete", "completed", json!({ "result": { "resultType": "complete", "content": [] } })),
    ])
    .await;
    let (end, notes) = follow(&server).await;
    assert!(matches!(&end, End::Ended(task) if matches!(task.status, Status::Completed(_))), "{end:?}");
    assert_eq!(notes, ["working", "1 of 2: rows", "completed"]);
    let asked: Vec<_> =
        server.seen().into_iter().skip(1).map(|(head, body)| (head.contains("mcp-name: t1"), body)).collect();
    assert!(
        asked.iter().all(|(named, body)| *named && body["params"]["taskId"] == "t1" && body["method"] == "tasks/get")
    );
}

#[tokio::test]
async fn the_handle_of_a_call_that_ended_before_leads_to_its_result() {
    let ended = [
        ("completed", json!({ "result": { "resultType": "complete", "content": [] } })),
        ("failed", json!({ "error": { "code": -31003, "message": "late" } })),
    ];
    for (status, rest) in ended {
        let server = Server::start(vec![task("task", status, json!({})), task("complete", status, rest)]).await;
        let (end, _) = follow(&server).await;
        let End::Ended(seen) = end else { panic!("{end:?}") };
        assert_eq!(seen.word(), status);
    }
}

#[tokio::test]
async fn a_server_that_is_away_for_a_moment_is_asked_again() {
    let server = Server::start(vec![
        task("task", "working", json!({})),
        Say::Nothing,
        Say::Nothing,
        task("complete", "cancelled", json!({ "statusMessage": "by somebody else" })),
    ])
    .await;
    let (end, notes) = follow(&server).await;
    assert!(matches!(&end, End::Ended(task) if matches!(task.status, Status::Cancelled)), "{end:?}");
    assert!(notes[1].contains("the task may go on, asking again for 5m at most"), "{notes:?}");
    let said = notes.iter().filter(|note| note.contains("may go on")).count();
    assert_eq!(said, 1, "{notes:?}");
}

#[tokio::test]
async fn an_unknown_task_ends_the_wait() {
    let server = Server::start(vec![task("task", "working", json!({})), error(200, -32602, "Task not found")]).await;
    let (end, _) = follow(&server).await;
    assert!(matches!(&end, End::Lost(ClientError::Rpc(error)) if error.code() == -32602), "{end:?}");
}

#[tokio::test]
async fn a_task_that_asks_is_not_waited_for() {
    let request = json!({ "method": "elicitation/create", "params": { "message": "Your name?" } });
    let server = Server::start(vec![
        task("task", "working", json!({})),
        task("complete", "input_required", json!({ "inputRequests": { "k": request } })),
    ])
    .await;
    let (end, _) = follow(&server).await;
    let End::NeedsInput(TaskView { status: Status::InputRequired(asked), .. }) = end else { panic!("{end:?}") };
    assert_eq!(asked.iter().map(Asked::message).collect::<Vec<_>>(), ["Your name?"]);
}

#[tokio::test]
async fn somebody_who_is_there_answers_each_question_once() {
    let form = json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    let params = json!({ "message": "Your name?", "requestedSchema": form });
    let asks = || {
        let request = json!({ "method": "elicitation/create", "params": params });
        task("complete", "input_required", json!({ "inputRequests": { "k": request } }))
    };
    let server = Server::start(vec![
        task("task", "working", json!({})),
        asks(),
        result(json!({ "resultType": "complete" })),
        // Still there, as some servers show it.
        asks(),
        task("complete", "completed", json!({ "result": { "content": [] } })),
    ])
    .await;
    let (end, _) = follow_as(&server, Person::Says(["Ann"].into())).await;
    assert!(matches!(&end, End::Ended(_)), "{end:?}");
    let seen = server.seen();
    let updates: Vec<_> = seen.iter().filter(|(_, body)| body["method"] == "tasks/update").collect();
    let [(head, update)] = updates.as_slice() else { panic!("{seen:?}") };
    let answer = json!({ "action": "accept", "content": { "name": "Ann" } });
    assert_eq!(update["params"]["inputResponses"], json!({ "k": answer }));
    assert!(head.to_lowercase().contains("mcp-name: "), "{head}");
}

#[tokio::test]
async fn an_interrupt_cancels_the_task_and_waits_to_see_it() {
    let server = Server::start(vec![
        task("task", "working", json!({ "pollIntervalMs": 30_000 })),
        result(json!({ "resultType": "complete" })),
        task("complete", "working", json!({})),
        task("complete", "cancelled", json!({})),
    ])
    .await;
    let interrupt = Notify::new();
    interrupt.notify_one();
    let (end, _) = follow_until(&server, async || interrupt.notified().await).await;
    assert!(matches!(&end, End::Interrupted(Some(task)) if task.is_terminal()), "{end:?}");
    let methods: Vec<_> =
        server.seen().into_iter().map(|(_, body)| body["method"].as_str().unwrap().to_owned()).collect();
    assert_eq!(methods, ["tools/call", "tasks/cancel", "tasks/get", "tasks/get"]);
}

#[tokio::test]
async fn arguments_are_mirrored_into_headers_where_the_tool_wants_it() {
    let schema = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" },
        "deep": { "type": "object", "properties": { "n": { "type": "integer", "x-mcp-header": "N" } } },
        "absent": { "type": "string", "x-mcp-header": "Absent" },
        "plain": { "type": "string" },
    } });
    let server = Server::start(vec![
        result(json!({ "resultType": "complete", "tools": [{ "name": "other" }], "nextCursor": "2" })),
        result(json!({ "resultType": "complete", "tools": [{ "name": "t", "inputSchema": schema }] })),
    ])
    .await;
    let given = arguments(r#"{"region": "Köln", "deep": {"n": 7}, "plain": "x"}"#);
    let mirrored = server.endpoint().mirrored("t", &given).await.unwrap();
    assert_eq!(mirrored.len(), 2);
    assert_eq!(
        (&mirrored["mcp-param-region"], &mirrored["mcp-param-n"]),
        (&"=?base64?S8O2bG4=?=".parse().unwrap(), &"7".parse().unwrap())
    );
    assert_eq!(server.seen()[1].1["params"]["cursor"], "2");
}

#[test]
fn nothing_secret_is_shown_or_written_down() {
    let mut headers = HeaderMap::new();
    add_header(&mut headers, "authorization:Bearer s3cret").unwrap();
    let endpoint = Endpoint::new("http://h/mcp?key=s3cret#s3cret", headers).unwrap();
    assert_eq!(endpoint.public_url(), "http://h/mcp");
    assert!(!format!("{endpoint:?}").contains("s3cret"));
    let refused = Endpoint::new("http://user:s3cret@h/mcp", HeaderMap::new()).unwrap_err();
    assert!(refused.contains("--header") && !refused.contains("s3cret"));
    assert!(add_header(&mut HeaderMap::new(), "no colon s3cret").is_err_and(|text| !text.contains("s3cret")));
}
