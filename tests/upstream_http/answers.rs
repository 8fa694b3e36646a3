//! What may be an answer, and what is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use raincheck::config::{Limits, ServerConfig, Transport, UpstreamEra};
use raincheck::protocol::{Caller, Outcome, Principal, Proofs, Reason, Retry};
use serde_json::json;
use tokio::sync::{Barrier, Notify};

use crate::client::{all, call_of, caller, client, client_with, config};
use crate::http_server::{PATIENCE, Server};

#[tokio::test]
async fn an_answer_proves_a_caller_and_a_refusal_of_its_token_makes_it_a_newcomer_again() {
    let expired = Arc::new(AtomicBool::new(false));
    for is_modern in [false, true] {
        let is_expired = Arc::clone(&expired);
        expired.store(false, Ordering::SeqCst);
        let server = Server::start(move |seen, wire| {
            let is_good = seen.header("authorization") == Some("Bearer good") && !is_expired.load(Ordering::SeqCst);
            async move {
                match (seen.method(), seen.tool()) {
                    _ if !is_good => wire.status("401 Unauthorized").await,
                    ("initialize", _) => wire.initialize(&seen, "s").await,
                    (_, "forbidden") => wire.status("403 Forbidden").await,
                    _ => wire.json(&seen.says("done")).await,
                }
            }
        })
        .await;
        let era = if is_modern { UpstreamEra::Modern } else { UpstreamEra::Legacy };
        let client = client_with(ServerConfig { era, ..config(&server) }, &Limits::default());
        let proofs = Proofs::default();
        let by = |token: &str| {
            let principal = Principal::Credential(proofs.shown(token, [10, 0, 0, 1].into()));
            caller(principal, Some(token))
        };
        let (good, bad) = (by("Bearer good"), by("Bearer bad"));
        let call = |by: &Caller, tool: &str| {
            let params = format!(r#"{{"name":"{tool}"}}"#);
            client.send(call_of("tools/call", &params, by.clone()))
        };
        for (by, is_proved) in [(&good, true), (&bad, false)] {
            let seen = all(call(by, "t").await).await;
            assert_eq!(matches!(seen.outcome, Outcome::Result(_)), is_proved, "{seen:?}");
            assert_eq!(by.principal.newcomer().is_none(), is_proved);
        }
        // It may not do this, but is who it says.
        assert_eq!(all(call(&good, "forbidden").await).await.failure().reason, Reason::Unauthorized);
        assert!(good.principal.newcomer().is_none());
        expired.store(true, Ordering::SeqCst);
        assert_eq!(all(call(&good, "t").await).await.failure().reason, Reason::Unauthorized);
        assert!(good.principal.newcomer().is_some());
    }
}

#[tokio::test]
async fn a_server_may_answer_with_json_or_a_stream_from_call_to_call() {
    let calls = AtomicUsize::new(0);
    let server = Server::legacy(move |seen, mut wire| {
        let streams = calls.fetch_add(1, Ordering::SeqCst) % 2 == 1;
        async move {
            if !streams {
                return wire.json(&seen.says("done")).await;
            }
            wire.events().await;
            wire.event(&seen.says("done")).await;
            wire
        }
    })
    .await;
    let client = client(&server);
    for _ in 0..6 {
        client.call("t").await.says("done");
    }
    for seen in server.seen_of("tools/call") {
        assert_eq!(seen.header("accept"), Some("application/json, text/event-stream"));
        assert_eq!(seen.header("content-type"), Some("application/json"));
    }
}

#[tokio::test]
async fn a_byte_order_mark_before_an_answer_is_passed_over() {
    let server = Server::legacy(|seen, mut wire| async move {
        let marked = format!("\u{feff}{}", seen.says("done"));
        match seen.tool() {
            "json" => wire.json(&marked).await,
            "error" => {
                let error = json!({ "jsonrpc": "2.0", "id": seen.id(), "error": { "code": -5, "message": "no" } });
                let headers = [("Content-Type", "application/json")];
                wire.respond("400 Bad Request", &headers, &format!("\u{feff}{error}")).await
            }
            _ => {
                wire.events().await;
                wire.event(&marked).await;
                wire
            }
        }
    })
    .await;
    let client = client(&server);
    client.call("json").await.says("done");
    client.call("event").await.says("done");
    let refused = client.call("error").await;
    assert!(matches!(&refused.outcome, Outcome::Error(error) if error.code() == -5), "{refused:?}");
    client.close().await;
}

#[tokio::test]
async fn a_broken_answer_on_a_stream_ends_its_call_and_a_broken_request_under_its_id_does_not() {
    let server = Server::legacy(|seen, mut wire| async move {
        if !seen.is("tools/call") {
            return wire.status("202 Accepted").await;
        }
        let broken = match seen.tool() {
            "answer" => json!({ "jsonrpc": "2.0", "id": seen.id(), "result": {}, "error": {} }),
            _ => json!({ "jsonrpc": "2.0", "id": seen.id(), "method": 7 }),
        };
        wire.events().await;
        wire.event(&broken.to_string()).await;
        if seen.tool() == "answer" {
            wire.closed().await;
        } else {
            wire.event(&seen.says("done")).await;
        }
        wire
    })
    .await;
    let client = client(&server);
    client.call("request").await.says("done");
    let told = server.saw(|seen| seen.body["error"]["code"] == -32600).await;
    assert_eq!(told.body["id"], *server.seen_of("tools/call")[0].id());
    assert_eq!(client.call("answer").await.failure().reason, Reason::BadAnswer);
    client.close().await;
}

#[tokio::test]
async fn json_under_another_name_is_taken_and_all_else_fails_at_once_with_status_and_type() {
    let server = Server::legacy(|seen, wire| async move {
        let good = seen.says("done");
        let (headers, body): (&[(&str, &str)], &str) = match seen.tool() {
            "charset" => (&[("Content-Type", "application/json; charset=utf-8")], &good),
            "missing" => (&[], &good),
            "text" => (&[("Content-Type", "text/plain")], &good),
            "html" => (&[("Content-Type", "text/html")], "<html>log in</html>"),
            "prose" => (&[("Content-Type", "text/plain; charset=utf-8")], "please log in"),
            "empty" => (&[], ""),
            _ => (&[("Content-Type", "application/json")], "{\"jsonrpc\":\"2.0\"}"),
        };
        wire.respond("200 OK", headers, body).await
    })
    .await;
    let client = client(&server);
    for tool in ["charset", "missing", "text"] {
        client.call(tool).await.says("done");
    }
    for (tool, says) in
        [("html", "200 OK and text/html"), ("prose", "(text/plain)"), ("empty", "200"), ("stub", "no answer")]
    {
        let began = Instant::now();
        let failure = client.call(tool).await.failure().clone();
        assert_eq!((failure.reason, failure.retry), (Reason::BadAnswer, Retry::Unknown), "{tool}");
        assert!(failure.message.contains(says), "{tool}: {}", failure.message);
        assert!(!failure.message.contains("log in"), "{}", failure.message);
        assert!(began.elapsed().as_secs() < 5);
    }
}

#[tokio::test]
async fn a_body_without_end_is_cut_off_at_the_limit() {
    let server = Server::legacy(|seen, mut wire| async move {
        let length = if seen.tool() == "said" { "Content-Length: 3000000000\r\n" } else { "" };
        wire.raw(format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{length}\r\n")).await;
        if seen.tool() == "unsaid" {
            wire.flood().await;
        }
        // What is said to be too large is not waited for.
        wire.closed().await;
        wire
    })
    .await;
    let client = client_with(config(&server), &Limits { message: 1 << 20, ..Limits::default() });
    for tool in ["said", "unsaid"] {
        assert_eq!(client.call(tool).await.failure().reason, Reason::TooLarge, "{tool}");
    }
}

#[tokio::test]
async fn a_truncated_body_is_an_error_even_where_the_rest_reads_as_json() {
    let server = Server::legacy(|seen, mut wire| async move {
        let body = seen.says("done");
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
        wire.raw(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len() + 10)).await;
        wire
    })
    .await;
    let seen = client(&server).call("t").await;
    assert_eq!(seen.failure().reason, Reason::OutcomeUnknown);
}

#[tokio::test]
async fn posts_have_a_length_and_numbers_survive_both_ways() {
    // The scripted server cannot read chunked requests at all.
    let server = Server::legacy(|seen, wire| async move {
        let arguments = seen.text.split(r#""arguments":"#).nth(1).unwrap().split(r#","_meta""#).next().unwrap();
        let id = seen.id();
        wire.json(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"structuredContent":{arguments}}}}}"#)).await
    })
    .await;
    let arguments = concat!(
        r#"{"a":9007199254740995,"b":-9223372036854775808,"c":18446744073709551615,"d":1e400,"e":0.1,"#,
        r#""f":1E2,"g":1.0,"h":1234567890123456789012345678901234567890,"i":"\u2028"}"#
    );
    let params = format!(r#"{{"name":"echo","arguments":{arguments}}}"#);
    let call = call_of("tools/call", &params, caller(Principal::Local, None));
    let seen = all(client(&server).send(call).await).await;
    assert_eq!(seen.result(), format!(r#"{{"structuredContent":{arguments}}}"#));
    assert!(server.seen_of("tools/call")[0].header("content-length").is_some());
}

#[tokio::test]
async fn calls_at_the_same_time_get_their_own_answers_whatever_their_order() {
    let (first, second) = (Arc::new(Notify::new()), Arc::new(Barrier::new(3)));
    let (gate, both) = (Arc::clone(&first), Arc::clone(&second));
    let server = Server::legacy(move |seen, wire| {
        let (gate, both) = (Arc::clone(&gate), Arc::clone(&both));
        async move {
            both.wait().await;
            if seen.tool() == "ann" {
                gate.notified().await;
            }
            wire.json(&seen.says(seen.tool())).await
        }
    })
    .await;
    let client = client(&server);
    let (ann, bo) = (client.tool("ann").await, client.tool("bo").await);
    tokio::time::timeout(PATIENCE, second.wait()).await.expect("one of them never came");
    all(bo).await.says("bo");
    first.notify_one();
    all(ann).await.says("ann");
    let ids: Vec<_> = server.seen_of("tools/call").iter().map(|seen| seen.id().clone()).collect();
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn an_answer_under_a_wrong_form_of_its_id_is_taken_and_one_to_another_call_is_not() {
    let server = Server::legacy(|seen, mut wire| async move {
        let id = match seen.tool().trim_start_matches("stream-") {
            "string" => json!(seen.id().to_string()),
            "zero" => json!(0),
            "null" => json!(null),
            _ => json!(seen.id().as_u64().unwrap() + 1),
        };
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": ["done"] } }).to_string();
        if !seen.tool().starts_with("stream-") {
            return wire.json(&answer).await;
        }
        wire.events().await;
        wire.event(&answer).await;
        wire
    })
    .await;
    let client = client(&server);
    for tool in ["string", "zero", "null", "stream-string", "stream-zero", "stream-null"] {
        client.call(tool).await.says("done");
    }
    assert_eq!(client.call("other").await.failure().reason, Reason::BadAnswer);
    assert_eq!(client.call("stream-other").await.failure().reason, Reason::OutcomeUnknown);
}

#[tokio::test]
async fn a_refusal_is_told_as_what_it_is() {
    let server = Server::legacy(|seen, wire| async move {
        let id = seen.id();
        let rpc =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32602,"message":"no","data":{{"n":1.0}}}}}}"#);
        let json: &[(&str, &str)] = &[("Content-Type", "application/json")];
        match seen.tool() {
            "rpc400" => wire.respond("400 Bad Request", json, &rpc).await,
            "rpc500" => wire.respond("500 Internal Server Error", json, &rpc).await,
            "own" => wire.respond("422 Unprocessable", json, r#"{"error":{"code":"bad_thing","message":"why"}}"#).await,
            "text" => wire.respond("500 Internal Server Error", &[("Content-Type", "text/plain")], "at line 3").await,
            "gateway" => wire.respond("504 Gateway Timeout", &[("Content-Type", "text/html")], "line 3").await,
            "gateway-json" => wire.respond("502 Bad Gateway", json, r#"{"error":{"code":502,"message":"gone"}}"#).await,
            "rpc503" => wire.respond("503 Service Unavailable", json, &rpc).await,
            "html" => wire.respond("422 Unprocessable", &[("Content-Type", "text/html")], "<html>").await,
            "unauthorized" => wire.respond("401 Unauthorized", &[("WWW-Authenticate", "Bearer")], "").await,
            "forbidden" => wire.status("403 Forbidden").await,
            "often" => wire.respond("429 Too Many Requests", &[("Retry-After", "7")], "").await,
            _ => wire.json(&rpc).await,
        }
    })
    .await;
    let client = client(&server);
    for tool in ["rpc", "rpc400", "rpc500", "rpc503"] {
        assert_eq!(
            client.call(tool).await.error().raw().as_str(),
            r#"{"code":-32602,"message":"no","data":{"n":1.0}}"#
        );
    }
    let own = client.call("own").await;
    assert_eq!((own.error().code(), own.error().message()), (-32603, "why"));
    let cases = [
        ("text", Reason::BadAnswer, Retry::Unknown, "500 Internal Server Error (text/plain)"),
        ("gateway", Reason::OutcomeUnknown, Retry::Unknown, "504 Gateway Timeout (text/html)"),
        ("gateway-json", Reason::OutcomeUnknown, Retry::Unknown, "502 Bad Gateway (application/json): "),
        ("html", Reason::BadAnswer, Retry::No, "text/html"),
        ("unauthorized", Reason::Unauthorized, Retry::No, "401"),
        ("forbidden", Reason::Unauthorized, Retry::No, "403"),
        ("often", Reason::NotStarted, Retry::After(Duration::from_secs(7)), "429"),
    ];
    for (tool, reason, retry, says) in cases {
        let failure = client.call(tool).await.failure().clone();
        assert_eq!((failure.reason, failure.retry), (reason, retry), "{tool}");
        assert!(failure.message.contains(says) && !failure.message.contains("line 3"), "{}", failure.message);
    }
}

#[tokio::test]
async fn what_a_server_wants_in_the_place_of_the_callers_credentials_comes_with_the_failure() {
    let server = Server::legacy(|seen, wire| async move {
        let wanted = "Bearer resource_metadata=\"https://h/.well-known/x\"";
        match seen.tool() {
            "expired" => wire.respond("401 Unauthorized", &[("WWW-Authenticate", wanted)], "").await,
            "bare" => wire.status("401 Unauthorized").await,
            "scope" => wire.respond("403 Forbidden", &[("WWW-Authenticate", "Bearer scope=\"w\"")], "").await,
            _ => wire.status("403 Forbidden").await,
        }
    })
    .await;
    let mut without = config(&server);
    if let Transport::Http { forward, .. } = &mut without.transport {
        forward.clear();
    }
    let failure = client_with(without, &Limits::default()).call("expired").await.failure().clone();
    assert_eq!((failure.reason, failure.challenge), (Reason::Unauthorized, None), "they were not the caller's");
    let client = client(&server);
    let cases = [
        ("expired", Some((401, "Bearer resource_metadata=\"https://h/.well-known/x\""))),
        ("bare", Some((401, "Bearer"))),
        ("scope", Some((403, "Bearer scope=\"w\""))),
        ("forbidden", None),
    ];
    for (tool, expected) in cases {
        let failure = client.call(tool).await.failure().clone();
        assert_eq!(failure.reason, Reason::Unauthorized, "{tool}");
        let challenge = failure.challenge.map(|it| (it.status.as_u16(), it.wanted));
        let expected = expected.map(|(status, wanted)| (status, vec![wanted.parse().unwrap()]));
        assert_eq!(challenge, expected, "{tool}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_never_took_the_call() {
    let server = Server::legacy(|seen, wire| async move { wire.json(&seen.says("x")).await }).await;
    let mut config = config(&server);
    let mut address = String::new();
    if let Transport::Http { url, .. } = &mut config.transport {
        address = url.authority().to_owned();
        url.set_query(Some("key=secret"));
    }
    drop(server);
    // The port is free again once the server is dropped; nobody listens on it.
    let failure = client_with(config, &Limits::default()).call("t").await.failure().clone();
    assert_eq!(
        (failure.reason, failure.retry),
        (Reason::NotStarted, Retry::After(Duration::from_secs(5))),
        "{failure:?}"
    );
    assert!(failure.message.contains(&format!("http://{address}/")), "{}", failure.message);
}

#[tokio::test]
async fn an_array_in_a_body_is_unpacked() {
    let server = Server::legacy(|seen, wire| async move {
        wire.json(&format!("[{},{}]", seen.progress(1), seen.says("done"))).await
    })
    .await;
    let seen = client(&server).call("t").await;
    seen.says("done");
    assert_eq!(seen.progress, ["1"]);
}
