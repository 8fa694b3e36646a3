//! Modern clients that listen in front of a legacy server, and log lines that they want.

use raincheck::protocol::Notification;

use super::*;

fn listen(bench: &Bench, who: &str, filter: &Value) -> Reply {
    bench.ask_as(modern(who), Method::Listen, json!({ "notifications": filter }))
}

fn modern(who: &str) -> Caller {
    caller(who, ClientSession::Stateless, &json!({ "roots": {} }))
}

async fn heard(reply: &mut Reply) -> (String, Value) {
    match next(reply).await {
        Event::Notification(Notification { method, params }) => {
            (method, params.map_or(Value::Null, |params| params.read().unwrap()))
        }
        other => panic!("{other:?}"),
    }
}

async fn say(bench: &Bench, who: &str, method: &str, params: Value) {
    let said = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    let call = json!({ "name": "say", "arguments": said });
    result(bench.ask_as(modern(who), Method::CallTool, call)).await;
}

#[tokio::test]
async fn a_listener_hears_what_it_asked_for_and_the_server_can_say_after_the_acknowledgement() {
    let bench = Bench::new("full");
    let filter = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a:1"], "taskIds": ["x"],
    });
    let mut ann = listen(&bench, "ann", &filter);
    let (method, params) = heard(&mut ann).await;
    assert_eq!(method, "notifications/subscriptions/acknowledged");
    assert_eq!(params, json!({ "notifications": { "toolsListChanged": true, "resourceSubscriptions": ["a:1"] } }));
    assert_eq!(bench.ledger("resources/subscribe"), 1);
    let mut bo = listen(&bench, "bo", &json!({ "toolsListChanged": true }));
    heard(&mut bo).await;
    for (method, params) in [
        ("notifications/resources/list_changed", json!({})),
        ("notifications/prompts/list_changed", json!({})),
        ("notifications/message", json!({ "level": "info" })),
        ("notifications/resources/updated", json!({ "uri": "b:1" })),
        ("notifications/resources/updated", json!({ "uri": "a:1", "x": 1 })),
        ("notifications/tools/list_changed", json!({})),
    ] {
        say(&bench, "ann", method, params).await;
    }
    assert_eq!(heard(&mut ann).await, ("notifications/resources/updated".to_owned(), json!({ "uri": "a:1", "x": 1 })));
    assert_eq!(heard(&mut ann).await.0, "notifications/tools/list_changed");
    // Another principal hears nothing of it.
    say(&bench, "bo", "notifications/tools/list_changed", json!({ "of": "bo" })).await;
    assert_eq!(heard(&mut bo).await.1, json!({ "of": "bo" }));
    bench.upstream.close().await;
}

#[tokio::test]
async fn what_a_second_process_of_the_principal_says_is_heard_too() {
    let bench = Bench::new("full");
    let mut listener = listen(&bench, "ann", &json!({ "toolsListChanged": true }));
    heard(&mut listener).await;
    let held = bench.ask_as(modern("ann"), Method::CallTool, json!({ "name": "hold", "arguments": {} }));
    bench.noted("hold", 1).await;
    say(&bench, "ann", "notifications/tools/list_changed", json!({})).await;
    assert_eq!(bench.ledger("start"), 2);
    assert_eq!(heard(&mut listener).await.0, "notifications/tools/list_changed");
    drop(held);
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_resource_is_unsubscribed_when_the_last_listener_leaves() {
    let bench = Bench::new("full");
    let filter = json!({ "resourceSubscriptions": ["a:1"] });
    let (mut one, mut two) = (listen(&bench, "ann", &filter), listen(&bench, "ann", &filter));
    heard(&mut one).await;
    heard(&mut two).await;
    assert_eq!(bench.ledger("resources/subscribe"), 1);
    drop(one);
    say(&bench, "ann", "notifications/resources/updated", json!({ "uri": "a:1" })).await;
    heard(&mut two).await;
    assert_eq!(bench.ledger("resources/unsubscribe"), 0);
    drop(two);
    bench.noted("resources/unsubscribe", 1).await;
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_filter_without_anything_for_the_server_starts_none() {
    let bench = Bench::new("full");
    let mut listener = listen(&bench, "ann", &json!({ "taskIds": ["x"] }));
    assert_eq!(heard(&mut listener).await.1, json!({ "notifications": {} }));
    assert_eq!(bench.ledger("start"), 0);
    bench.upstream.close().await;
    // A graceful end, as the proxy stops.
    assert_eq!(result(listener).await, json!({}));
}

#[tokio::test]
async fn a_listener_outlives_its_process_and_is_told_that_the_lists_may_have_changed() {
    let bench = Bench::with("full", Limits::default(), |config| config.session_idle = Duration::from_millis(1));
    let mut listener = listen(&bench, "ann", &json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:1"] }));
    heard(&mut listener).await;
    failure(bench.ask_as(modern("ann"), Method::CallTool, json!({ "name": "die", "arguments": {} }))).await;
    assert_eq!(heard(&mut listener).await.0, "notifications/tools/list_changed");
    assert_eq!((bench.ledger("start"), bench.ledger("resources/subscribe")), (2, 2));
    say(&bench, "ann", "notifications/resources/updated", json!({ "uri": "a:1" })).await;
    assert_eq!(heard(&mut listener).await.0, "notifications/resources/updated");
    // Somebody listens, so it did not end of idleness.
    assert_eq!(bench.ledger("start"), 2);
    bench.upstream.close().await;
    assert_eq!(result(listener).await, json!({}));
}

#[tokio::test]
async fn a_finer_level_of_log_lines_is_asked_for_once_before_the_call_that_wants_it() {
    let bench = Bench::new("full");
    let call = |level: Option<&str>| {
        let meta = level.map_or(json!({}), |level| json!({ "io.modelcontextprotocol/logLevel": level }));
        let params = json!({ "name": "opening", "arguments": {}, "_meta": meta });
        let reply = bench.ask_as(modern("ann"), Method::CallTool, params);
        async {
            let told = result(reply).await["told"].clone();
            let set = told.as_array().unwrap().iter().filter(|told| told["method"] == "logging/setLevel");
            set.map(|told| told["params"]["level"].clone()).collect::<Vec<_>>()
        }
    };
    assert_eq!(call(None).await, Vec::<Value>::new());
    assert_eq!(call(Some("nonsense")).await, Vec::<Value>::new());
    assert_eq!(call(Some("warning")).await, ["warning"]);
    assert_eq!(call(Some("error")).await, ["warning"]);
    assert_eq!(call(Some("debug")).await, ["warning", "debug"]);
    bench.upstream.close().await;
    let plain = Bench::new("plain");
    let meta = json!({ "io.modelcontextprotocol/logLevel": "debug" });
    let params = json!({ "name": "opening", "arguments": {}, "_meta": meta });
    assert_eq!(
        result(plain.ask_as(modern("ann"), Method::CallTool, params)).await["told"].as_array().unwrap().len(),
        0
    );
    plain.upstream.close().await;
}
