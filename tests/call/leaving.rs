//! A call that is left before its handle is here: what was on its way is not lost.

use std::io::Read;
use std::net::Shutdown;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::{Script, Server, TASK, runs_on, stderr, task};

/// Answers the first request when its client has left, as a server whose answer was on its way; then goes on as `script`.
fn answers_late(script: Script) -> (Server, Receiver<()>) {
    let (asked, was_asked) = channel();
    let server = Server::start_with(script, move |socket, count| {
        if count == 0 {
            asked.send(()).unwrap();
            assert_eq!(socket.read(&mut [0; 8]).unwrap(), 0, "the client says no more");
        }
    });
    (server, was_asked)
}

fn interrupt(child: &Child) {
    send(child, Signal::SIGINT);
}

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

/// The signals that end the client, and the exit code of each.
const SIGNALS: [(Signal, i32); 2] = [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)];

#[test]
fn a_signal_cancels_the_task() {
    for (signal, code) in SIGNALS {
        let server = Server::start(runs_on);
        let arguments = ["call", &server.url, "slow"];
        let child = server.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut methods = Vec::new();
        while methods.last().is_none_or(|method| method != "tasks/get") {
            methods.push(server.seen.recv().unwrap().0);
        }
        send(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(server.methods().contains(&"tasks/cancel".to_owned()));
        assert!(stderr(&output).contains("interrupted; the task is cancelled"), "{}", stderr(&output));
    }
}

#[test]
fn a_handle_that_was_on_its_way_at_ctrl_c_is_kept_and_its_task_cancelled() {
    for detach in [false, true] {
        let (server, asked) = answers_late(|method, _| {
            Ok(match method {
                "tools/call" => task("task", "working", json!({})),
                "tasks/get" => task("complete", "cancelled", json!({})),
                _ => json!({ "resultType": "complete" }),
            })
        });
        let mut command = server.command(&["call", &server.url, "slow"]);
        command.args(detach.then_some("--detach")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        asked.recv().unwrap();
        interrupt(&child);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
        assert!(stderr(&output).contains("interrupted; the task is cancelled"), "{}", stderr(&output));
        assert_eq!(server.methods(), ["tools/call", "tasks/cancel", "tasks/get"]);
        assert!(std::fs::read_to_string(server.handles()).unwrap().contains(TASK));
    }
}

#[test]
fn a_handle_that_was_on_its_way_when_the_time_was_up_is_kept_and_told() {
    let (server, asked) = answers_late(runs_on);
    let mut command = server.command(&["call", &server.url, "slow", "--timeout", "300ms"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    asked.recv().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!("raincheck task get {TASK} --wait")), "{}", stderr(&output));
    assert!(std::fs::read_to_string(server.handles()).unwrap().contains(TASK));
}

#[test]
fn a_signal_before_there_is_an_answer_says_what_becomes_of_the_call() {
    for ((signal, code), (key, says)) in
        SIGNALS.into_iter().zip([(None, "the call was cancelled"), (Some("--key=k"), "repeat it with the same --key")])
    {
        // Its answer comes too late for anybody.
        let (asked, was_asked) = channel();
        let server = Server::start_with(runs_on, move |socket, _| {
            asked.send(()).unwrap();
            assert_eq!(socket.read(&mut [0; 8]).unwrap(), 0, "the client says no more");
            socket.shutdown(Shutdown::Both).unwrap();
        });
        let mut command = server.command(&["call", &server.url, "slow"]);
        let child = command.args(key).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        was_asked.recv().unwrap();
        send(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
        assert!(!server.handles().exists());
    }
}

#[test]
fn a_signal_ends_a_wait_for_a_task_and_the_task_goes_on() {
    for (signal, code) in SIGNALS {
        let server = Server::start(runs_on);
        let detached = server.command(&["call", &server.url, "slow", "--detach"]).output().unwrap();
        assert!(detached.status.success(), "{}", stderr(&detached));
        let wait = ["task", "get", "--wait", "last"];
        let child = server.command(&wait).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The second look comes from the wait.
        let mut looks = 0;
        while looks < 2 {
            looks += usize::from(server.seen.recv().unwrap().0 == "tasks/get");
        }
        send(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains("interrupted; the task goes on"), "{}", stderr(&output));
        assert!(!server.methods().contains(&"tasks/cancel".to_owned()));
    }
}
