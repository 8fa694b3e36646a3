//! Handles in words, and the tools that check and cancel.

use std::time::Duration;

use raincheck::config::{Dedupe, Fallback, Mode, ToolPolicy};
use raincheck::protocol::{Failure, Outcome, Reason, Retry, RpcError};
use raincheck::store::Filter;
use raincheck::task::Canceller;
use serde_json::json;
use tokio::time::timeout;

use crate::support::calls::{call, shown, text};
use crate::support::layer::{PATIENCE, Proxy};
use crate::{BOTH, Kind, LIST, at_once, in_words, job, next_call, started, tool, tool_of, words};

#[tokio::test]
async fn a_slow_call_is_answered_with_a_handle_and_its_result_comes_unchanged() {
    let spelled = r#"{"content": [{"type":"text","text":"rows"}],"structuredContent":{"n":1.0,"big":9007199254740995},"isError":true,"zzz":1E2}"#;
    for kind in BOTH {
        let mut proxy = Proxy::new(ToolPolicy { hold: Duration::from_millis(500), ..in_words() });
        let (handle, sender) = started(&mut proxy, kind).await;
        assert_eq!(handle["isError"], false, "{kind:?}");
        let expected = if matches!(kind, Kind::Modern) { json!("complete") } else { json!(null) };
        assert_eq!(handle["resultType"], expected);
        assert_eq!(handle["_meta"]["dev.raincheck/status"], "working");
        assert!(handle.get("structuredContent").is_none());
        for part in ["`check_job`", "`cancel_job`", "Do not call `export` again"] {
            assert!(words(&handle).contains(part), "{handle}");
        }
        let id = job(&handle);
        let working = proxy.value(tool(kind, "check_job", &json!({ "job": id, "wait_seconds": 0 }))).await;
        assert_eq!((&working["isError"], &working["_meta"]["dev.raincheck/taskId"]), (&json!(false), &json!(id)));
        assert!(words(&working).contains("has not ended"), "{working}");
        // The same task, for a client that has the extension.
        assert_eq!(proxy.get(&id).await["status"], "working");
        sender.done(Outcome::Result(text(spelled)));
        proxy.ended(&id).await;
        let outcome = proxy.ask(tool(kind, "check_job", &json!({ "job": id }))).await;
        let Outcome::Result(result) = outcome else { panic!("{outcome:?}") };
        assert_eq!(result.as_str(), spelled, "{kind:?}");
        assert_eq!(proxy.get(&id).await["status"], "completed");
        assert!(proxy.sent.try_recv().is_err(), "something more was sent");
    }
}

#[tokio::test]
async fn a_handle_says_how_long_a_check_waits() {
    let table = [
        (Duration::from_hours(1), "20 seconds at most"),
        (Duration::from_secs(7), "7 seconds at most"),
        (Duration::from_secs(1), "1 second at most"),
        (Duration::from_millis(1500), "1.5 seconds at most"),
        // Here the longest wait is ours.
        (Duration::ZERO, "20 seconds at most"),
    ];
    for (hold, says) in table {
        let mut proxy = Proxy::new(ToolPolicy { hold, ..at_once() });
        let (handle, _sender) = started(&mut proxy, Kind::Legacy).await;
        assert!(words(&handle).contains(&format!("It waits a while, {says}, and returns")), "{hold:?}: {handle}");
    }
}

#[tokio::test]
async fn a_quick_call_is_answered_as_ever() {
    let mut proxy = Proxy::new(ToolPolicy { hold: Duration::from_hours(1), ..in_words() });
    let reply = proxy.send_in_background(tool(Kind::Legacy, "export", &json!({})));
    let (_, sender) = next_call(&mut proxy, LIST).await;
    sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
    assert_eq!(reply.await.unwrap(), json!({ "content": [] }));
}

#[tokio::test]
async fn mode_task_gives_the_handle_before_the_server_answers() {
    for kind in BOTH {
        let mut proxy = Proxy::new(at_once());
        let (handle, sender) = started(&mut proxy, kind).await;
        sender.done(Outcome::Error(RpcError::new(-32000, "no rows")));
        let failed = proxy.value(tool(kind, "check_job", &json!({ "job": job(&handle) }))).await;
        assert_eq!(failed["isError"], true);
        assert!(words(&failed).contains("no rows"), "{failed}");
    }
}

#[tokio::test]
async fn a_job_that_never_began_says_when_to_call_the_tool_again() {
    let mut proxy = Proxy::new(at_once());
    let (handle, sender) = started(&mut proxy, Kind::Legacy).await;
    let away = Failure::new(Reason::NotStarted, "the server is away", Retry::After(Duration::from_secs(7)));
    sender.done(Outcome::Failed(away));
    let failed = proxy.value(tool(Kind::Legacy, "check_job", &json!({ "job": job(&handle) }))).await;
    assert!(words(&failed).ends_with("is away. The tool may be called again in 7s."), "{failed}");
    let facts =
        ["reason", "retryable", "retryAfterMs"].map(|name| failed["_meta"][format!("dev.raincheck/{name}")].clone());
    assert_eq!(facts, [json!("not_started"), json!(true), json!(7000)]);
    let structured = &failed["structuredContent"];
    assert_eq!((&structured["status"], &structured["message"]), (&json!("failed"), &json!(words(&failed))));
    let data = json!({ "reason": "not_started", "retryable": true, "retryAfterMs": 7000 });
    let error = json!({ "code": -31002, "message": "the server is away", "data": data });
    assert_eq!(structured["error"], error);
}

#[tokio::test]
async fn a_check_says_all_of_the_servers_error() {
    let spelled = r#"{"code":-32042,"message":"Log in first","data":{"elicitations":[{"mode":"url","url":"https://e.example/x"}],"n":1.0}}"#;
    for kind in BOTH {
        let mut proxy = Proxy::new(at_once());
        let (handle, sender) = started(&mut proxy, kind).await;
        sender.done(Outcome::Error(RpcError::from_server(text(spelled)).unwrap()));
        let Outcome::Result(failed) = proxy.ask(tool(kind, "check_job", &json!({ "job": job(&handle) }))).await else {
            panic!()
        };
        assert!(failed.as_str().contains(&format!(r#""error":{spelled}"#)), "{failed:?}");
        let failed = failed.read().unwrap();
        assert!(words(&failed).contains("Log in first") && words(&failed).contains("https://e.example/x"), "{failed}");
        assert_eq!((&failed["isError"], &failed["structuredContent"]["status"]), (&json!(true), &json!("failed")));
    }
}

#[tokio::test]
async fn a_check_returns_as_soon_as_the_job_has_ended() {
    // The job may take an hour, and so may the check.
    let mut proxy = Proxy::new(at_once());
    let (handle, sender) = started(&mut proxy, Kind::Legacy).await;
    let check = tool(Kind::Legacy, "check_job", &json!({ "job": job(&handle), "wait_seconds": 3000 }));
    let mut waiting = proxy.send(check).await.in_background();
    let early = timeout(Duration::from_millis(100), waiting.next()).await;
    assert!(early.is_err(), "it did not wait: {early:?}");
    sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
    let outcome = timeout(PATIENCE, waiting.outcome()).await.expect("it waits on");
    assert_eq!(shown(outcome), json!({ "content": [] }));
}

#[tokio::test]
async fn a_check_waits_no_longer_than_a_host() {
    let mut proxy = Proxy::new(ToolPolicy { hold: Duration::from_millis(50), ..in_words() });
    let (handle, _sender) = started(&mut proxy, Kind::Legacy).await;
    let working =
        proxy.value(tool(Kind::Legacy, "check_job", &json!({ "job": job(&handle), "wait_seconds": "900" }))).await;
    assert!(words(&working).contains("has not ended"), "{working}");
}

#[tokio::test]
async fn whoever_leaves_a_check_or_cancels_it_stops_nothing() {
    let mut proxy = Proxy::new(at_once());
    let (handle, sender) = started(&mut proxy, Kind::Legacy).await;
    let id = job(&handle);
    let check = || tool(Kind::Legacy, "check_job", &json!({ "job": id, "wait_seconds": 3000 }));
    let left = proxy.send(check()).await.in_background();
    drop(left);
    let cancelled = proxy.send(check()).await.in_background();
    cancelled.cancel();
    timeout(PATIENCE, cancelled.outcome()).await.expect("a cancelled check goes on");
    assert!(!sender.is_cancelled());
    assert_eq!(proxy.get(&id).await["status"], "working");
}

#[tokio::test]
async fn a_cancel_stops_the_job_once() {
    let mut proxy = Proxy::new(in_words());
    let (handle, sender) = started(&mut proxy, Kind::Legacy).await;
    let arguments = json!({ "job": job(&handle) });
    let cancelling = proxy.send_in_background(tool(Kind::Legacy, "cancel_job", &arguments));
    timeout(PATIENCE, sender.cancelled()).await.expect("the server is not told");
    sender.done(Outcome::Error(RpcError::new(0, "Request cancelled")));
    let cancelled = cancelling.await.unwrap();
    assert_eq!(
        (&cancelled["isError"], &cancelled["_meta"]["dev.raincheck/status"]),
        (&json!(false), &json!("cancelled"))
    );
    let checked = proxy.value(tool(Kind::Legacy, "check_job", &arguments)).await;
    assert!(checked["isError"] == true && words(&checked).contains("was cancelled"), "{checked}");
    let again = proxy.value(tool(Kind::Legacy, "cancel_job", &arguments)).await;
    assert!(again["isError"] == false && words(&again).contains("cancelled before"), "{again}");
}

#[tokio::test]
async fn a_job_that_is_cancelled_before_it_was_sent_is_said_not_to_have_run() {
    let mut proxy = Proxy::new(ToolPolicy { max_running: Some(1), ..at_once() });
    let (_, _sender) = started(&mut proxy, Kind::Legacy).await;
    let waiting = proxy.value(tool(Kind::Legacy, "export", &json!({ "n": 2 }))).await;
    let arguments = json!({ "job": job(&waiting) });
    let cancelled = proxy.value(tool(Kind::Legacy, "cancel_job", &arguments)).await;
    assert!(words(&cancelled).ends_with("is cancelled. Nothing was sent: `export` has not run for it."), "{cancelled}");
    let checked = proxy.value(tool(Kind::Legacy, "check_job", &arguments)).await;
    assert!(words(&checked).ends_with("was cancelled on request before it was sent. It has no result."), "{checked}");
}

#[tokio::test]
async fn a_check_says_that_it_was_the_operator_who_stopped_the_job() {
    let mut proxy = Proxy::new(in_words());
    let (handle, sender) = started(&mut proxy, Kind::Legacy).await;
    let page = proxy.store.list(Filter::default(), None, 2).await.unwrap();
    proxy.runner.cancel(&page.tasks[0], Canceller::Operator).await.unwrap();
    sender.done(Outcome::Error(RpcError::new(0, "Request cancelled")));
    proxy.ended(&job(&handle)).await;
    let checked = proxy.value(tool(Kind::Legacy, "check_job", &json!({ "job": job(&handle) }))).await;
    assert!(words(&checked).ends_with("was cancelled by the operator. It has no result."), "{checked}");
}

#[tokio::test]
async fn a_handle_of_somebody_else_is_as_unknown_as_none() {
    let mut proxy = Proxy::new(in_words());
    let (handle, sender) = started(&mut proxy, Kind::Legacy).await;
    let id = job(&handle);
    let unknown = raincheck::task::TaskId::generate(proxy.store.clock().now()).to_string();
    for name in ["check_job", "cancel_job", "answer_job"] {
        for kind in BOTH {
            let foreign = proxy.value(tool_of("bo", kind, name, &json!({ "job": id }))).await;
            assert_eq!(foreign["isError"], true, "{name}");
            assert!(words(&foreign).contains("no such job"), "{foreign}");
            for other in [unknown.as_str(), "x", ""] {
                assert_eq!(foreign, proxy.value(tool_of("bo", kind, name, &json!({ "job": other }))).await);
            }
        }
        let unnamed = proxy.value(tool(Kind::Legacy, name, &json!("x"))).await;
        assert!(unnamed["isError"] == true && words(&unnamed).contains("must be an object with \"job\""), "{unnamed}");
        let missing = proxy.value(tool(Kind::Legacy, name, &json!({}))).await;
        assert!(missing["isError"] == true && words(&missing).contains("\"job\""), "{missing}");
    }
    assert!(!sender.is_cancelled(), "a foreign cancel stopped the job");
}

#[tokio::test]
async fn a_handle_is_understood_as_a_model_may_copy_it() {
    let mut proxy = Proxy::new(in_words());
    let (handle, _sender) = started(&mut proxy, Kind::Legacy).await;
    let id = job(&handle);
    let capitals = id.to_ascii_uppercase();
    let copies =
        [format!(" `{id}`\n"), capitals, format!("Job \"{id}\"."), format!("**{id}**"), format!("{id}, I mean {id}")];
    for copy in copies {
        let arguments = json!({ "job": copy, "wait_seconds": 0 });
        for arguments in [arguments.clone(), json!(arguments.to_string())] {
            let checked = proxy.value(tool(Kind::Legacy, "check_job", &arguments)).await;
            assert!(words(&checked).contains("has not ended"), "{arguments}: {checked}");
            assert_eq!(job(&checked), id);
        }
    }
    let other = raincheck::task::TaskId::generate(proxy.store.clock().now());
    for wrong in [format!("{id}{id}"), format!("{id} or {other}"), id[1..].to_owned()] {
        let unknown = proxy.value(tool(Kind::Legacy, "check_job", &json!({ "job": wrong }))).await;
        assert!(words(&unknown).contains("no such job"), "{unknown}");
    }
}

#[tokio::test]
async fn a_tool_that_is_refused_says_so_to_the_model_of_a_legacy_client() {
    let policy = ToolPolicy { mode: Mode::Task, fallback: Fallback::Refuse, ..in_words() };
    let mut proxy = Proxy::new(policy);
    let refused = proxy.value(tool(Kind::Legacy, "export", &json!({}))).await;
    assert_eq!(refused["isError"], true);
    for part in ["Nothing was run", "fallback = \"refuse\"", "[defaults]", "io.modelcontextprotocol/tasks"] {
        assert!(words(&refused).contains(part), "{refused}");
    }
    let modern = proxy.value(tool(Kind::Modern, "export", &json!({}))).await;
    assert_eq!(modern["error"]["code"], -32021);
    assert!(proxy.sent.try_recv().is_err());
}

#[tokio::test]
async fn a_repeat_of_a_call_joins_its_job_and_says_so() {
    for kind in BOTH {
        let mut proxy = Proxy::new(ToolPolicy { dedupe: Dedupe::Running, ..at_once() });
        let (handle, sender) = started(&mut proxy, kind).await;
        let again = proxy.value(tool(kind, "export", &json!({ "n": 1 }))).await;
        assert_eq!(job(&again), job(&handle));
        assert!(words(&again).contains("this call joined it") && !words(&handle).contains("joined"), "{again}");
        assert!(proxy.sent.try_recv().is_err(), "it was sent again");
        sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
        let arguments = json!({ "job": job(&again) });
        let Outcome::Result(result) = proxy.ask(tool(kind, "check_job", &arguments)).await else { panic!() };
        assert_eq!(result.as_str(), r#"{"content":[]}"#);
    }
}

#[tokio::test]
async fn a_client_with_tasks_gets_a_task_all_the_same() {
    let mut proxy =
        Proxy::new(ToolPolicy { after: Duration::from_millis(1), hold: Duration::from_hours(1), ..in_words() });
    let reply = proxy.send_in_background(call("tools/call", json!({ "name": "export", "arguments": {} })));
    let (_, sender) = next_call(&mut proxy, LIST).await;
    let created = reply.await.unwrap();
    assert_eq!(created["resultType"], "task");
    sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
    // And may use the tools, if it likes.
    let check = call("tools/call", json!({ "name": "check_job", "arguments": { "job": created["taskId"] } }));
    assert_eq!(proxy.value(check).await, json!({ "content": [] }));
}
