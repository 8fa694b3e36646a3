//! A server's URL that leads back to the proxy, and proxies one behind the other.

use crate::bounded;
use crate::process::{Ground, Proxy};

/// A proxy on a port that was free a moment ago.
async fn on_port(port: u16, server: &str) -> (Ground, Proxy) {
    let ground = Ground::public(&format!("http://127.0.0.1:{port}"), port, server);
    let proxy = ground.start().await;
    (ground, proxy)
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn a_call_that_comes_round_is_refused_at_once() {
    for era in ["legacy", "modern", "auto"] {
        let (one, other) = (free_port(), free_port());
        let behind = |port: u16| format!("url = \"http://localhost:{port}/mcp\"\nera = \"{era}\"");
        let (_itself, itself) = on_port(one, &behind(one)).await;
        let before = itself.files();
        for tool in ["a", "b", "c"] {
            let answer = bounded(itself.client().call(tool, "{}")).await;
            assert!(answer.message.contains("leads back"), "{era}: {}", answer.message);
        }
        assert!(itself.files() < before + 20, "{era}: {before} to {}", itself.files());
        drop(itself);
        let (_first, first) = on_port(one, &behind(other)).await;
        let (_second, second) = on_port(other, &behind(one)).await;
        for proxy in [&first, &second] {
            let answer = bounded(proxy.client().call("a", "{}")).await;
            assert!(answer.message.contains("leads back"), "{era}: {}", answer.message);
        }
    }
}

#[tokio::test]
async fn proxies_one_behind_the_other_work() {
    for era in ["legacy", "modern", "auto"] {
        let ground = Ground::demo("");
        let demo = ground.start().await;
        let behind = |proxy: &Proxy| format!("url = \"{}/mcp\"\nera = \"{era}\"", proxy.base);
        let ground_of_second = Ground::before(&behind(&demo), "");
        let second = ground_of_second.start().await;
        let ground_of_third = Ground::before(&behind(&second), "");
        let third = ground_of_third.start().await;
        let answer = bounded(third.client().call("quick", r#"{"text":"x"}"#)).await;
        assert!(!answer.result()["isError"].as_bool().unwrap_or_default(), "{era}: {}", answer.message);
    }
}
