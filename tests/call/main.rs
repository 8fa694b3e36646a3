//! `raincheck call` and `raincheck task` as a shell sees them, against a scripted server of 2026-07-28.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test ends where it fails")]
#![expect(clippy::unnecessary_wraps, reason = "every script has the type `Script`")]

mod leaving;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

const BINARY: &str = env!("CARGO_BIN_EXE_raincheck");
const TASK: &str = "0123456789abcdefghijklmnopqrstuv0123";

/// What the server answers to a method: a result, or an error.
type Script = fn(&str, usize) -> Result<Value, Value>;

struct Server {
    url: String,
    /// The methods in the order of their requests, and what the file of handles held then.
    seen: Receiver<(String, String)>,
    directory: tempfile::TempDir,
}

impl Server {
    fn start(script: Script) -> Self {
        Self::start_with(script, |_, _| {})
    }

    /// The same, with something to be done before each answer.
    fn start_with(script: Script, before: impl Fn(&mut TcpStream, usize) + Send + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let handles = directory.path().join("state/handles.jsonl");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (sender, seen) = channel();
        std::thread::spawn(move || {
            for (count, socket) in listener.incoming().enumerate() {
                let mut socket = socket.unwrap();
                let request = read(&mut socket);
                let method = request["method"].as_str().unwrap().to_owned();
                let kept = std::fs::read_to_string(&handles).unwrap_or_default();
                let answer = match script(&method, count) {
                    Ok(result) => json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }),
                    Err(error) => json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }),
                };
                let _ = sender.send((method, kept));
                before(&mut socket, count);
                let body = answer.to_string();
                let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n";
                // A client that was killed reads no answer.
                let _ = write!(socket, "{head}content-length: {}\r\n\r\n{body}", body.len());
            }
        });
        Self { url, seen, directory }
    }

    fn handles(&self) -> PathBuf {
        self.directory.path().join("state/handles.jsonl")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments).env("RAINCHECK_HANDLES", self.handles()).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn call(&self, more: &[&str]) -> Output {
        let mut arguments = vec!["call", &self.url, "slow", "{\"rows\": 3}", "-H", "Authorization: Bearer s3cret"];
        arguments.extend(more);
        self.run(&arguments)
    }

    fn methods(&self) -> Vec<String> {
        self.seen.try_iter().map(|(method, _)| method).collect()
    }
}

fn read(socket: &mut TcpStream) -> Value {
    let mut reader = BufReader::new(socket);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

fn task(kind: &str, status: &str, more: Value) -> Value {
    let mut task = json!({
        "resultType": kind, "taskId": TASK, "status": status, "createdAt": "2026-07-28T10:30:00.000Z",
        "lastUpdatedAt": "2026-07-28T10:30:00.000Z", "ttlMs": 60_000, "pollIntervalMs": 50,
    });
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    task
}

fn text(text: &str, is_error: bool) -> Value {
    json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }], "isError": is_error })
}

fn completes(method: &str, count: usize) -> Result<Value, Value> {
    Ok(match (method, count) {
        ("tools/call", _) => task("task", "working", json!({})),
        ("tasks/get", 1) => task("complete", "working", json!({ "statusMessage": "1 of 3: rows" })),
        ("tasks/get", _) => task("complete", "completed", json!({ "result": text("the report", false) })),
        _ => json!({ "resultType": "complete" }),
    })
}

fn runs_on(method: &str, count: usize) -> Result<Value, Value> {
    Ok(match method {
        "tools/call" => task("task", "working", json!({})),
        "tasks/get" if count < 4 => task("complete", "working", json!({})),
        "tasks/get" => task("complete", "cancelled", json!({})),
        _ => json!({ "resultType": "complete" }),
    })
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_call_waits_for_its_task_and_prints_the_result() {
    let server = Server::start(completes);
    let output = server.call(&[]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "the report\n"), "{}", stderr(&output));
    assert!(stderr(&output).contains("1 of 3: rows"));
    let seen: Vec<_> = server.seen.try_iter().collect();
    let methods: Vec<_> = seen.iter().map(|(method, _)| method.as_str()).collect();
    assert_eq!(methods, ["tools/call", "tasks/get", "tasks/get"]);
    // The handle was on disk before it was used, and no credential with it.
    let kept: Value = serde_json::from_str(&seen[1].1).unwrap();
    assert_eq!((&kept["taskId"], &kept["tool"], &kept["url"]), (&json!(TASK), &json!("slow"), &json!(server.url)));
    assert!(!std::fs::read_to_string(server.handles()).unwrap().contains("s3cret"));
}

#[test]
fn a_detached_call_prints_its_handle_and_task_fetches_the_result() {
    let server = Server::start(completes);
    let output = server.call(&["--detach"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), format!("{TASK}\n")));
    assert_eq!(server.methods(), ["tools/call"]);
    for handle in [TASK, &TASK[..8], "last"] {
        let output = server.run(&["task", "get", "--wait", handle]);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "the report\n"), "{}", stderr(&output));
    }
    let output = server.run(&["task", "get", "--json", TASK]);
    let shown: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(shown["result"]["content"][0]["text"], "the report");
    let output = server.run(&["task", "list"]);
    assert!(stdout(&output).starts_with(TASK) && stdout(&output).contains("slow  completed"), "{}", stdout(&output));
    let output = server.run(&["task", "cancel", "last"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("the task is completed"));
    assert_eq!(server.run(&["task", "get", "zzz"]).status.code(), Some(1));
}

#[test]
fn a_detached_call_that_is_answered_says_that_there_is_no_handle() {
    fn answers(_: &str, _: usize) -> Result<Value, Value> {
        Ok(text("It is raining.", false))
    }
    let server = Server::start(answers);
    for (more, says) in [(&["--detach"][..], true), (&[], false)] {
        let output = server.call(more);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "It is raining.\n"));
        let said = stderr(&output);
        assert_eq!(said.contains("no handle: the call ended before it became a task"), says, "{said}");
    }
    assert!(!server.handles().exists());
}

#[test]
fn failures_end_with_1_and_say_whether_to_try_again() {
    fn fails(method: &str, _: usize) -> Result<Value, Value> {
        let data = json!({ "reason": "outcome_unknown" });
        let error = json!({ "code": -31001, "message": "outcome unknown: restarted", "data": data });
        Ok(match method {
            "tools/call" => task("task", "working", json!({})),
            _ => task("complete", "failed", json!({ "error": error })),
        })
    }
    fn is_error(_: &str, _: usize) -> Result<Value, Value> {
        Ok(text("the roof leaks", true))
    }
    fn busy(_: &str, _: usize) -> Result<Value, Value> {
        let data = json!({ "reason": "busy", "retryable": true, "retryAfterMs": 2000 });
        Err(json!({ "code": -31005, "message": "too many calls", "data": data }))
    }
    let cases: [(Script, &str, &str); 3] = [
        (fails, "", "Nobody knows whether the tool has run; check before you call it again."),
        (is_error, "the roof leaks\n", "the tool reports an error"),
        (busy, "", "It may be called again in 2s."),
    ];
    for (script, out, expected) in cases {
        let output = Server::start(script).call(&[]);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), out));
        assert!(stderr(&output).contains(expected), "{expected} in {}", stderr(&output));
    }
}

#[test]
fn a_time_limit_leaves_the_task_alone_and_says_how_to_fetch_it() {
    fn works(method: &str, _: usize) -> Result<Value, Value> {
        Ok(task(if method == "tools/call" { "task" } else { "complete" }, "working", json!({})))
    }
    let server = Server::start(works);
    let output = server.call(&["--timeout", "300ms"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&format!("raincheck task get {TASK} --wait")), "{}", stderr(&output));
    assert!(!server.methods().contains(&"tasks/cancel".to_owned()));
}

#[test]
fn a_handle_that_cannot_be_kept_is_shown() {
    let server = Server::start(completes);
    // A directory stands where the file should be.
    std::fs::create_dir_all(server.handles()).unwrap();
    let output = server.call(&[]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "the report\n"));
    assert!(stderr(&output).contains(&format!("write this handle down: {TASK}")), "{}", stderr(&output));
}

/// A form with a field of every type, under the key `it's`.
fn asks(method: &str, _: usize) -> Result<Value, Value> {
    let form = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "title": "Your name", "minLength": 2 },
            "mail": { "type": "string", "format": "email", "description": "Where the report goes" },
            "age": { "type": "integer", "minimum": 18, "maximum": 120 },
            "size": { "type": "string", "oneOf": [{ "const": "s", "title": "Small" }, { "const": "m" }] },
            "tags": { "type": "array", "items": { "type": "string", "enum": ["a", "b"] }, "maxItems": 1 },
            "sure": { "type": "boolean", "default": true },
        },
        "required": ["name", "age"],
    });
    let params = json!({ "mode": "form", "message": "Who are you?", "requestedSchema": form });
    let requests = json!({ "it's": { "method": "elicitation/create", "params": params } });
    Ok(match method {
        "tools/call" => task("task", "working", json!({})),
        "tasks/get" => task("complete", "input_required", json!({ "inputRequests": requests })),
        _ => json!({ "resultType": "complete" }),
    })
}

#[test]
fn a_wrong_answer_is_refused_with_what_to_do_and_nothing_is_sent() {
    let server = Server::start(asks);
    server.call(&["--detach"]);
    let cases = [
        (r#"{"name":"Ann","age":20}"#, "\"action\" is missing"),
        (r#"{"action":"yes","content":{}}"#, "\"action\" is \"accept\", \"decline\" or \"cancel\", not \"yes\""),
        (r#"{"action":"accept"}"#, "\"name\" is required"),
        (r#"{"action":"accept","content":{"name":"Ann"}}"#, "\"age\" is required"),
        (r#"{"action":"accept","content":{"name":7,"age":20}}"#, "\"name\" must be text"),
        (r#"{"action":"accept","content":{"name":"A","age":20}}"#, "\"name\" must be text of 2 characters or more"),
        (r#"{"action":"accept","content":{"name":"Ann","age":2}}"#, "\"age\" must be a whole number, 18 to 120"),
        (r#"{"action":"accept","content":{"name":"Ann","age":20.5}}"#, "\"age\" must be a whole number"),
        (r#"{"action":"accept","content":{"name":"Ann","age":20,"mail":"ann"}}"#, "\"mail\" must be an e-mail address"),
        (r#"{"action":"accept","content":{"name":"Ann","age":20,"size":"l"}}"#, "\"size\" must be one of s (Small), m"),
        (r#"{"action":"accept","content":{"name":"Ann","age":20,"tags":["a","b"]}}"#, "\"tags\" must be a list"),
        (r#"{"action":"accept","content":{"name":"Ann","age":20,"sure":"yes"}}"#, "\"sure\" must be true or false"),
        (r#"{"action":"accept","content":{"name":"Ann","agge":20}}"#, "has no field \"agge\""),
        (r#"{"action":"decline","content":{"name":"Ann"}}"#, "\"content\" goes with \"accept\" only"),
    ];
    for (answer, says) in cases {
        let output = server.run(&["task", "answer", "last", "it's", answer]);
        assert_eq!(output.status.code(), Some(64), "{answer}");
        let text = stderr(&output);
        assert!(text.contains(says) && text.contains("nothing was sent"), "{says} in {text}");
        assert!(text.contains("raincheck task answer"), "{text}");
    }
    let output = server.run(&["task", "answer", "last", "its", r#"{"action":"cancel"}"#]);
    assert!(output.status.code() == Some(1) && stderr(&output).contains("does not ask \"its\""), "{output:?}");
    assert!(!server.methods().contains(&"tasks/update".to_owned()));
    for right in [r#"{"action":"cancel"}"#, r#"{"action":"accept","content":{"name":"Ann","age":20,"tags":[]}}"#] {
        let output = server.run(&["task", "answer", "last", "it's", right]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    assert_eq!(server.methods().iter().filter(|method| *method == "tasks/update").count(), 2);
}

#[test]
fn get_shows_each_field_of_a_form_and_a_command_that_answers_it() {
    let server = Server::start(asks);
    server.call(&["--detach"]);
    let output = server.run(&["task", "get", "last"]);
    let text = stderr(&output);
    let lines = [
        "  name  text of 2 characters or more, required: Your name",
        "  mail  an e-mail address: Where the report goes",
        "  age   a whole number, 18 to 120, required",
        "  size  one of s (Small), m",
        "  tags  a list of any of a, b, at most 1",
        "  sure  true or false, default true",
    ];
    for line in lines {
        assert!(text.lines().any(|found| found == line), "{line:?} in {text}");
    }
    let command = text.lines().find_map(|line| line.trim().strip_prefix("raincheck ")).unwrap();
    let line = format!("{BINARY} {command}");
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", &line]).env("RAINCHECK_HANDLES", server.handles()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
    assert!(server.methods().contains(&"tasks/update".to_owned()));
}

#[test]
fn handles_can_be_forgotten_one_by_one_or_when_their_tasks_have_ended() {
    fn script(method: &str, count: usize) -> Result<Value, Value> {
        let id = format!("{count}{TASK}");
        let mut answer = match (method, count) {
            ("tools/call", _) => task("task", "working", json!({})),
            // The list is made from the newest handles, oldest first.
            ("tasks/get", 3) => task("complete", "completed", json!({ "result": text("the report", false) })),
            ("tasks/get", 4 | 6) => return Err(json!({ "code": -32602, "message": "Task not found" })),
            _ => task("complete", "working", json!({})),
        };
        answer["taskId"] = json!(id);
        Ok(answer)
    }
    let kept = |server: &Server| std::fs::read_to_string(server.handles()).unwrap();
    let server = Server::start(script);
    for _ in 0..3 {
        server.call(&["--detach"]);
    }
    assert_eq!(kept(&server).lines().count(), 3);
    for wrong in [&["task", "forget"][..], &["task", "forget", "last", "--ended"]] {
        assert_eq!(server.run(wrong).status.code(), Some(64), "{wrong:?}");
    }
    assert_eq!(server.run(&["task", "forget", "zzz"]).status.code(), Some(1));
    let output = server.run(&["task", "forget", "--ended"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("1 handle is forgotten, 2 handles are kept"), "{}", stderr(&output));
    // Somebody who sends no credentials finds nothing of those who do.
    assert!(stderr(&output).contains("1 handle is kept that the server does not know"), "{}", stderr(&output));
    let output = server.run(&["task", "forget", "--unknown"]);
    assert!(stderr(&output).contains("1 handle is forgotten, 1 handle is kept"), "{}", stderr(&output));
    assert!(kept(&server).lines().count() == 1 && kept(&server).contains(&format!("2{TASK}")), "{}", kept(&server));
    let output = server.run(&["task", "forget", "2"]);
    assert!(stderr(&output).contains("the handle is forgotten; its task is not touched"), "{}", stderr(&output));
    assert_eq!(kept(&server), "");
    assert_eq!(server.methods().iter().filter(|method| *method == "tasks/cancel").count(), 0);
}

#[test]
fn with_json_a_refusal_is_an_object_on_stdout() {
    let server = Server::start(|_, _| {
        let data = json!({ "reason": "busy", "retryable": true });
        Err(json!({ "code": -31005, "message": "too many calls", "data": data }))
    });
    let output = server.call(&["--json"]);
    let shown: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (output.status.code(), &shown["code"], &shown["data"]["reason"]),
        (Some(1), &json!(-31005), &json!("busy"))
    );
    assert!(stderr(&output).contains("too many calls"), "{}", stderr(&output));
    let output = server.run(&["task", "get", "--json", "none"]);
    let shown: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(shown["message"].as_str().unwrap().contains("no handle"), "{shown}");
    // What was printed already is not printed twice.
    let server = Server::start(|_, _| Ok(text("no", true)));
    let output = server.call(&["--json"]);
    assert_eq!(serde_json::from_str::<Value>(&stdout(&output)).unwrap()["isError"], true);
    assert_eq!(server.call(&[]).stdout, b"no\n");
}

#[test]
fn a_wrong_url_or_duration_is_told_with_a_right_one() {
    for (arguments, says) in [
        (
            &["call", "127.0.0.1:9/mcp", "quick"][..],
            "http:// or https:// is missing in front, as in http://127.0.0.1:8080/mcp",
        ),
        (&["call", "localhost:9/mcp", "quick"], "http:// or https:// is missing in front"),
        (&["admin", "list", "--url", "localhost:9"], "http:// or https:// is missing in front"),
        (&["call", "http://127.0.0.1:9/mcp", "quick", "--timeout", "soon"], "such as \"10s\""),
        (&["call", "http://127.0.0.1:9/mcp", "quick", "--timeout", "5"], "write \"5s\" for seconds"),
        (&["serve", "--url", "localhost:9"], "--url: expected a URL"),
    ] {
        let output = Command::new(BINARY).args(arguments).stdin(Stdio::null()).output().unwrap();
        assert!(!output.status.success() && stderr(&output).contains(says), "{says} in {}", stderr(&output));
    }
}

#[test]
fn a_tool_that_asks_without_a_terminal_is_told_how_it_can() {
    let server = Server::start(|_, _| {
        let data = json!({ "requiredCapabilities": { "elicitation": {} } });
        Err(json!({ "code": -32021, "message": "this request needs elicitation", "data": data }))
    });
    let said = stderr(&server.call(&[]));
    assert!(said.contains("--detach, if its mode is not") && said.contains("raincheck task answer"), "{said}");
    let server = Server::start(|_, _| Ok(text("the client did not offer elicitation", true)));
    assert!(stderr(&server.call(&[])).contains("--detach"));
    let server = Server::start(|_, _| Ok(text("the roof leaks", true)));
    assert!(!stderr(&server.call(&[])).contains("--detach"));
}

#[test]
fn a_question_in_the_place_of_a_handle_is_told_with_what_to_do() {
    fn asks_first(_: &str, _: usize) -> Result<Value, Value> {
        let form = json!({ "type": "object", "properties": {} });
        let params = json!({ "mode": "form", "message": "Who are you?", "requestedSchema": form });
        let requests = json!({ "1": { "method": "elicitation/create", "params": params } });
        Ok(json!({ "resultType": "input_required", "inputRequests": requests, "requestState": "s" }))
    }
    let server = Server::start(asks_first);
    let output = server.call(&["--detach"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1));
    for part in
        ["cannot be given here: Who are you? (elicitation/create)", "mode \"sync\"", "ask = \"first\"", "on a terminal"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(!said.contains("no answer of MCP"), "{said}");
}

#[test]
fn the_beginning_of_a_handle_is_not_enough_for_a_server_and_that_is_said() {
    let server = Server::start(|_, _| Err(json!({ "code": -32602, "message": "Task not found" })));
    let url = server.url.as_str();
    for command in [&["task", "get"][..], &["task", "cancel"]] {
        let said = |handle: &str| stderr(&server.run(&[command, &[handle, "--url", url]].concat()));
        let logged = format!("{}…", &TASK[..14]);
        assert!(said("last").contains("leave --url away"), "{}", said("last"));
        for short in [&TASK[..14], &logged] {
            assert!(said(short).contains("With --url the handle must be whole"), "{short}: {}", said(short));
        }
        assert!(!said(TASK).contains("must be whole"), "{}", said(TASK));
    }
}

#[test]
fn the_tools_of_a_server_are_listed_page_by_page() {
    let server = Server::start(|_, count| {
        let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
        Ok(match count {
            0 => json!({ "resultType": "complete", "tools": [tool("one"), tool("two")], "nextCursor": "2" }),
            1 | 2 => json!({ "resultType": "complete", "tools": [tool("three")] }),
            _ => json!({ "resultType": "complete", "tools": [] }),
        })
    });
    let output = server.run(&["tools", &server.url]);
    assert_eq!(stdout(&output), "one\ntwo\nthree\n", "{}", stderr(&output));
    assert_eq!(server.methods(), ["tools/list", "tools/list"]);
    let three: Value = serde_json::from_str(&stdout(&server.run(&["tools", "--json", &server.url]))).unwrap();
    assert_eq!(three["name"], "three");
    let none = server.run(&["tools", &server.url]);
    assert_eq!((stdout(&none).as_str(), stderr(&none).trim()), ("", "The server has no tools."));
}

#[test]
fn a_list_says_why_a_task_may_be_unknown() {
    let server = Server::start(|method, _| match method {
        "tools/call" => Ok(task("task", "working", json!({}))),
        _ => Err(json!({ "code": -32602, "message": "Task not found" })),
    });
    server.call(&["--detach"]);
    let listed = stdout(&server.run(&["task", "list"]));
    assert!(listed.contains("unknown to its server") && listed.contains("(-H)"), "{listed}");
}
