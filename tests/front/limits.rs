use std::time::Duration;

use raincheck::protocol::Reply;

use crate::support::*;

#[tokio::test]
async fn a_call_over_the_limit_is_told_so_and_questions_about_tasks_never_are() {
    let mut setup = Setup::new();
    setup.limits.calls = 1;
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
    setup.limits.calls = 1;
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
