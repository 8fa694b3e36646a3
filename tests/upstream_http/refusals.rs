//! Refusals with 400, which may be about a call or about its session: the server is asked, and its words are passed on.

use crate::client::client;
use crate::http_server::Server;

const REFUSAL: &str = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"tenant header is missing"}}"#;

#[tokio::test]
async fn what_a_server_refuses_with_400_is_told_in_its_words_however_much_it_answered_before() {
    let server = Server::legacy(|seen, wire| async move {
        if seen.tool() != "refused" {
            return wire.json(&seen.says("done")).await;
        }
        wire.respond("400 Bad Request", &[("Content-Type", "application/json")], REFUSAL).await
    })
    .await;
    let client = client(&server);
    for _ in 0..2 {
        client.call("fine").await.says("done");
        assert_eq!(client.call("refused").await.error().message(), "tenant header is missing");
    }
    assert_eq!((server.seen_of("initialize").len(), server.seen_of("ping").len()), (1, 2));
}

#[tokio::test]
async fn what_a_server_says_that_refuses_all_of_a_session_is_told() {
    let server = Server::legacy(|_, wire| async move {
        wire.respond("400 Bad Request", &[("Content-Type", "application/json")], REFUSAL).await
    })
    .await;
    let client = client(&server);
    let seen = client.call("any").await;
    let message = &seen.failure().message;
    assert!(message.contains("400 Bad Request: tenant header is missing"), "{message}");
}

#[tokio::test]
async fn a_status_that_speaks_of_a_wrong_address_says_what_to_look_at() {
    for (status, says) in [
        ("302 Found", "redirects"),
        ("405 Method Not Allowed", "is the url of this server that of its MCP endpoint"),
        ("410 Gone", "is the url of this server that of its MCP endpoint"),
    ] {
        let server = Server::legacy(move |_, wire| async move { wire.respond(status, &[], "").await }).await;
        let message = client(&server).call("any").await.failure().message.clone();
        assert!(message.contains(status) && message.contains(says), "{status}: {message}");
    }
}
