use std::time::Duration;

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
    let server = setup.start_answering(|_| Reply::ready(result("{}"))).await;
    let (text, headers) = call("1", "add", "");
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect().await;
        client.post(&text, &headers).await;
        assert_eq!(client.response().await.0.status, 200);
        clients.push(client);
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
    let mut asks = server.connect().await;
    asks.post(&text, &headers).await;
    assert_eq!(asks.response().await.0.status, 200);
    let mut silent = Vec::new();
    for _ in 0..3 {
        let mut client = server.connect().await;
        client.send("POST /mcp HTTP/1.1\r\nhost: lo").await;
        silent.push(client);
    }
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
        let _running = server.asked().await;
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
