use raincheck::protocol::{Answer, Notification, Progress};
use serde_json::json as value;

use super::*;

fn progress(number: &str) -> Event {
    Event::Progress(Progress { progress: json(number), total: None, message: None })
}

fn changed(what: &str) -> Event {
    Event::Notification(Notification { method: format!("notifications/{what}/list_changed"), params: None })
}

#[tokio::test]
async fn a_slow_call_is_a_stream_with_ids_that_is_primed_in_2025_11_25_only() {
    for (version, is_primed) in [("2025-06-18", false), ("2025-11-25", true)] {
        let mut server = Setup::new().start().await;
        let mut client = server.connect().await;
        let session = Session::open(&mut server, &mut client, version).await;
        client.post(&tool("7"), &session.header()).await;
        let asked = server.asked().await;
        let head = client.head().await;
        assert_eq!((head.status, head.get("content-type")), (200, Some("text/event-stream")));
        if is_primed {
            let priming = Sent { id: Some("1-0".into()), retry: Some("1000".into()), message: None };
            assert_eq!(event(&mut client).await, Some(priming));
        } else {
            assert_eq!(client.chunk().await.unwrap(), b":\n\n");
        }
        asked.sender.event(progress("1.50"));
        asked.sender.event(Event::Log(json(r#"{"level":"debug","data":1}"#)));
        asked.sender.done(result("{\"content\":\r\n []}"));
        let first = event(&mut client).await.unwrap();
        assert_eq!((first.id.as_deref(), first.retry), (Some("1-1"), None));
        let params = value!({"progressToken": "p", "progress": 1.5});
        assert_eq!(first.message.unwrap()["params"], params);
        assert_eq!(message(&mut client).await["method"], "notifications/message");
        let answer = value!({"jsonrpc": "2.0", "id": 7, "result": {"content": []}});
        assert_eq!(message(&mut client).await, answer);
        assert_eq!(client.chunk().await, None);
    }
}

/// It answers once: the server would wait for another until nobody may answer any more.
#[tokio::test]
async fn a_broken_answer_is_refused_and_the_server_hears_of_it() {
    for (version, is_batch) in [("2025-11-25", false), ("2025-03-26", true)] {
        let mut server = Setup::new().start().await;
        let (mut client, mut other) = (server.connect().await, server.connect().await);
        let session = Session::open(&mut server, &mut client, version).await;
        client.post(&tool("7"), &session.header()).await;
        let asked = server.asked().await;
        for broken in
            [r#""jsonrpc":"2.0""#, r#""jsonrpc":"2.0","error":"no""#, r#""result":{}"#, r#""jsonrpc":"2.0","result":5"#]
        {
            let (ask, mut asking) = roots();
            asked.sender.event(Event::Ask(ask));
            if broken == r#""jsonrpc":"2.0""# {
                client.head().await;
            }
            let question = message(&mut client).await;
            let answer = format!(r#"{{"id":{},{broken}}}"#, question["id"]);
            let answer = if is_batch { format!("[{answer}]") } else { answer };
            other.post(&answer, &session.header()).await;
            let (head, body) = other.response().await;
            assert!(body.contains("-32600"), "{answer}: {} {body}", head.status);
            let Answer::Error(error) = bounded(asking.answer()).await else { panic!("{answer}") };
            assert_eq!(error.code(), -32603, "{answer}");
            assert!(error.message().contains("the client's answer cannot be read"), "{}", error.message());
        }
        asked.sender.done(result("{}"));
        assert_eq!(message(&mut client).await["id"], 7);
    }
}

#[tokio::test]
async fn a_quick_answer_is_json_where_a_stream_could_not_be_come_back_to_from_its_beginning() {
    for (version, expected) in [("2025-06-18", "application/json"), ("2025-11-25", "text/event-stream")] {
        let mut server = Setup::new().start().await;
        let mut client = server.connect().await;
        let session = Session::open(&mut server, &mut client, version).await;
        client.post(&tool("7"), &session.header()).await;
        server.asked().await.sender.done(result("{}"));
        let head = client.head().await;
        assert_eq!((head.status, head.get("content-type")), (200, Some(expected)));
    }
}

#[tokio::test]
async fn a_question_comes_on_the_stream_of_its_call_and_the_answer_is_posted() {
    let mut server = Setup::new().start().await;
    let (mut client, mut other) = (server.connect().await, server.connect().await);
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    client.post(&tool("7"), &session.header()).await;
    let asked = server.asked().await;
    let (ask, mut asking) = roots();
    asked.sender.event(Event::Ask(ask));
    client.head().await;
    let question = message(&mut client).await;
    assert_eq!(question["method"], "roots/list");
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"roots": [] }}}}"#, question["id"]);
    other.post(&answer, &session.header()).await;
    let (head, body) = other.response().await;
    assert_eq!((head.status, body.as_str()), (202, ""));
    assert_eq!(bounded(asking.answer()).await, Answer::Result(json(r#"{"roots": [] }"#)));
    other.post(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#, &session.header()).await;
    let (head, body) = other.response().await;
    assert_eq!((head.status, code(&body)), (400, -32600));
    let (ask, asking) = roots();
    asked.sender.event(Event::Ask(ask));
    let question = message(&mut client).await;
    drop(asking);
    let cancelled = message(&mut client).await;
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&"notifications/cancelled".into(), &question["id"])
    );
    asked.sender.done(result("{}"));
    assert_eq!(message(&mut client).await["id"], 7);
}

#[tokio::test]
async fn what_belongs_to_no_call_comes_on_one_get_stream_and_waits_for_it() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    let (ask, _asking) = roots();
    session.attached.sender.event(Event::Ask(ask));
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    assert_eq!(session.get(&mut first, "").await.get("content-type"), Some("text/event-stream"));
    let priming = event(&mut first).await.unwrap();
    assert_eq!((priming.id.as_deref(), priming.message), (Some("0-0"), None));
    assert_eq!(message(&mut first).await["method"], "roots/list");
    // The newest stream gets what comes, the older one only when that is gone.
    session.get(&mut second, "").await;
    assert_eq!(event(&mut second).await.unwrap().id.as_deref(), Some("0-1"));
    session.attached.sender.event(changed("tools"));
    assert_eq!(message(&mut second).await["method"], "notifications/tools/list_changed");
    drop(second);
    // Nothing tells when the server has seen the client go, so what is sent until then may be lost with it.
    let received = async {
        loop {
            session.attached.sender.event(changed("prompts"));
            let waiting = tokio::time::timeout(std::time::Duration::from_millis(20), first.chunk());
            if let Ok(Some(chunk)) = waiting.await {
                break chunk;
            }
        }
    };
    assert!(bounded(received).await.starts_with(b"id: 0-"));
}

#[tokio::test]
async fn an_elicitation_by_url_has_the_id_that_2025_11_25_wants() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    client.post(&tool("7"), &session.header()).await;
    let asked = server.asked().await;
    client.head().await;
    let mut ask = async |params: &str| {
        let question = Question { kind: QuestionKind::Elicitation, params: json(params), key: None };
        let (ask, asking) = Ask::new(question);
        asked.sender.event(Event::Ask(ask));
        (message(&mut client).await["params"].clone(), asking)
    };
    // As a server of 2026-07-28 asks, which has no such ids.
    let url = r#"{"mode":"url","message":"m","url":"https://e.example","n":1.0}"#;
    let (first, _asking) = ask(url).await;
    let (second, _asking) = ask(url).await;
    let mut open = Vec::new();
    assert!(first["elicitationId"].is_string() && first["elicitationId"] != second["elicitationId"], "{first}");
    assert_eq!((&first["url"], &first["n"]), (&value!("https://e.example"), &value!(1.0)));
    for whole in
        [value!({"mode":"url","url":"u","elicitationId":"theirs"}), value!({"message":"m","requestedSchema":{}})]
    {
        let (shown, asking) = ask(&whole.to_string()).await;
        assert_eq!(shown, whole);
        // One that is withdrawn is told so.
        open.push(asking);
    }
}

#[tokio::test]
async fn a_client_that_takes_json_only_gets_the_answer_and_questions_on_its_get_stream() {
    let mut server = Setup::new().start().await;
    let (mut client, mut stream) = (server.connect().await, server.connect().await);
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    session.get(&mut stream, "").await;
    client.post(&tool("7"), &format!("{}accept: application/json\r\n", session.header())).await;
    let asked = server.asked().await;
    asked.sender.event(progress("1"));
    let (ask, _asking) = roots();
    asked.sender.event(Event::Ask(ask));
    assert_eq!(message(&mut stream).await["method"], "roots/list");
    asked.sender.done(result("{}"));
    // The question is not wanted any more.
    assert_eq!(message(&mut stream).await["method"], "notifications/cancelled");
    let (head, body) = client.response().await;
    assert_eq!((head.status, head.get("content-type")), (200, Some("application/json")));
    assert_eq!(body, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
}

#[tokio::test]
async fn a_cancel_reaches_the_server_and_ends_the_stream_without_an_answer() {
    let mut server = Setup::new().start().await;
    let (mut client, mut json_only, mut other) =
        (server.connect().await, server.connect().await, server.connect().await);
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    client.post(&tool("7"), &session.header()).await;
    let asked = server.asked().await;
    client.head().await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    other.post(cancel, &session.header()).await;
    assert_eq!(other.response().await.0.status, 202);
    bounded(asked.sender.cancelled()).await;
    assert!(!asked.sender.is_abandoned());
    assert!(event(&mut client).await.unwrap().message.is_none());
    assert!(event(&mut client).await.is_none());
    assert_eq!(session.get(&mut client, "1-0").await.status, 405);
    json_only.post(&tool("7"), &format!("{}accept: application/json\r\n", session.header())).await;
    let second = server.asked().await;
    other.post(cancel, &session.header()).await;
    other.response().await;
    bounded(second.sender.cancelled()).await;
    let (head, body) = json_only.response().await;
    assert_eq!((head.status, body.as_str()), (202, ""));
}

#[tokio::test]
async fn requests_under_one_id_each_get_their_own_answer() {
    let mut server = Setup::new().start().await;
    let (mut ann, mut bo) = (server.connect().await, server.connect().await);
    let session = Session::open(&mut server, &mut ann, "2025-06-18").await;
    ann.post(&tool("1"), &session.header()).await;
    let for_ann = server.asked().await;
    bo.post(&tool("1"), &session.header()).await;
    let for_bo = server.asked().await;
    for_bo.sender.done(result(r#"{"who":"bo"}"#));
    assert!(bo.response().await.1.contains("bo"));
    for_ann.sender.done(result(r#"{"who":"ann"}"#));
    let head = ann.head().await;
    let answer = if head.get("content-type") == Some("application/json") {
        ann.body(&head).await
    } else {
        message(&mut ann).await.to_string()
    };
    assert!(answer.contains("ann"), "{answer}");
}

#[tokio::test]
async fn a_notification_of_the_client_reaches_the_server_before_its_post_is_answered() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    client.post(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#, &session.header()).await;
    let asked = server.asked().await;
    assert_eq!(asked.call.method, Method::Notify("notifications/roots/list_changed".to_owned()));
    let early = tokio::time::timeout(std::time::Duration::from_millis(50), client.head()).await;
    assert!(early.is_err(), "{early:?}");
    asked.sender.done(result("{}"));
    assert_eq!(client.response().await.0.status, 202);
    client.post(r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"t"}}"#, &session.header()).await;
    let (head, body) = client.response().await;
    assert_eq!((head.status, code(&body)), (400, -32600));
    assert!(server.is_untouched());
}

#[tokio::test]
async fn too_many_get_streams_are_refused() {
    let mut setup = Setup::new();
    setup.limits.streams = 1;
    let mut server = setup.start().await;
    let (mut client, mut first, mut second) = (server.connect().await, server.connect().await, server.connect().await);
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    session.get(&mut first, "").await;
    let head = session.get(&mut second, "").await;
    assert_eq!((head.status, code(&second.body(&head).await)), (503, -31005));
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = server.connect().await;
        assert_eq!(session.get(&mut stream, "").await.status, 200);
        streams.push(stream);
    }
    assert_eq!(session.get(&mut client, "").await.status, 409);
}

#[tokio::test]
async fn get_streams_end_when_the_proxy_stops_and_calls_may_end_first() {
    let mut server = Setup::new().start().await;
    let (mut client, mut stream) = (server.connect().await, server.connect().await);
    let mut session = Session::open(&mut server, &mut client, "2025-11-25").await;
    session.get(&mut stream, "").await;
    client.post(&tool("7"), &session.header()).await;
    let asked = server.asked().await;
    client.head().await;
    server.jobs.stop();
    assert!(event(&mut stream).await.unwrap().message.is_none());
    assert!(event(&mut stream).await.is_none());
    assert!(!session.attached.sender.is_abandoned());
    asked.sender.done(result("{}"));
    assert_eq!(message(&mut client).await["id"], 7);
    assert!(event(&mut client).await.is_none());
    bounded(session.attached.sender.abandoned()).await;
    bounded(server.served).await.unwrap().unwrap();
}
