use std::io;
use std::sync::{Arc, Mutex};

use raincheck::jobs::Workers;
use raincheck::protocol::{Reply, TaskSupport};

use crate::support::*;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn logs_show_what_was_asked_of_whom_and_no_secret() {
    let written = Written::default();
    let to = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
        .with_writer(move || to.clone())
        .finish();
    // The runtime of this test has one thread, and there are no workers, so that all of the front logs here.
    let logging = tracing::subscriber::set_default(subscriber);
    let setup = Setup { workers: Workers::default(), ..Setup::new() };
    let server = setup.start_answering(|_| Reply::ready(result(r#"{"secret-result":1}"#))).await;
    let mut client = server.connect().await;
    // A test beside this one may register a place that logs in the moment in which the subscriber comes, and then the
    // place knows nothing of it. By now all that matter here are registered.
    let (text, headers) = request("0", "tools/call", r#""name":"warm-up","#, "", "mcp-name: warm-up\r\n");
    client.post(&text, &headers).await;
    client.response().await;
    tracing::callsite::rebuild_interest_cache();
    let headers_of_secrets = "authorization: Bearer eyJhbGciOiJub25lIn0.e30.secretAA\r\nx-key: secret-header\r\n";
    let (text, headers) =
        request("\"secret-id\"", "tools/call", r#""name":"add\u0007","arguments":{"a":"secret-argument"},"#, "", "");
    let name = raincheck::protocol::headers::encode_text("add\u{7}").into_owned();
    client.post(&text, &format!("{headers_of_secrets}{headers}mcp-name: {name}\r\n")).await;
    assert_eq!(client.response().await.0.status, 200);
    let (text, headers) = request("1", "tasks/get", r#""taskId":"secret-task","#, "", "");
    client.post(&text, &format!("{headers_of_secrets}{headers}")).await;
    client.response().await;
    let (text, headers) =
        request("1", "resources/read", r#""uri":"file:///secret-uri","#, "", "mcp-name: file:///secret-uri\r\n");
    client.post(&text, &format!("{headers_of_secrets}{headers}")).await;
    client.response().await;
    client.post("secret garbage", headers_of_secrets).await;
    client.response().await;
    drop((client, logging));
    let log = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains(r#"exchange{server="only" method="tools/call" name="add\u{7}"}"#), "{log}");
    assert!(log.contains("outcome=result") && log.contains("ms="), "{log}");
    assert_eq!(log.matches("is a JWT").count(), 1, "{log}");
    assert!(!log.contains("secret"), "{log}");
}

#[tokio::test]
async fn only_what_this_very_request_declares_counts() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let ours = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    let cases = [
        (ours, "", TaskSupport::Declared),
        ("{}", "", TaskSupport::Undeclared),
        (r#"{"extensions":{"io.modelcontextprotocol/tasks":null}}"#, "", TaskSupport::Undeclared),
        (r#"{"io.modelcontextprotocol/tasks":{}}"#, "", TaskSupport::Undeclared),
        (r#"{"tasks":{"list":{}}}"#, "", TaskSupport::Undeclared),
        (
            "{}",
            r#","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1","extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
            TaskSupport::Undeclared,
        ),
        ("{}", r#","extensions":{"io.modelcontextprotocol/tasks":{}}"#, TaskSupport::Undeclared),
        (ours, "", TaskSupport::Declared),
    ];
    for (capabilities, meta, expected) in cases {
        let (text, headers) = call("1", "add", meta);
        let text = text.replacen(r#"clientCapabilities":{}"#, &format!(r#"clientCapabilities":{capabilities}"#), 1);
        client.post(&text, &headers).await;
        let asked = server.asked().await;
        assert_eq!(asked.call.caller.tasks, expected, "{capabilities} {meta}");
        asked.sender.done(result("{}"));
        client.response().await;
    }
}

#[tokio::test]
async fn a_token_that_raincheck_checks_is_not_passed_on() {
    let mut setup = Setup::new();
    setup.owner.tokens = vec![raincheck::config::NamedToken {
        name: "ann".to_owned(),
        token: raincheck::config::TokenProof::Plain("secret".to_owned()),
    }];
    let mut server = setup.start().await;
    let mut client = server.connect().await;
    let (text, headers) = call("1", "add", "");
    client.post(&text, &format!("authorization: Bearer secret\r\nx-tenant: t\r\n{headers}")).await;
    let asked = server.asked().await;
    assert!(!asked.call.caller.credentials.headers().contains_key("authorization"));
    assert_eq!(asked.call.caller.credentials.headers()["x-tenant"], "t");
    asked.sender.done(result("{}"));
    client.response().await;
    client.post(&text, &format!("authorization: Bearer wrong\r\n{headers}")).await;
    let (head, body) = client.response().await;
    assert_eq!((head.status, code(&body)), (401, -31006));
    assert!(server.is_untouched());
}
