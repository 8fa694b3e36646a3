//! What servers say besides their answers (field cases 34, 36, 46).

use crate::bounded;
use crate::process::Ground;
use crate::upstream::{Transport, Upstream};

#[tokio::test]
async fn what_a_server_says_besides_reaches_nobody() {
    for transport in [Transport::Stdio, Transport::Http] {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, "");
        let proxy = ground.start().await;
        let (loud, other) = (proxy.client(), proxy.client());
        let first = tokio::spawn(async move { loud.call("noisy", "{}").await });
        let mut run = upstream.run().await;
        let second = tokio::spawn(async move { other.call("other", "{}").await });
        let mut unharmed = upstream.run().await;
        let ghost =
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"ghost","progress":1}}"#;
        let noise = ["Server started", "\u{1b}[32mready\u{1b}[0m", r#"{"level":"info"}"#, "null", "42", "", ghost];
        for line in noise {
            if matches!(transport, Transport::Stdio) || line == ghost {
                run.message(line).await;
            }
        }
        let said = "left\u{2028}right\u{2029}end\u{85}";
        let result = format!(r#"{{"content":[{{"type":"text","text":"{said}"}}]}}"#);
        let late = {
            let (token, progress) = (run.progress_token(), r#""progress":9"#);
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},{progress}}}}}"#
            )
        };
        run.answer(&result).await;
        if matches!(transport, Transport::Stdio) {
            run.message(&late).await;
            run.message(&late).await;
        }
        let answer = bounded(first).await.unwrap();
        assert_eq!(answer.result()["content"][0]["text"], said, "{transport:?}");
        assert!(!answer.body.contains("notifications/"), "{}", answer.body);
        unharmed.says("unharmed").await;
        let answer = bounded(second).await.unwrap();
        assert_eq!(answer.result()["content"][0]["text"], "unharmed", "{transport:?}");
        assert!(!answer.body.contains("notifications/"), "{}", answer.body);
    }
}
