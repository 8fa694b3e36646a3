//! Which calls are the same.

use raincheck::config::{Dedupe, Mode, ToolPolicy};
use raincheck::policy::Policies;
use raincheck::protocol::{CallKey, Method, Outcome, Params, Principal};
use raincheck::tasks::TasksLayer;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};

use crate::callers::{KINDS, Kind, RESULT, assert_joined, call, call_of, done, export, keyed, outcome, policy, said};
use crate::support::calls::text;
use crate::support::layer::{Proxy, Scripted};

/// A proxy in which the call with the key `k` has ended.
async fn ended() -> Proxy {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let one = proxy.send(call(Kind::Plain)).await;
    proxy.next_sent().await.1.done(done());
    outcome(one).await;
    proxy
}

fn export_with(arguments: Value) -> Value {
    json!({ "name": "export", "arguments": arguments })
}

#[tokio::test]
async fn a_key_that_was_used_for_another_call_is_refused_and_nothing_is_sent() {
    let others = [
        json!({ "name": "import", "arguments": { "n": 1, "m": [1.0, "x"] } }),
        json!({ "name": "export" }),
        export_with(json!({})),
        export_with(json!({ "n": 2, "m": [1.0, "x"] })),
        export_with(json!({ "n": 1, "m": ["x", 1.0] })),
        export_with(json!({ "n": "1", "m": [1.0, "x"] })),
        export_with(json!({ "n": 1, "m": [1.0, "x"], "o": null })),
    ];
    for params in others {
        let mut proxy = ended().await;
        let Outcome::Failed(failure) = outcome(proxy.send(keyed(Kind::Plain, "k", params.clone())).await).await else {
            panic!("{params}")
        };
        assert_eq!(failure.facts().as_str(), r#"{"reason":"key_reused","retryable":false}"#, "{params}");
        proxy.assert_sent_no_more();
        // While the first runs too.
        let _running = proxy.send(keyed(Kind::Tasks, "r", export())).await;
        let (_, _server) = proxy.next_sent().await;
        assert_eq!(said(proxy.send(keyed(Kind::Plain, "r", params)).await).await["failed"], "key_reused");
        proxy.assert_sent_no_more();
    }
}

#[tokio::test]
async fn another_spelling_of_the_arguments_is_the_same_call() {
    let mut proxy = ended().await;
    let params = r#"{ "name":"export","arguments" : {"m":[1, "\u0078"] , "\u006e":1e0}, "_meta":{"a":1} }"#;
    let mut again = call(Kind::Plain);
    again.params = Params::read(&Method::CallTool, Some(text(params))).unwrap();
    assert_joined(outcome(proxy.send(again).await).await);
    proxy.assert_sent_no_more();
}

/// They are looked at apart from the thread of the connection, and are the same as before.
#[tokio::test]
async fn large_calls_are_the_same_or_not_as_small_ones_are() {
    let large = |first: &str, second: &str, end: &str| {
        let pad = "x".repeat(100_000);
        let params = format!(r#"{{"name":"export","arguments":{{"{first}":1,"{second}":1,"pad":"{pad}{end}"}}}}"#);
        let mut call = call(Kind::Plain);
        call.params = Params::read(&Method::CallTool, Some(text(&params))).unwrap();
        call
    };
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let one = proxy.send(large("a", "b", "")).await.in_background();
    let (_, server) = proxy.next_sent().await;
    let two = proxy.send(large("b", "a", "")).await.in_background();
    let other = proxy.send(large("a", "b", "y")).await;
    assert_eq!(said(other).await["failed"], "key_reused");
    server.done(done());
    outcome(one).await;
    assert_joined(outcome(two).await);
}

#[tokio::test]
async fn a_large_call_whose_caller_leaves_before_it_was_looked_at_is_not_sent() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let pad = "x".repeat(100_000);
    drop(proxy.send(keyed(Kind::Plain, "large", export_with(json!({ "pad": pad })))).await);
    let _next = proxy.send(keyed(Kind::Plain, "small", export())).await.in_background();
    assert_eq!(proxy.next_sent().await.0.caller.key, Some(CallKey::read("small").unwrap()));
    proxy.assert_sent_no_more();
}

#[tokio::test]
async fn other_keys_and_other_owners_are_calls_of_their_own() {
    let mut proxy = ended().await;
    let key = || Some(CallKey::read("k").unwrap());
    let mut others =
        vec![keyed(Kind::Plain, "K", export()), call_of(Principal::Named("ann".into()), Kind::Plain, export())];
    for who in [Principal::Named("bo".into()), Principal::Local, Principal::Credential("ann".into())] {
        let mut call = call_of(who, Kind::Plain, export());
        call.caller.key = key();
        others.push(call);
    }
    for other in others {
        let reply = proxy.send(other).await;
        proxy.next_sent().await.1.done(done());
        let Outcome::Result(result) = outcome(reply).await else { panic!() };
        assert_eq!(result.as_str(), crate::callers::RESULT);
    }
}

#[tokio::test]
async fn who_is_anonymous_has_no_keys() {
    let dedupe = Dedupe::Window(std::time::Duration::from_hours(1));
    let mut proxy = Proxy::new(ToolPolicy { dedupe, ..policy(Mode::Auto) });
    for kind in KINDS {
        let mut with_key = call_of(Principal::Anonymous, kind, export());
        with_key.caller.key = Some(CallKey::read("k").unwrap());
        let refused = said(proxy.send(with_key).await).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("Authorization"), "{refused}");
        proxy.assert_sent_no_more();
        for _ in 0..2 {
            let reply = proxy.send(call_of(Principal::Anonymous, kind, export())).await;
            proxy.next_sent().await.1.done(done());
            assert!(matches!(outcome(reply).await, Outcome::Result(_)));
        }
    }
}

#[tokio::test]
async fn a_key_on_anything_but_a_tool_means_nothing() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    for _ in 0..2 {
        let mut list = call(Kind::Plain);
        list.method = Method::ListTools;
        let reply = proxy.send(list).await;
        proxy.next_sent().await.1.done(Outcome::Result(text(r#"{"tools":[]}"#)));
        assert!(matches!(outcome(reply).await, Outcome::Result(_)));
    }
}

#[tokio::test]
async fn the_same_key_at_another_server_is_another_call() {
    let dedupe = Dedupe::Window(std::time::Duration::from_hours(1));
    let policy = ToolPolicy { dedupe, ..policy(Mode::Auto) };
    // A key of the caller, and one that is made of the arguments.
    for call in [call(Kind::Plain), call_of(Principal::Named("ann".into()), Kind::Plain, export())] {
        let mut proxy = Proxy::new(policy.clone());
        let one = proxy.send(call.clone()).await;
        proxy.next_sent().await.1.done(done());
        outcome(one).await;
        let (scripted, mut sent) = Scripted::new();
        let policies = Policies::uniform(policy.clone());
        let other = TasksLayer::new(proxy.runner.clone(), "others", policies).layer(scripted);
        let reply = other.oneshot(call).await.unwrap().in_background();
        sent.recv().await.unwrap().1.done(done());
        let Outcome::Result(result) = outcome(reply).await else { panic!() };
        assert_eq!(result.as_str(), RESULT);
    }
}

/// A server of 2026-07-28 asks in this way, and its client keeps the key.
#[tokio::test]
async fn a_retry_with_the_state_of_the_server_is_no_repeat() {
    let mut proxy = ended().await;
    let mut params = export();
    params["requestState"] = json!("their-state");
    let retry = proxy.send(keyed(Kind::Plain, "k", params)).await;
    proxy.next_sent().await.1.done(done());
    assert!(matches!(outcome(retry).await, Outcome::Result(_)));
}
