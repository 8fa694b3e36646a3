//! The binary as a shell sees it: output, exit codes, the demo server over real pipes.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test ends where it fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use serde_json::{Value, json};

const BINARY: &str = env!("CARGO_BIN_EXE_raincheck");

fn run(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn check_prints_every_fault_with_its_path_and_ends_with_64() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad.toml");
    std::fs::write(&file, "[listen]\nhttp = 1\n[[tool]]\nmatch = \"a\"\ntimeout = \"soon\"\n").unwrap();
    let output = run(&["check", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(64));
    let text = stderr(&output);
    for part in ["3 faults", "  listen.http (line 2): ", "  tool[0].timeout (line 5): ", "  server: there is none"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let served = run(&["serve", "--config", file.to_str().unwrap()]);
    assert_eq!((served.status.code(), stderr(&served)), (Some(64), text));
}

#[test]
fn check_finds_the_example_fine_and_says_what_it_does() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/config.example.toml");
    let output = run(&["check", "--config", example]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("demo: http://127.0.0.1:8080/mcp"), "{text}");
}

#[test]
fn advise_lets_itself_in_with_the_token_of_the_config() {
    let directory = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let file = directory.path().join("own.toml");
    let address = listener.local_addr().unwrap();
    let server = "[[server]]\nname = \"a\"\nurl = \"http://127.0.0.1:9/mcp\"\n";
    std::fs::write(&file, format!("[admin]\nhttp = \"{address}\"\ntoken = \"s3cret\"\n{server}")).unwrap();
    let admin = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let lines = BufReader::new(socket.try_clone().unwrap()).lines();
        let head: Vec<String> = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
        write!(socket, "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 12\r\n\r\n{{\"tools\":[]}}").unwrap();
        head.join("\n").to_lowercase()
    });
    let output = run(&["advise", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(admin.join().unwrap().contains("authorization: bearer s3cret"));
}

#[test]
fn a_call_to_nobody_fails_and_says_why() {
    let directory = tempfile::tempdir().unwrap();
    // A port that was free a moment ago.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = Command::new(BINARY)
        .args(["call", &format!("http://{address}/mcp?key=s3cret"), "quick"])
        .env("RAINCHECK_HANDLES", directory.path().join("handles"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let says = format!("the server at http://{address}/mcp cannot be reached");
    assert!(stderr(&output).contains(&says) && !stderr(&output).contains("s3cret"), "{}", stderr(&output));
    for bad in ["{", "[]", "quick"] {
        let output = run(&["call", "http://127.0.0.1:9/mcp", "quick", bad]);
        assert_eq!(output.status.code(), Some(64), "{bad}");
        assert_eq!(stderr(&output).matches("JSON").count(), 1, "{}", stderr(&output));
    }
    let twice = "{\"a\":1,\"a\":2}";
    assert_eq!(run(&["call", "http://127.0.0.1:9/mcp", "quick", twice]).status.code(), Some(64));
}

#[test]
fn a_port_in_use_is_told_with_what_names_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let directory = tempfile::tempdir().unwrap();
    let (file, store) = (directory.path().join("x.toml"), directory.path().join("store"));
    let text = format!("[listen]\nhttp = \"{address}\"\n[[server]]\nname = \"a\"\nurl = \"http://127.0.0.1:9/mcp\"\n");
    std::fs::write(&file, text).unwrap();
    let (file, store) = (file.to_str().unwrap(), store.to_str().unwrap());
    let url = ["serve", "--store", store, "--url", "http://127.0.0.1:9/mcp"];
    let by_flag = [&url[..], &["--listen", &address]].concat();
    let by_file = ["serve", "--store", store, "--config", file];
    let set = ("RAINCHECK_LISTEN_HTTP", address.as_str());
    let cases = [
        (by_flag.as_slice(), None, "give --listen another address"),
        (by_file.as_slice(), None, "change listen.http in the configuration, or give --listen another address"),
        (url.as_slice(), Some(set), "change RAINCHECK_LISTEN_HTTP, or give --listen another address"),
    ];
    for (arguments, variable, says) in cases {
        let output = Command::new(BINARY).args(arguments).envs(variable).stdin(Stdio::null()).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(69), "{text}");
        assert!(text.contains(&format!("cannot listen on {address}")), "{text}");
        assert!(text.contains(&format!("stop what listens there, or {says}")), "{says} in {text}");
    }
}

#[test]
fn a_rust_log_that_cannot_be_read_is_told_and_not_used() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let serve = ["serve", "--store", store.to_str().unwrap(), "--url", "http://127.0.0.1:9/mcp", "--listen", &address];
    let cases: [(&str, &[u8], &str); 4] = [
        ("info", b"inof", "\"inof\" is no level; did you mean \"info\"?"),
        ("info", b"raincheck:debug", "\"raincheck:debug\" is no level; did you mean \"raincheck=debug\"?"),
        ("info", b"\xff", "it is not UTF-8"),
        // It is told even where nothing else is.
        ("off", b"debgu", "did you mean \"debug\"?"),
    ];
    for (level, written, says) in cases {
        let mut command = Command::new(BINARY);
        command.args(serve).env("RAINCHECK_LOG_LEVEL", level).env("RUST_LOG", std::ffi::OsStr::from_bytes(written));
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(69), "{text}");
        let told: Vec<_> = text.lines().filter(|line| line.contains("RUST_LOG")).collect();
        assert!(matches!(told.as_slice(), [line] if line.contains(says)), "{says} in {text}");
        assert!(text.contains("cannot listen on"), "the default level is used: {text}");
    }
}

#[test]
fn a_call_over_tls_to_a_server_without_it_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/mcp", plain.local_addr().unwrap());
    // As HTTP servers do with what is no HTTP.
    std::thread::spawn(move || {
        for client in plain.incoming() {
            let _ = client.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
        }
    });
    let handles = directory.path().join("handles");
    let output = Command::new(BINARY).args(["call", &url, "quick"]).env("RAINCHECK_HANDLES", handles).output().unwrap();
    assert!(stderr(&output).contains("is it http:// in place of https://?"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn every_command_ends_with_the_code_of_what_went_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let (handles, none) = (directory.path().join("handles"), directory.path().join("none"));
    let table: [(&[&str], i32, &str); 9] = [
        (&["admin", "list", "--token-env", "NO_SUCH"], 64, "the variable NO_SUCH (--token-env) is not set"),
        (&["admin", "list", "--url", "127.0.0.1:9"], 64, "http:// or https:// is missing"),
        (&["admin", "list", "--url", "http://127.0.0.1:9"], 1, "no answer of http://127.0.0.1:9"),
        (&["advise", "--store", none.to_str().unwrap()], 73, "there is no store in"),
        (&["task", "get", "last"], 1, "--detach makes one"),
        (&["serve", "--url", "127.0.0.1:9/mcp"], 64, "--url: expected a URL"),
        (&["serve", "--url", "http://127.0.0.1:9/mcp", "--listen", "8080"], 64, "write \"127.0.0.1:8080\""),
        (&["serve", "--", "npx -y server"], 64, "the command behind --: is a list"),
        (&["stdio", "--", ""], 64, "the command behind --: must not be empty"),
    ];
    for (arguments, code, says) in table {
        let output = Command::new(BINARY).args(arguments).env("RAINCHECK_HANDLES", &handles).output().unwrap();
        let text = stderr(&output);
        assert!(output.status.code() == Some(code) && text.contains(says), "{arguments:?}: {output:?}");
    }
}

/// Serves pages for browsers, and nothing else; until the test ends.
fn pages() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            std::thread::spawn(move || {
                let lines = BufReader::new(socket.try_clone().unwrap()).lines();
                let _ = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).count();
                let page = "content-type: text/html\r\ncontent-length: 0\r\nconnection: close";
                let _ = write!(socket, "HTTP/1.1 404 Not Found\r\n{page}\r\n\r\n");
            });
        }
    });
    address
}

#[test]
fn a_wrong_path_is_told_at_the_start_and_by_check() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("http://{}/mpc?key=s3cret", pages());
    let says = "was refused with status 404 Not Found";
    let file = directory.path().join("wrong.toml");
    std::fs::write(&file, format!("[[server]]\nname = \"a\"\nurl = \"{url}\"\n")).unwrap();
    let checked = run(&["check", "--config", file.to_str().unwrap()]);
    let text = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(0), "{text}");
    let note =
        text.lines().find(|line| line.starts_with("note      the server \"a\": ")).unwrap_or_else(|| panic!("{text}"));
    assert!(note.contains(says) && note.contains("Most servers are at /mcp") && !text.contains("s3cret"), "{text}");
    for (at, command) in [("serve", &["serve", "--listen", "127.0.0.1:0"][..]), ("stdio", &["stdio"])] {
        let store = directory.path().join(at);
        let mut child = Command::new(BINARY)
            .args(command)
            .args(["--url", &url, "--store"])
            .arg(&store)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env_remove("RUST_LOG")
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut before = Vec::new();
        let told =
            lines.inspect(|line| before.push(line.clone())).find(|line| line.contains("calls will fail for now"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(told.is_some_and(|told| told.contains(says)), "{at}: {before:?}");
    }
}

/// The demo server, with a client that has shaken hands.
struct Demo {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Demo {
    fn start() -> Self {
        let mut child =
            Command::new(BINARY).arg("demo-server").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut demo = Self { child, input, output };
        let params =
            json!({ "protocolVersion": "2025-06-18", "capabilities": { "elicitation": {} }, "clientInfo": {} });
        let hello = demo.request(0, "initialize", params);
        assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
        demo.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        demo
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The answer; questions on the way are answered, progress is skipped.
    fn request(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message = self.receive();
            if message["method"] == "elicitation/create" {
                let content = json!({ "action": "accept", "content": { "name": "Ann" } });
                self.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": content }));
            } else if message.get("method").is_none() {
                assert_eq!(message["id"], id);
                return message;
            }
        }
    }
}

#[test]
fn the_demo_server_runs_every_tool_that_it_lists() {
    let mut demo = Demo::start();
    let listed = demo.request(1, "tools/list", json!({}));
    let names: Vec<_> = listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(json!(names), json!(["slow_report", "batch", "failing", "broken", "ask", "quick"]));
    let cases = [
        ("slow_report", json!({ "seconds": 0.1, "rows": 3 }), "The report is ready: 3 rows in 0.1 seconds."),
        ("batch", json!({ "items": ["a"] }), "a: done"),
        ("failing", json!({}), "The roof leaks. This tool always fails."),
        ("ask", json!({}), "Hello, Ann!"),
        ("quick", json!({}), "It is raining."),
    ];
    for (id, (tool, arguments, expected)) in (2..).zip(cases) {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": id } });
        let answer = demo.request(id, "tools/call", params);
        assert_eq!(answer["result"]["content"][0]["text"], expected);
        assert_eq!(answer["result"]["isError"], tool == "failing");
    }
    assert_eq!(demo.request(9, "tools/call", json!({ "name": "broken" }))["error"]["code"], -32603);
    // The end of stdin ends it, even with a call running.
    demo.send(&json!({ "jsonrpc": "2.0", "id": 10, "method": "tools/call", "params": { "name": "slow_report" } }));
    drop(demo.input.take());
    assert_eq!(demo.child.wait().unwrap().code(), Some(0));
}

/// A command that keeps its handles in `folder`.
fn with_handles(folder: &std::path::Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).env("RAINCHECK_HANDLES", folder.join("handles.jsonl")).stdin(Stdio::null());
    command
}

fn keep(folder: &std::path::Path, urls: &[&str]) {
    let line = |(at, url): (usize, &&str)| {
        json!({ "at": "2026-07-28T10:30:00Z", "url": url, "tool": "t", "taskId": format!("task{at}") }).to_string()
            + "\n"
    };
    let lines: String = urls.iter().enumerate().map(line).collect();
    std::fs::write(folder.join("handles.jsonl"), lines).unwrap();
}

/// Answers the next request.
fn answer(listener: &TcpListener, status: &str, body: &Value) {
    answer_with(listener, status, "", body);
}

/// The same with another header.
fn answer_with(listener: &TcpListener, status: &str, header: &str, body: &Value) {
    let (mut socket, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(socket.try_clone().unwrap());
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    let (head, body) = ("content-type: application/json\r\nconnection: close", body.to_string());
    let head = format!("{head}{header}");
    write!(socket, "HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
}

#[test]
fn a_kept_handle_is_waited_for_while_its_proxy_is_away() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("http://{address}/mcp");
    keep(directory.path(), &[&url]);
    for at_once in [&["task", "get", "last"][..], &["task", "get", "task0", "--wait", "--url", &url]] {
        let output = with_handles(directory.path(), at_once).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{at_once:?}: {}", stderr(&output));
    }
    let mut command = with_handles(directory.path(), &["task", "get", "last", "--wait"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("the task may go on, asking again for 5m at most"), "{said}");
    let listener = TcpListener::bind(address).unwrap();
    let result = json!({ "content": [{ "type": "text", "text": "the report" }] });
    let task = json!({
        "resultType": "complete", "taskId": "task0", "status": "completed", "createdAt": "2026-07-28T10:30:00Z",
        "lastUpdatedAt": "2026-07-28T10:30:00Z", "ttlMs": null, "pollIntervalMs": 50, "result": result,
    });
    answer(&listener, "200 OK", &json!({ "jsonrpc": "2.0", "id": 1, "result": task }));
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"the report\n".as_slice()));
}

#[test]
fn a_server_that_says_when_to_come_back_is_left_alone_until_then() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    keep(directory.path(), &[&url]);
    let command = ["task", "get", "last", "--wait"];
    let child = with_handles(directory.path(), &command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let task = json!({
        "resultType": "complete", "taskId": "task0", "status": "completed", "createdAt": "2026-07-28T10:30:00Z",
        "lastUpdatedAt": "2026-07-28T10:30:00Z", "ttlMs": null, "pollIntervalMs": 1, "result": { "content": [] },
    });
    let mut working = task.clone();
    working["status"] = "working".into();
    answer(&listener, "200 OK", &json!({ "jsonrpc": "2.0", "id": 1, "result": working }));
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        answer_with(&listener, status, "\r\nretry-after: 2", &json!("no"));
        let refused = std::time::Instant::now();
        answer(&listener, "200 OK", &json!({ "jsonrpc": "2.0", "id": 1, "result": working }));
        assert!(refused.elapsed() >= std::time::Duration::from_secs(2), "{status}: after {:?}", refused.elapsed());
    }
    answer(&listener, "200 OK", &json!({ "jsonrpc": "2.0", "id": 1, "result": task }));
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn handles_are_told_apart_by_their_whole_url_and_can_be_forgotten_with_a_server_that_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let [one, two] = ["one", "two"].map(|name| format!("{origin}/{name}/mcp"));
    keep(directory.path(), &[&one, &two, "http://127.0.0.1:1/mcp"]);
    let closed = std::thread::spawn(move || {
        let data = json!({ "reason": "unauthorized", "retryable": false });
        let error = json!({ "code": -31006, "message": "who are you?", "data": data });
        for _ in 0..4 {
            answer(&listener, "401 Unauthorized", &json!({ "jsonrpc": "2.0", "id": 1, "error": error }));
        }
        listener
    });
    let run = |arguments: &[&str]| with_handles(directory.path(), arguments).output().unwrap();
    let listed = |url: &str| {
        let output = run(&["task", "list", "--url", url]);
        String::from_utf8(output.stdout).unwrap().lines().map(|line| line[..5].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&one), ["task0"]);
    assert_eq!(listed(&origin), ["task0", "task1"]);
    let said = stderr(&run(&["task", "forget", "--unknown", "--url", &two]));
    assert!(said.contains("1 handle is kept that the server tells nobody of without credentials"), "{said}");
    drop(closed.join().unwrap());
    let said = stderr(&run(&["task", "forget", "--unknown"]));
    assert!(said.contains("(--server http://127.0.0.1:1 forgets them)"), "{said}");
    assert_eq!(run(&["task", "forget", "--unknown", "--server", &origin]).status.code(), Some(64));
    let said = stderr(&run(&["task", "forget", "--server", &origin]));
    assert!(said.contains("2 handles are forgotten, 1 handle is kept"), "{said}");
    let left = std::fs::read_to_string(directory.path().join("handles.jsonl")).unwrap();
    assert!(left.lines().count() == 1 && left.contains("task2"), "{left}");
}

#[test]
fn an_operator_is_let_in_with_the_token_of_the_config() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = directory.path().join("own.toml");
    let address = listener.local_addr().unwrap();
    // The proxy has this variable, whoever asks after its tasks has not.
    let owner = "[[owner.token]]\nname = \"ann\"\ntoken_env = \"RAINCHECK_TEST_NOT_SET\"\n";
    let server = "[[server]]\nname = \"a\"\nurl = \"http://127.0.0.1:9/mcp\"\n";
    std::fs::write(&file, format!("[admin]\nhttp = \"{address}\"\ntoken = \"s3cret\"\n{owner}{server}")).unwrap();
    let admin = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let lines = BufReader::new(socket.try_clone().unwrap()).lines();
        let head: Vec<String> = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
        write!(socket, "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 11\r\n\r\n{{\"held\":[]}}").unwrap();
        head.join("\n").to_lowercase()
    });
    let output = run(&["admin", "list", "--state", "held", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(admin.join().unwrap().contains("authorization: bearer s3cret"));
    std::fs::write(&file, server).unwrap();
    let output = run(&["admin", "list", "--config", file.to_str().unwrap()]);
    assert!(output.status.code() == Some(64) && stderr(&output).contains("has no [admin]"), "{}", stderr(&output));
}
