//! An operator at the command line: the admin listener of a proxy, and what its times advise.

use std::process::Output;
use std::time::Duration;

use raincheck::history::Measured;
use serde_json::Value;

use crate::process::{Ground, Proxy};
use crate::{PATIENCE, member, within};

/// Runs a command of the operator to its end.
async fn raincheck(arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_raincheck"));
    command.args(arguments).env("ADMIN_TOKEN", "t0ken").kill_on_drop(true);
    within(PATIENCE, command.output()).await.unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The URL of the admin listener, from the log.
async fn admin_of(proxy: &Proxy) -> String {
    proxy.says("operators are served").await;
    let log = proxy.log();
    let line = log.lines().find(|line| line.contains("operators are served")).unwrap();
    format!("http://{}", line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap())
}

async fn admin_get(url: &str, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer t0ken\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    within(PATIENCE, stream.read_to_string(&mut text)).await.unwrap();
    text
}

#[tokio::test]
async fn an_operator_lists_shows_and_cancels_at_the_command_line() {
    let rest = "[admin]\nhttp = \"127.0.0.1:0\"\ntoken = \"t0ken\"\n[defaults]\nmode = \"task\"";
    let ground = Ground::demo(rest);
    let proxy = ground.start().await;
    let url = admin_of(&proxy).await;
    let client = proxy.client();
    let arguments = r#""name":"slow_report","arguments":{"seconds":600}"#;
    let created = client.ask("tools/call", "slow_report", arguments).await;
    let created: Value = serde_json::from_str(member(&created.message, "result")).unwrap();
    let id = created["taskId"].as_str().unwrap();
    let access = ["--url", url.as_str(), "--token-env", "ADMIN_TOKEN"];
    let admin = async |words: &[&str]| raincheck(&[&["admin"], words, &access].concat()).await;

    // Until its server has been started it is queued.
    let look = async {
        loop {
            let listed = admin(&["list", "--state", "running"]).await;
            assert!(listed.status.success(), "{}", said(&listed));
            if said(&listed).contains(id) {
                return said(&listed);
            }
        }
    };
    assert!(within(PATIENCE, look).await.contains("slow_report"));
    let shown = admin(&["show", id, "--json"]).await;
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((shown["state"].as_str(), shown["server"].as_str()), (Some("running"), Some("behind")));
    // As a line of the log shows it.
    let short = format!("{}…", &id[..14]);
    assert!(said(&admin(&["show", &short]).await).contains(id));
    client.ask("tools/list", "", "").await;
    for tool in ["broken", "made_up"] {
        let task = client.handle(tool, "{}").await;
        client.ended(&task).await;
    }
    let metrics = admin_get(&url, "/metrics").await;
    assert!(!metrics.contains("made_up"), "{metrics}");
    for line in [
        "raincheck_runs_total{server=\"behind\",tool=\"broken\",outcome=\"server_error\"} 1",
        "raincheck_upstream_sessions{server=\"behind\"} 1",
        "raincheck_upstream_sessions_opened_total{server=\"behind\"} 1",
        "raincheck_upstream_sessions_lost_total{server=\"behind\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
    assert!(admin(&["cancel", &short]).await.status.success());
    let cancelled = client.ended(id).await;
    assert!(cancelled.message.contains("cancelled by the operator"), "{}", cancelled.message);
    assert!(said(&admin(&["list", "--state", "running"]).await).contains("no such tasks"));
    // Its client cannot take a handle.
    let holding = client.undeclared();
    let holding = tokio::spawn(async move { holding.call("slow_report", r#"{"seconds":600}"#).await });
    let look = async {
        loop {
            let listed = said(&admin(&["list", "--state", "held"]).await);
            if let Some(id) = listed.split_whitespace().find(|word| word.starts_with("held-")) {
                return id.to_owned();
            }
        }
    };
    let held = within(PATIENCE, look).await;
    let listed = said(&admin(&["list"]).await);
    assert!(listed.contains(&held) && listed.contains(&id[..14]) && listed.contains("held for"), "{listed}");
    assert!(said(&admin(&["show", &held]).await).contains("slow_report"));
    let stopped = said(&admin(&["cancel", &held]).await);
    assert!(stopped.contains("It has ended."), "{stopped}");
    let told = within(PATIENCE, holding).await.unwrap().message;
    assert!(told.contains("the operator has cancelled the call"), "{told}");
    // Nobody knows whether the tool has run: neither yes nor no.
    assert!(told.contains("outcome_unknown") && !told.contains("retryable"), "{told}");
    assert!(said(&admin(&["cancel", &held]).await).contains("no such task"));
    let refused = raincheck(&["admin", "list", "--url", &url]).await;
    assert!(refused.status.code() == Some(1) && said(&refused).contains("--token-env"), "{}", said(&refused));
    let unknown = admin(&["cancel", "nothing"]).await;
    assert!(unknown.status.code() == Some(1) && said(&unknown).contains("no such task"), "{}", said(&unknown));
    let short = admin(&["show", "06"]).await;
    assert!(said(&short).contains("400") && said(&short).contains("give more of it"), "{}", said(&short));
    assert_eq!(proxy.stop().await, Some(0));
}

#[tokio::test]
async fn what_the_server_takes_to_start_is_no_time_of_the_tool_that_is_called_first() {
    let program = env!("CARGO_BIN_EXE_raincheck");
    let server = format!("command = [\"sh\", \"-c\", \"sleep 3; exec '{program}' demo-server\"]");
    let ground = Ground::before(&server, "[admin]\nhttp = \"127.0.0.1:0\"\n[defaults]\nmode = \"sync\"");
    let proxy = ground.start().await;
    let url = admin_of(&proxy).await;
    let begun = std::time::Instant::now();
    proxy.client().ask("tools/call", "quick", r#""name":"quick","arguments":{}"#).await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(3), "the server did not take its time: {took:?}");
    let answer = admin_get(&url, "/api/tools").await;
    let known: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let known: Vec<Measured> = serde_json::from_value(known["tools"].clone()).unwrap();
    let longest = known[0].max_ms;
    // What is left is the answer of the demo server, on a machine however busy.
    assert!(u128::from(longest) + 2_500 < took.as_millis(), "{longest} ms of {took:?}");
}

#[tokio::test]
async fn advice_comes_from_a_running_proxy_and_from_its_store() {
    let ground = Ground::demo("[admin]\nhttp = \"127.0.0.1:0\"");
    let proxy = ground.start().await;
    let url = admin_of(&proxy).await;
    let store = ground.store().display().to_string();
    assert!(said(&raincheck(&["advise", "--admin", &url]).await).contains("nothing to advise"));
    for _ in 0..20 {
        proxy.client().ask("tools/call", "quick", r#""name":"quick","arguments":{}"#).await;
    }
    proxy.client().ask("tools/call", "batch", r#""name":"batch","arguments":{"items":["a"]}"#).await;
    let asked = said(&raincheck(&["advise", "--admin", &url]).await);
    for part in [
        "# quick: 20 runs, p50 ",
        "match = \"quick\"\nmode = \"auto\"\nafter = \"10s\"\ntimeout = \"1m\"",
        "# batch: too few runs for advice, 1 of 20",
    ] {
        assert!(asked.contains(part), "{part} in {asked}");
    }
    let held = raincheck(&["advise", "--store", &store]).await;
    assert!(held.status.code() == Some(71) && said(&held).contains("--admin"), "{}", said(&held));
    assert_eq!(proxy.stop().await, Some(0));
    // What was learned has been kept, and the configuration leads to it.
    assert_eq!(said(&raincheck(&["advise", "--store", &store]).await), asked);
    let config = ground.config().display().to_string();
    assert_eq!(said(&raincheck(&["advise", "--config", &config]).await), asked);
    assert!(said(&raincheck(&["advise", "--store", "/no/such/store"]).await).contains("there is no store in"));
}
