use raincheck::protocol::Progress;

use super::*;

fn progress(number: u32) -> Event {
    Event::Progress(Progress { progress: json(&number.to_string()), total: None, message: None })
}

#[tokio::test]
async fn a_call_goes_on_when_its_client_leaves_and_the_client_can_come_back_for_the_answer() {
    for version in ["2025-06-18", "2025-11-25"] {
        let mut server = Setup::new().start().await;
        let (mut client, mut again) = (server.connect().await, server.connect().await);
        let session = Session::open(&mut server, &mut client, version).await;
        client.post(&tool("7"), &session.header()).await;
        let asked = server.asked().await;
        client.head().await;
        asked.sender.event(progress(1));
        let seen = loop {
            let event = event(&mut client).await.unwrap();
            if event.message.is_some() {
                break event.id.unwrap();
            }
        };
        drop(client);
        asked.sender.event(progress(2));
        assert_eq!(session.get(&mut again, &seen).await.status, 200);
        assert_eq!(message(&mut again).await["params"]["progress"], 2);
        assert!(!asked.sender.is_cancelled());
        asked.sender.done(result("{}"));
        assert_eq!(message(&mut again).await["id"], 7);
        assert_eq!(event(&mut again).await, None);
        // All of it once more, and nothing of it when it was seen.
        assert_eq!(session.get(&mut again, &seen).await.status, 200);
        assert_eq!(message(&mut again).await["params"]["progress"], 2);
        assert_eq!(message(&mut again).await["id"], 7);
        assert_eq!(event(&mut again).await, None);
        assert_eq!(session.get(&mut again, "1-3").await.status, 405);
    }
}

#[tokio::test]
async fn the_answer_waits_for_a_client_that_had_no_more_than_the_priming_event() {
    let mut server = Setup::new().start().await;
    let (mut client, mut again) = (server.connect().await, server.connect().await);
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    client.post(&tool("7"), &session.header()).await;
    let asked = server.asked().await;
    client.head().await;
    assert_eq!(event(&mut client).await.unwrap().id.as_deref(), Some("1-0"));
    drop(client);
    asked.sender.done(result("{}"));
    assert_eq!(session.get(&mut again, "1-0").await.status, 200);
    assert_eq!(message(&mut again).await["id"], 7);
    assert_eq!(event(&mut again).await, None);
}

#[tokio::test]
async fn a_stream_that_the_server_drops_at_once_has_its_priming_event_and_is_one_to_come_back_to() {
    let mut server = Setup::new().start().await;
    let (mut client, mut again) = (server.connect().await, server.connect().await);
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    client.post(&tool("7"), &session.header()).await;
    let asked = server.asked().await;
    asked.sender.event(Event::Paused);
    assert_eq!(client.head().await.status, 200);
    assert_eq!(event(&mut client).await.unwrap().id.as_deref(), Some("1-0"));
    assert_eq!(event(&mut client).await, None);
    asked.sender.done(result("{}"));
    assert_eq!(session.get(&mut again, "1-0").await.status, 200);
    assert_eq!(message(&mut again).await["id"], 7);
}

#[tokio::test]
async fn a_get_stream_goes_on_after_the_last_event_that_was_seen() {
    let mut server = Setup::new().start().await;
    let (mut client, mut stream, mut again) = (server.connect().await, server.connect().await, server.connect().await);
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    session.get(&mut stream, "").await;
    for _ in 0..3 {
        session.attached.sender.event(Event::Ask(roots().0));
    }
    for _ in 0..3 {
        message(&mut stream).await;
    }
    drop(stream);
    session.get(&mut again, "0-1").await;
    let ids: Vec<_> = [event(&mut again).await, event(&mut again).await].into_iter().map(|it| it.unwrap().id).collect();
    assert_eq!(ids, [Some("0-2".to_owned()), Some("0-3".to_owned())]);
}

#[tokio::test]
async fn events_that_never_were_or_are_of_another_session_are_refused() {
    let mut server = Setup::new().start().await;
    let (mut client, mut again) = (server.connect().await, server.connect().await);
    let other = Session::open(&mut server, &mut client, "2025-11-25").await;
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    client.post(&tool("7"), &session.header()).await;
    let _asked = server.asked().await;
    client.head().await;
    for last in ["1-1", "2-0", "99-0", "0-1", "x", "1", "-", "1-0-0"] {
        let head = session.get(&mut again, last).await;
        assert_eq!((head.status, code(&again.body(&head).await)), (400, -32600), "{last}");
    }
    let head = other.get(&mut again, "1-0").await;
    assert_eq!((head.status, code(&again.body(&head).await)), (400, -32600));
    assert_eq!(session.get(&mut again, "1-0").await.status, 200);
}

#[tokio::test]
async fn of_streams_that_ended_only_the_last_are_kept() {
    let mut server = Setup::new().start().await;
    let (mut client, mut again) = (server.connect().await, server.connect().await);
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    for id in 1..=40 {
        client.post(&tool(&id.to_string()), &session.header()).await;
        server.asked().await.sender.done(result("{}"));
        client.response().await;
    }
    let head = session.get(&mut again, "1-0").await;
    assert_eq!((head.status, code(&again.body(&head).await)), (400, -32600));
    assert_eq!(session.get(&mut again, "40-0").await.status, 200);
    assert_eq!(message(&mut again).await["id"], 40);
}
