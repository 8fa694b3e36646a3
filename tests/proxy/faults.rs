//! The system or the server misbehaves: no descriptors are left, answers come twice or too late.

use std::time::Instant;

use tokio::net::TcpStream;

use crate::process::Ground;
use crate::upstream::{Transport, Upstream};
use crate::{bounded, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn without_file_descriptors_it_waits_and_goes_on_when_there_are_some() {
    const FILES: u32 = 96;
    let upstream = Upstream::stdio().await;
    // Who needs a new connection gets it when the idle ones have taken too long to say anything.
    let rest = "[limits]\nread_timeout = \"2s\"\n[[tool]]\nmatch = \"task\"\nmode = \"task\"";
    let ground = Ground::new(&upstream, rest).with_files(FILES);
    let proxy = ground.start().await;
    let known = proxy.client();
    let id = known.handle("task", "{}").await;
    let mut run = upstream.run().await;

    let address = proxy.base.strip_prefix("http://").unwrap();
    let (mut idle, began) = (Vec::new(), Instant::now());
    for _ in 0..2 * FILES {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    eventually("nothing more can be accepted", || proxy.log().contains("cannot accept connections")).await;
    let open = proxy.files();
    assert!(open <= FILES as usize + 8, "{open} files are open");
    // Whoever is connected is served, and what runs ends and is kept.
    assert_eq!(known.get(&id).await.result()["status"], "working");
    run.says("kept").await;
    assert_eq!(known.ended(&id).await.result()["result"]["content"][0]["text"], "kept");

    // It must not fill the log with what it cannot accept.
    let said = proxy.log().matches("cannot accept connections").count();
    let tenths = began.elapsed().as_millis() / 100;
    assert!(said as u128 <= tenths + 1, "{said} lines in {tenths} tenths of a second");

    drop(idle);
    let newcomer = proxy.client();
    let later = newcomer.handle("task", "{}").await;
    upstream.run().await.says("served").await;
    assert_eq!(newcomer.ended(&later).await.result()["result"]["content"][0]["text"], "served");
    eventually("the connections are closed", || proxy.files() < 60).await;
    assert_eq!(proxy.stop().await, Some(0));
}

#[tokio::test]
async fn of_two_answers_the_first_counts_and_a_late_one_reaches_nobody() {
    for transport in [Transport::Stdio, Transport::Http] {
        let upstream = Upstream::start(transport).await;
        let rest = "[[tool]]\nmatch = \"task\"\nmode = \"task\"\n[[tool]]\nmatch = \"short\"\nmode = \"task\"\ntimeout = \"100ms\"";
        let ground = Ground::new(&upstream, rest);
        let proxy = ground.start().await;
        let client = proxy.client();
        let twice = client.handle("task", "{}").await;
        let mut run = upstream.run().await;
        let text = |text: &str| format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
        let (first, second) = (run.result(&text("first")), run.result(&text("second")));
        run.message(&first).await;
        run.message(&second).await;
        let ended = client.ended(&twice).await.result();
        assert_eq!(ended["result"]["content"][0]["text"], "first", "{transport:?}");

        // Given up at its limit; its answer comes afterwards.
        let given_up = client.handle("short", "{}").await;
        let mut late = upstream.run().await;
        let ended = client.ended(&given_up).await;
        assert_eq!(ended.result()["error"]["data"]["reason"], "timeout", "{transport:?}");
        upstream.cancels(1).await;
        // Over HTTP the connection may be gone by now.
        late.answer(&text("too late")).await;

        let next = client.handle("task", "{}").await;
        upstream.run().await.answer(&text("next")).await;
        assert_eq!(client.ended(&next).await.result()["result"]["content"][0]["text"], "next", "{transport:?}");
        for (id, before) in [(&given_up, ended)] {
            assert_eq!(bounded(client.get(id)).await.result()["error"], before.result()["error"], "{transport:?}");
        }
        assert_eq!(client.get(&twice).await.result()["result"]["content"][0]["text"], "first", "{transport:?}");
    }
}
