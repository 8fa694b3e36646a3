//! The binary as a shell sees it: output, exit codes, the demo server over real pipes.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test ends where it fails")]

use std::io::{BufRead, BufReader, Write};
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
