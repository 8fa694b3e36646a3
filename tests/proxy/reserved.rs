//! Errors of a server of 2025-11-25 under codes that mean "not taken, call again" to a client of 2026-07-28: the tool has run.

use serde_json::{Value, json};

use crate::legacy::Client as Legacy;
use crate::member;
use crate::process::{Ground, Proxy};
use crate::upstream::{Transport, Upstream};

/// What the tool says, and what becomes of it for clients of 2026-07-28.
const CASES: [(&str, &str); 4] = [
    (
        r#"{"code":-32020,"message":"row 7 written"}"#,
        r#"{"code":-31020,"message":"row 7 written","data":{"dev.raincheck/code":-32020}}"#,
    ),
    (
        r#"{"code":-32021,"message":"m","data":{"requiredCapabilities":{"sampling":{}}}}"#,
        r#"{"code":-31021,"message":"m","data":{"dev.raincheck/code":-32021,"requiredCapabilities":{"sampling":{}}}}"#,
    ),
    (
        r#"{"code":-32022,"message":"m","data":[1.0]}"#,
        r#"{"code":-31022,"message":"m","data":{"dev.raincheck/code":-32022,"dev.raincheck/data":[1.0]}}"#,
    ),
    (r#"{"code":-32099,"message":"m"}"#, r#"{"code":-31099,"message":"m","data":{"dev.raincheck/code":-32099}}"#),
];

const RULES: &str = "[defaults]\nafter = \"1h\"\ntimeout = \"2h\"\n[[tool]]\nmatch = \"slow\"\nmode = \"task\"\n\
                     [[tool]]\nmatch = \"job\"\nmode = \"task\"\nfallback = \"handle\"";

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Calls a tool that ends at once with `said`; the status, and the error that came of it.
async fn failed(proxy: &Proxy, upstream: &Upstream, said: &str, key: &str) -> (u16, Value) {
    let client = proxy.client().undeclared().keyed(key);
    let (answer, ()) = tokio::join!(client.call("auto", "{}"), async { upstream.run().await.fails(said).await });
    (answer.status, answer.error())
}

#[tokio::test]
async fn a_client_of_2026_07_28_never_takes_the_word_of_an_older_tool_for_one_of_the_protocol() {
    for transport in [Transport::Stdio, Transport::Http] {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, RULES);
        let mut proxy = ground.start().await;
        let mut tasks = Vec::new();
        for (said, expected) in CASES {
            let expected = value(expected);
            let key = expected["code"].to_string();
            assert_eq!(failed(&proxy, &upstream, said, &key).await, (200, expected.clone()), "{transport:?}");
            let id = proxy.client().handle("slow", "{}").await;
            upstream.run().await.fails(said).await;
            assert_eq!(proxy.client().ended(&id).await.result()["error"], expected, "{transport:?}");
            tasks.push((id, key, expected));
        }
        let runs = upstream.ledger().len();
        proxy.kill();
        let proxy = ground.start().await;
        for (id, key, expected) in tasks {
            assert_eq!(proxy.client().get(&id).await.result()["error"], expected, "{transport:?}");
            let again = proxy.client().undeclared().keyed(&key).call("auto", "{}").await;
            assert_eq!((again.status, again.error()), (200, expected), "{transport:?}");
        }
        assert_eq!(upstream.ledger().len(), runs, "{transport:?}");
    }
}

#[tokio::test]
async fn a_job_says_the_code_in_the_words_of_its_client() {
    let upstream = Upstream::start(Transport::Stdio).await;
    let ground = Ground::new(&upstream, RULES);
    let proxy = ground.start().await;
    let (modern, legacy) = (proxy.client().undeclared(), Legacy::open(&proxy).await);
    for (said, expected) in CASES {
        let handle = modern.call("job", "{}").await.result();
        upstream.run().await.fails(said).await;
        let job = json!({ "job": handle["_meta"]["dev.raincheck/taskId"] }).to_string();
        let shown = modern.call("check_job", &job).await.result();
        assert_eq!(shown["structuredContent"]["error"], value(expected));
        let params = format!(r#"{{"name":"check_job","arguments":{job}}}"#);
        let (_, shown) = legacy.request("1", "tools/call", &params).await.next().await.unwrap();
        assert_eq!(value(&shown)["result"]["structuredContent"]["error"], value(said));
    }
}

#[tokio::test]
async fn a_legacy_client_gets_the_code_that_the_tool_said() {
    for transport in [Transport::Stdio, Transport::Http] {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, "[defaults]\nfallback = \"legacy_tasks\"");
        let proxy = ground.start().await;
        let client = Legacy::open_with_tasks(&proxy).await;
        for (said, _) in CASES {
            let mut events = client.call("7", "auto").await;
            upstream.run().await.fails(said).await;
            assert_eq!(member(&events.next().await.unwrap().1, "error"), said, "{transport:?}");

            let call = r#"{"name":"slow","arguments":{},"task":{"ttl":60000}}"#;
            let (_, created) = client.request("8", "tools/call", call).await.next().await.unwrap();
            upstream.run().await.fails(said).await;
            let task = json!({ "taskId": value(&created)["result"]["task"]["taskId"] }).to_string();
            let mut result = client.request("9", "tasks/result", &task).await;
            let mut last = result.next().await.unwrap().1;
            while !last.contains("\"error\"") {
                last = result.next().await.unwrap().1;
            }
            assert_eq!(member(&last, "error"), said, "{transport:?}");
        }
    }
}
