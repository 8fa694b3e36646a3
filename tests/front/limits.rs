use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use raincheck::protocol::Reply;

use crate::support::*;

#[tokio::test]
async fn a_call_over_the_limit_is_told_so_and_questions_about_tasks_never_are() {
    let mut setup = Setup::new();
    (setup.limits.calls, setup.limits.queue) = (1, 0);
    let mut server = setup.start().await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    let (text, headers) = call("1", "slow", "");
    first.post(&text, &headers).await;
    let running = server.asked().await;
    second.post(&text, &headers).await;
    let (head, body) = second.response().await;
    assert_eq!((head.status, code(&body)), (200, -31005));
    assert!(body.contains("limits.calls") && body.contains("\"retryable\":true"), "{body}");
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let (text, headers) = request("2", method, r#""taskId":"t","#, "", "");
        second.post(&text, &headers).await;
        server.asked().await.sender.done(result("{}"));
        assert_eq!(second.response().await.0.status, 200, "{method}");
    }
    running.sender.done(result("{}"));
    first.response().await;
    second.post(&text, &headers).await;
    server.asked().await.sender.done(result("{}"));
    assert!(second.response().await.1.contains("result"));
}

#[tokio::test]
async fn invented_tokens_have_one_share_of_the_calls_and_those_a_server_has_taken_one_each() {
    let mut setup = Setup::new();
    (setup.limits.calls, setup.limits.queue) = (3, 0);
    let mut server = setup.start().await;
    let mut running = Vec::new();
    let (text, headers) = call("1", "slow", "");
    for token in ["a", "b", "c"] {
        let mut client = server.connect().await;
        client.post(&text, &format!("authorization: Bearer {token}\r\n{headers}")).await;
        if token == "c" {
            let (_, body) = bounded(client.response()).await;
            assert!(code(&body) == -31005 && body.contains("limits.calls"), "{body}");
            break;
        }
        running.push((client, server.asked().await));
    }
    for (_, asked) in &running {
        asked.call.caller.principal.taken();
    }
    let mut client = server.connect().await;
    client.post(&text, &format!("authorization: Bearer d\r\n{headers}")).await;
    server.asked().await;
}

#[tokio::test]
async fn a_call_that_was_left_gives_its_place_back() {
    let mut setup = Setup::new();
    (setup.limits.calls, setup.limits.queue) = (1, 0);
    let mut server = setup.start().await;
    for _ in 0..3 {
        let mut client = server.connect().await;
        let (text, headers) = call("1", "slow", "");
        client.post(&text, &headers).await;
        let mut asked = server.asked().await;
        drop(client);
        bounded(asked.sender.abandoned()).await;
    }
}

#[tokio::test]
async fn a_connection_over_the_limit_is_told_so() {
    let mut setup = Setup::new();
    setup.limits.connections = 2;
    let mut server = setup.start().await;
    let (text, headers) = call("1", "add", "");
    let mut busy = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect().await;
        client.post(&text, &headers).await;
        busy.push((client, server.asked().await));
    }
    for _ in 0..40 {
        let mut client = server.connect().await;
        client.post(&text, &headers).await;
        let (head, body) = client.response().await;
        assert_eq!((head.status, head.get("retry-after"), code(&body)), (503, Some("1"), -31005));
        assert!(body.contains("limits.connections"), "{body}");
        assert_eq!(client.rest().await, "");
    }
}

#[tokio::test]
async fn connections_that_ask_nothing_keep_nobody_out() {
    let mut setup = Setup::new();
    setup.limits.connections = 4;
    let server = setup.start_answering(|_| Reply::ready(result("{}"))).await;
    let (text, headers) = call("1", "add", "");
    let mut silent = Vec::new();
    for _ in 0..3 {
        let mut client = server.connect().await;
        client.send("POST /mcp HTTP/1.1\r\nhost: lo").await;
        silent.push(client);
    }
    let mut asks = server.connect().await;
    asks.post(&text, &headers).await;
    assert_eq!(asks.response().await.0.status, 200);
    let mut statuses = Vec::new();
    let answered = async {
        while statuses.last() != Some(&200) {
            let mut honest = server.connect().await;
            honest.post(&text, &headers).await;
            statuses.push(honest.response().await.0.status);
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), answered).await.expect("they keep others out");
    // Nobody is put out who may just have asked: until they have been silent for a second the answer is a refusal.
    assert_eq!(statuses.iter().find(|status| **status != 503), Some(&200));
    // The first of them made room, and got no answer.
    assert_eq!(silent[0].rest().await, "");
    asks.post(&text, &headers).await;
    assert_eq!(asks.response().await.0.status, 200, "who has asked is still there");
}

/// A connection of HTTP/2, and what sends requests on it; the job ends with the connection.
async fn http2(server: &Server) -> (SendRequest<Full<Bytes>>, tokio::task::JoinHandle<hyper::Result<()>>) {
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    (sender, tokio::spawn(connection))
}

/// Connects until it is let in, which takes a second, and calls; what was answered before that.
async fn let_in(server: &mut Server) -> (Client, Vec<u16>) {
    let (text, headers) = call("1", "add", "");
    let mut refused = Vec::new();
    let asks = async {
        loop {
            let mut client = server.connect().await;
            client.post(&text, &headers).await;
            tokio::select! {
                asked = server.asked() => {
                    asked.sender.done(result("{}"));
                    assert_eq!(client.response().await.0.status, 200);
                    return client;
                }
                (head, _) = client.response() => refused.push(head.status),
            }
        }
    };
    let client = tokio::time::timeout(Duration::from_secs(20), asks).await.expect("idle connections keep others out");
    (client, refused)
}

#[tokio::test]
async fn idle_connections_make_room_in_good_order_the_longest_idle_first_and_busy_ones_do_not() {
    let mut setup = Setup::new();
    setup.limits.connections = 3;
    let mut server = setup.start().await;
    let (mut busy, _busy_connection) = http2(&server).await;
    let waiting = tokio::spawn(busy.send_request(crate::http2::request(&server)));
    let asked = server.asked().await;
    // Both are answered, and idle from then on.
    let (mut first, first_connection) = http2(&server).await;
    let answer = tokio::spawn(first.send_request(crate::http2::request(&server)));
    server.asked().await.sender.done(result("{}"));
    let response = bounded(answer).await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    drop(response.into_body().collect().await.unwrap());
    let (mut second, _) = let_in(&mut server).await;
    let (third, refused) = let_in(&mut server).await;
    assert!(refused.iter().all(|status| *status == 503), "{refused:?}");
    // It was told to go (GOAWAY), which is no error.
    bounded(first_connection).await.unwrap().unwrap();
    let (fourth, _) = let_in(&mut server).await;
    assert_eq!(second.rest().await, "");
    asked.sender.done(result("{}"));
    assert_eq!(bounded(waiting).await.unwrap().unwrap().status(), 200, "a busy one was put out");
    drop((third, fourth));
}

#[tokio::test]
async fn nobody_takes_the_last_places_for_calls_and_streams() {
    let greedy = "authorization: Bearer greedy\r\n";
    let anns = "authorization: Bearer ann\r\n";
    let mut setup = Setup::new();
    (setup.limits.calls, setup.limits.queue, setup.limits.streams) = (1, 1, 2);
    let mut server = setup.start().await;
    let subscription = listen("1", "{}", false);
    for (text, headers) in [call("1", "slow", ""), subscription] {
        let (mut first, mut second, mut ann) = (server.connect().await, server.connect().await, server.connect().await);
        first.post(&text, &format!("{headers}{greedy}")).await;
        let running = server.asked().await;
        // Else all at one address would be one owner.
        running.call.caller.principal.taken();
        second.post(&text, &format!("{headers}{greedy}")).await;
        let (head, body) = second.response().await;
        assert_eq!((head.status, code(&body)), (200, -31005));
        assert!(body.contains("of yours") && body.contains("are for others"), "{body}");
        ann.post(&text, &format!("{headers}{anns}")).await;
        server.asked().await;
    }
}

#[tokio::test]
async fn a_stop_ends_subscriptions_gracefully_and_lets_calls_end() {
    let mut server = Setup::new().start().await;
    let (mut listener, mut caller, mut idle) = (server.connect().await, server.connect().await, server.connect().await);
    let (text, headers) = listen("5", "{}", false);
    listener.post(&text, &headers).await;
    let subscribed = server.asked().await;
    subscribed.sender.event(acknowledged("{}"));
    listener.head().await;
    listener.message().await.unwrap();
    let (text, headers) = call("6", "slow", "");
    caller.post(&text, &headers).await;
    let asked = server.asked().await;
    caller.head().await;
    idle.post(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#, "").await;
    idle.response().await;
    server.jobs.stop();
    let expected = serde_json::json!({"jsonrpc": "2.0", "id": 5, "result": {"resultType": "complete",
        "_meta": {"io.modelcontextprotocol/subscriptionId": 5}}});
    assert_eq!(listener.message().await.unwrap(), expected);
    assert_eq!(listener.chunk().await, None);
    let mut sender = subscribed.sender;
    bounded(sender.abandoned()).await;
    assert_eq!(idle.rest().await, "");
    assert!(!asked.sender.is_cancelled());
    asked.sender.done(result("{}"));
    assert!(caller.message().await.unwrap()["result"].is_object());
    bounded(server.served).await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn tasks_are_answered_for_as_long_as_runs_go_on() {
    let mut server = Setup::new().start().await;
    let mut open = server.connect().await;
    let (text, headers) = request("1", "tasks/get", r#""taskId":"t","#, "", "");
    open.post(&text, &headers).await;
    server.asked().await.sender.done(result("{}"));
    open.response().await;
    server.fronts.stop();
    let mut new = server.connect().await;
    for client in [&mut open, &mut new] {
        client.post(&text, &headers).await;
        server.asked().await.sender.done(result("{}"));
        assert_eq!(client.response().await.0.status, 200);
    }
    server.jobs.stop();
    assert_eq!((open.rest().await, new.rest().await), (String::new(), String::new()));
    bounded(server.served).await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn a_large_answer_keeps_its_place_until_it_is_out() {
    let mut setup = Setup::new();
    (setup.limits.calls, setup.limits.queue) = (1, 0);
    let mut server = setup.start().await;
    for slow in [false, true] {
        let (mut first, mut second) = (server.connect().await, server.connect().await);
        let (text, headers) = call("1", "large", if slow { r#","progressToken":1"# } else { "" });
        first.post(&text, &headers).await;
        let running = server.asked().await;
        if slow {
            first.head().await;
        }
        // More than the socket's buffers hold.
        running.sender.done(result(&format!("{{\"t\":\"{}\"}}", "x".repeat(32 << 20))));
        let head = if slow { None } else { Some(first.head().await) };
        second.post(&text, &headers).await;
        assert_eq!(code(&bounded(second.response()).await.1), -31005);
        match head {
            Some(head) => assert!(first.body(&head).await.len() > 32 << 20),
            None => assert!(first.message().await.unwrap()["result"].is_object()),
        }
        let free = async {
            loop {
                second.post(&text, &headers).await;
                if let Ok(asked) = tokio::time::timeout(Duration::from_millis(100), server.asked()).await {
                    asked.sender.done(result("{}"));
                    return second.head().await;
                }
                second.response().await;
            }
        };
        assert_eq!(bounded(free).await.status, 200);
    }
}

#[tokio::test]
async fn senders_that_announce_much_and_send_little_keep_nobody_waiting() {
    let mut setup = Setup::new();
    setup.limits.body = 1 << 20;
    let server = setup.start_answering(|_| Reply::ready(result("{}"))).await;
    let (text, headers) = call("1", "add", "");
    let mut slow = Vec::new();
    for _ in 0..64 {
        let mut client = server.connect().await;
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n{}",
            " ".repeat(70 << 10)
        );
        client.send(head).await;
        slow.push(client);
    }
    let mut client = server.connect().await;
    let padded = format!("{text}{}", " ".repeat(900 << 10));
    client.post(&padded, &headers).await;
    assert!(client.response().await.1.contains("result"));
}

#[tokio::test]
async fn what_is_open_after_the_grace_time_is_cut_and_cancelled() {
    let mut setup = Setup::new();
    setup.grace = Duration::from_millis(50);
    let mut server = setup.start().await;
    let mut client = server.connect().await;
    let (text, headers) = call("6", "slow", "");
    client.post(&text, &headers).await;
    let mut asked = server.asked().await;
    server.jobs.stop();
    bounded(asked.sender.abandoned()).await;
    bounded(server.served).await.unwrap().unwrap();
}
