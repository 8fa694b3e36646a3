//! Large results (field case 38).

use crate::process::Ground;
use crate::scripted::product;
use crate::upstream::{Transport, Upstream};
use crate::{PATIENCE, member, within};

#[tokio::test]
async fn results_of_any_size_come_whole_and_memory_stays_bounded() {
    for transport in [Transport::Stdio, Transport::Http] {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"task\"\nmode = \"task\"");
        let proxy = ground.start().await;
        let client = proxy.client();
        let warm = {
            let client = client.clone();
            tokio::spawn(async move { client.call("warm", "{}").await })
        };
        upstream.run().await.says("warm").await;
        within(PATIENCE, warm).await.unwrap().result();
        for megabytes in [1, 9, 14, 80] {
            let size = megabytes << 20;
            let text = product(megabytes as u64, size);
            let content = format!(r#"[{{"type":"text","text":"{text}"}}]"#);
            let result = format!(r#"{{"content":{content}}}"#);
            let base = proxy.memory("VmRSS:");
            proxy.forget_peak();

            let sync = {
                let client = client.clone();
                tokio::spawn(async move { client.call("sync", "{}").await })
            };
            upstream.run().await.answer(&result).await;
            let answer = within(PATIENCE * 2, sync).await.unwrap();
            assert!(member(answer.raw_result(), "content") == content, "{transport:?}, {megabytes} MB: changed");
            drop(answer);
            let sync_peak = proxy.memory("VmHWM:").saturating_sub(base);

            proxy.forget_peak();
            let id = client.handle("task", "{}").await;
            upstream.run().await.answer(&result).await;
            let ended = within(PATIENCE * 2, client.ended(&id)).await;
            assert!(member(ended.outcome(), "content") == content, "{transport:?}, {megabytes} MB: changed in a task");
            drop(ended);
            let task_peak = proxy.memory("VmHWM:").saturating_sub(base);
            println!(
                "{transport:?} {megabytes} MB: base {} MB, peak sync +{}, task +{}",
                base >> 20,
                sync_peak >> 20,
                task_peak >> 20
            );
            // A few megabytes are for everything else.
            let bound = 4 * size as u64 + (24 << 20);
            assert!(
                sync_peak < bound && task_peak < bound,
                "{transport:?}, {megabytes} MB: {sync_peak} and {task_peak} bytes, {base} before"
            );
        }
        // One process and one session did it all.
        assert_eq!(upstream.ledger().len(), 9);
        assert_eq!(proxy.stop().await, Some(0));
    }
}
