//! Where tasks are kept: for one host after the other, for several at once, for those who only look.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::host::{Connection, Machine, modern};

/// Makes a task that has ended; its handle.
async fn ended_task(client: &mut Connection, machine: &Machine, value: u64) -> Value {
    let before = machine.ledger("hold");
    let id = client.call("hold", json!({ "value": value })).await;
    let handle = client.answer(&id).await["result"]["taskId"].clone();
    assert!(handle.is_string());
    machine.noted("hold", before + 1).await;
    let released = client.call("release", json!({})).await;
    client.answer(&released).await;
    client.until(&handle, "completed").await;
    handle
}

/// A process whose host has left while a task runs, as soon as it says by a note that its store will be free; and the
/// handle of the task.
async fn left_running(machine: &Machine) -> (Connection, Value) {
    let before = machine.ledger("hold");
    let mut client = machine.start(&["--after", "1ms"]);
    let id = client.call("hold", json!({})).await;
    let handle = client.answer(&id).await["result"]["taskId"].clone();
    // A task that has not begun is for the next process.
    machine.noted("hold", before + 1).await;
    client.end_input();
    crate::signs::files("the note", machine.folder.path(), crate::PATIENCE, || machine.stores().len() == 2).await;
    (client, handle)
}

#[tokio::test]
async fn handles_outlive_the_host() {
    let machine = Machine::new();
    let mut client = machine.start(&["--after", "1ms"]);
    let handle = ended_task(&mut client, &machine, 7).await;
    client.close().await;
    let mut client = machine.start(&[]);
    assert_eq!(client.task(&handle).await["result"]["value"], 7);
    client.close().await;
    assert_eq!(machine.stores().len(), 1);
}

#[tokio::test]
async fn two_windows_on_one_server_do_not_get_into_each_others_way() {
    let machine = Machine::new();
    let (mut one, mut two) = (machine.start(&["--after", "1ms"]), machine.start(&["--after", "1ms"]));
    let first = ended_task(&mut one, &machine, 1).await;
    let second = ended_task(&mut two, &machine, 2).await;
    assert_eq!(one.task(&first).await["result"]["value"], 1);
    assert_eq!(two.task(&second).await["result"]["value"], 2);
    // A handle of the other window is an unknown one.
    assert_eq!(one.task(&second).await["error"]["code"], -32602);
    assert_eq!(machine.stores().len(), 2);
    one.signal(Signal::SIGKILL);
    one.ended().await;
    let mut again = machine.start(&[]);
    assert_eq!(again.task(&first).await["result"]["value"], 1);
    again.close().await;
    two.close().await;
    assert_eq!(machine.stores().len(), 2);
}

#[tokio::test]
async fn a_probe_holds_no_store_and_its_end_is_nothing_to_the_real_one() {
    let machine = Machine::new();
    let mut probe = machine.start(&[]);
    assert!(probe.request("server/discover", modern(json!({}))).await["result"].is_object());
    assert_eq!(machine.stores().len(), 0);
    let mut real = machine.start(&["--after", "1ms"]);
    assert!(real.request("server/discover", modern(json!({}))).await["result"].is_object());
    let handle = ended_task(&mut real, &machine, 7).await;
    probe.signal(Signal::SIGKILL);
    probe.ended().await;
    assert_eq!(real.task(&handle).await["result"]["value"], 7);
    real.close().await;
    assert_eq!(machine.stores().len(), 1);
}

#[tokio::test]
async fn nothing_is_started_for_a_client_that_asks_nothing() {
    let machine = Machine::new();
    machine.start(&[]).close().await;
    assert_eq!((machine.ledger("start"), machine.stores().len()), (0, 0));
}

#[tokio::test]
async fn a_host_that_starts_again_waits_for_the_store_that_is_about_to_be_given_back() {
    let machine = Machine::new().env("RAINCHECK_SHUTDOWN_GRACE", "300ms");
    let (mut client, handle) = left_running(&machine).await;
    let mut next = machine.start(&[]);
    let task = next.task(&handle).await;
    assert_eq!(task["status"], "failed", "{task}");
    client.ended().await;
    next.close().await;
    assert_eq!(machine.stores().len(), 1);
}

#[tokio::test]
async fn while_the_store_of_before_is_waited_for_a_host_learns_what_the_server_is() {
    let machine = Machine::new().env("RAINCHECK_DEFAULTS_FALLBACK", "handle");
    let (mut client, handle) = left_running(&machine).await;
    let mut next = machine.start(&[]);
    let hello =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "h", "version": "1" } });
    assert!(next.request("initialize", hello).await["result"]["serverInfo"].is_object());
    next.notify("notifications/initialized", json!({})).await;
    let list = next.request("tools/list", json!({})).await;
    let has = |name: &str| list["result"]["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == name);
    assert!(has("check_job"), "{list}");
    let check = next.ask("tools/call", json!({ "name": "check_job", "arguments": { "job": handle } })).await;
    next.says("its store is waited for").await;
    // The first one and its note: no other store was taken, and the first process is still there.
    assert_eq!(machine.stores().len(), 2);
    client.signal(Signal::SIGTERM);
    client.ended().await;
    let checked = next.answer(&check).await["result"].clone();
    assert_eq!(checked["_meta"]["dev.raincheck/reason"], "outcome_unknown", "{checked}");
    assert!(next.request("tools/list", json!({})).await["result"]["tools"].is_array());
    next.close().await;
    assert_eq!(machine.stores().len(), 1);
}

#[tokio::test]
async fn a_handle_that_another_window_may_keep_is_not_said_not_to_exist() {
    let machine = Machine::new().env("RAINCHECK_DEFAULTS_FALLBACK", "handle");
    let (mut one, mut two) = (machine.start(&["--after", "1ms"]), machine.start(&["--after", "1ms"]));
    let handle = ended_task(&mut one, &machine, 1).await;
    ended_task(&mut two, &machine, 2).await;
    for tool in ["check_job", "cancel_job", "answer_job"] {
        let id = two.call(tool, json!({ "job": handle })).await;
        let said = two.answer(&id).await["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        assert!(said.contains("another Raincheck of this host") && said.contains("ask again in 30 s"), "{said}");
    }
    one.close().await;
    let id = two.call("check_job", json!({ "job": handle })).await;
    let said = two.answer(&id).await["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(said.starts_with("There is no such job: "), "{said}");
    two.close().await;
}

#[tokio::test]
async fn a_chosen_store_that_is_held_is_a_clear_error_until_it_is_free() {
    let machine = Machine::new();
    let store = machine.folder.path().join("chosen").to_str().unwrap().to_owned();
    let flags = ["--store", &store, "--after", "1ms"];
    let mut one = machine.start(&flags);
    let handle = ended_task(&mut one, &machine, 1).await;
    let mut two = machine.start(&flags);
    let id = two.call("echo", json!({})).await;
    let refused = two.answer(&id).await;
    assert_eq!(refused["error"]["data"]["reason"], "store", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("in use by process"), "{refused}");
    assert_eq!(machine.ledger("echo"), 0);
    one.close().await;
    assert_eq!(two.task(&handle).await["result"]["value"], 1);
    two.close().await;
}

#[tokio::test]
async fn a_damaged_store_does_not_keep_a_host_from_its_server() {
    let machine = Machine::new();
    let mut client = machine.start(&["--after", "1ms"]);
    ended_task(&mut client, &machine, 1).await;
    client.close().await;
    std::fs::write(machine.stores()[0].join("db"), "x").unwrap();
    let mut client = machine.start(&["--after", "1ms"]);
    ended_task(&mut client, &machine, 2).await;
    client.close().await;
    assert_eq!(machine.stores().len(), 2);
}

#[tokio::test]
async fn a_configuration_chooses_the_server_by_name() {
    let machine = Machine::new();
    let server = |name: &str| {
        let command = toml::Value::try_from(crate::scripted::command()).unwrap();
        format!("[[server]]\nname = \"{name}\"\ncommand = {command}\n")
    };
    let path = machine.file("config.toml", &(server("one") + &server("two")));
    let path = path.to_str().unwrap();
    let start = |more: &[&str]| {
        let arguments: Vec<_> = ["stdio", "--config", path].iter().chain(more).map(|&part| part.to_owned()).collect();
        machine.start_with(&arguments)
    };
    let mut unnamed = start(&[]);
    assert_eq!(unnamed.ended().await.code(), Some(64));
    unnamed.says("--server: one, two").await;
    let mut wrong = start(&["--server", "three"]);
    assert_eq!(wrong.ended().await.code(), Some(64));
    let mut two = start(&["--server", "two"]);
    let id = two.call("echo", json!({})).await;
    assert!(two.answer(&id).await["result"].is_object());
    two.close().await;
}

#[tokio::test]
async fn serve_does_the_same_if_the_configuration_says_so() {
    let machine = Machine::new();
    let command = toml::Value::try_from(crate::scripted::command()).unwrap();
    let text = format!("[listen]\nstdio = true\n[[server]]\nname = \"one\"\ncommand = {command}\n");
    let path = machine.file("config.toml", &text);
    let mut client = machine.start_with(&["serve", "--config", path.to_str().unwrap()].map(str::to_owned));
    let id = client.call("echo", json!({})).await;
    assert!(client.answer(&id).await["result"].is_object());
    client.close().await;
}
