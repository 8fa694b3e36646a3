//! Not a byte of what a server says is changed (field cases 64, 66).

use crate::process::Ground;
use crate::upstream::{Transport, Upstream};
use crate::{bounded, member};

const NUMBERS: &str = r#"{"a":9007199254740995,"b":-9223372036854775808,"c":18446744073709551615,"d":1e400,"e":0.1,"f":1E2,"g":1.0,"h":1234567890123456789012345678901234567890,"i":-0}"#;

#[tokio::test]
async fn numbers_keep_their_spelling_as_results_tasks_and_after_a_restart() {
    for transport in [Transport::Stdio, Transport::Http] {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"task\"\nmode = \"task\"");
        let proxy = ground.start().await;
        let client = proxy.client();
        let result = format!(r#"{{"content":[],"structuredContent":{NUMBERS}}}"#);

        let sync = {
            let client = client.clone();
            tokio::spawn(async move { client.call("sync", NUMBERS).await })
        };
        let mut run = upstream.run().await;
        assert_eq!(run.arguments(), NUMBERS, "{transport:?}");
        run.answer(&result).await;
        let answer = bounded(sync).await.unwrap();
        assert_eq!(member(answer.raw_result(), "structuredContent"), NUMBERS, "{transport:?}");

        let id = client.handle("task", NUMBERS).await;
        let mut run = upstream.run().await;
        assert_eq!(run.arguments(), NUMBERS, "{transport:?}");
        run.answer(&result).await;
        // Not read as JSON on the way: no float holds these.
        let before = client.until_spelled(&id, |task| member(task, "status") == r#""completed""#).await.message;
        assert_eq!(member(member(member(&before, "result"), "result"), "structuredContent"), NUMBERS);

        assert_eq!(proxy.stop().await, Some(0));
        let proxy = ground.start().await;
        let after = proxy.client().get(&id).await;
        assert_eq!(member(after.outcome(), "structuredContent"), NUMBERS, "{transport:?}");
    }
}

#[tokio::test]
async fn nothing_that_a_server_says_is_lost() {
    let members = r#""content":[{"type":"hologram","beams":[1,2]},{"type":"text","text":"t","annotations":{"priority":0.50}}],"structuredContent":{"b":1,"a":{}},"_meta":{"com.example/x":1,"traceparent":"00-1-2-03"},"isError":false,"zzz":{"y":[null,true]}"#;
    let upstream = Upstream::http().await;
    let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"task\"\nmode = \"task\"");
    let proxy = ground.start().await;
    let client = proxy.client();
    let result = format!("{{{members}}}");

    let sync = {
        let client = client.clone();
        tokio::spawn(async move { client.call("sync", "{}").await })
    };
    upstream.run().await.answer(&result).await;
    let answer = bounded(sync).await.unwrap();
    assert_eq!(answer.raw_result(), format!(r#"{{"resultType":"complete",{members}}}"#));

    let id = client.handle("task", "{}").await;
    upstream.run().await.answer(&result).await;
    let ended = client.ended(&id).await;
    assert_eq!(ended.outcome(), format!(r#"{{"resultType":"complete",{members}}}"#));

    // An error is kept word for word as well.
    let error = r#"{"code":-32010,"message":"the roof leaks","data":{"n":9007199254740995,"zzz":[]},"extra":1}"#;
    let id = client.handle("task", "{}").await;
    upstream.run().await.fails(error).await;
    let failed = client.ended(&id).await;
    assert_eq!(failed.result()["status"], "failed");
    assert_eq!(member(failed.raw_result(), "error"), error);
}

#[tokio::test]
async fn what_an_older_server_calls_the_type_of_its_result_is_not_taken_for_that_of_the_protocol() {
    for transport in [Transport::Stdio, Transport::Http] {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"task\"\nmode = \"task\"");
        let proxy = ground.start().await;
        let client = proxy.client();
        for kind in [r#""table""#, r#""input_required""#, r#""task""#, "5", "null"] {
            let result = format!(r#"{{"content":[],"result\u0054ype":{kind},"inputRequests":{{}},"n":1.0}}"#);
            let shown = r#"{"resultType":"complete","content":[],"inputRequests":{},"n":1.0}"#;
            let sync = {
                let client = client.clone();
                tokio::spawn(async move { client.call("sync", "{}").await })
            };
            upstream.run().await.answer(&result).await;
            assert_eq!(bounded(sync).await.unwrap().raw_result(), shown, "{transport:?} {kind}");

            let id = client.handle("task", "{}").await;
            upstream.run().await.answer(&result).await;
            assert_eq!(client.ended(&id).await.outcome(), shown, "{transport:?} {kind}");
        }
        assert_eq!(proxy.stop().await, Some(0));
    }
}
