//! What goes wrong, and what callers are told.

use raincheck::config::{ForwardCancel, StderrFor};
use raincheck::protocol::{Reason, Retry};

use super::*;

#[tokio::test]
async fn a_command_that_is_not_there_is_named_with_what_to_do() {
    for guard in [guard(), GuardProgram::none()] {
        let dir = TempDir::new().unwrap();
        let mut config = config("plain", &dir);
        config.transport = Transport::Stdio {
            command: vec!["no-such-program-here".to_owned()],
            env: [].into(),
            cwd: None,
            hide: Vec::new(),
        };
        let upstream = Upstream::with_guard(Arc::new(config), &Limits::default(), &Jobs::new(), guard);
        let bench = Bench { upstream, dir };
        let failure = failure(bench.call("echo", json!({}))).await;
        assert_eq!((failure.reason, failure.retry), (Reason::NotStarted, Retry::After(Duration::from_secs(5))));
        for part in ["scripted", "`no-such-program-here`", "check the command", "PATH"] {
            assert!(failure.message.contains(part), "{}", failure.message);
        }
        bench.upstream.close().await;
    }
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_named() {
    let bench = Bench::with("plain", Limits::default(), |config| {
        let Transport::Stdio { cwd, .. } = &mut config.transport else { panic!() };
        *cwd = Some("/no/such/directory".into());
    });
    let failure = failure(bench.call("echo", json!({}))).await;
    assert_eq!(failure.reason, Reason::NotStarted);
    assert!(failure.message.contains("/no/such/directory"), "{}", failure.message);
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_server_that_ends_at_its_start_is_left_alone_for_longer_and_longer() {
    let bench = Bench::new("exit=3");
    let first = failure(bench.call("echo", json!({}))).await;
    assert_eq!(first.reason, Reason::NotStarted);
    assert!(first.message.contains("exit code 3"), "{}", first.message);
    let mut refused = None;
    for _ in 0..8 {
        let failure = failure(bench.call("echo", json!({}))).await;
        assert_eq!(failure.reason, Reason::NotStarted);
        if let (true, Retry::After(wait)) = (failure.message.contains("is tried again in"), failure.retry) {
            refused = Some(wait);
            break;
        }
    }
    assert!(refused.expect("it is started again and again") > Duration::from_secs(2));
    // 100 ms, 200, 400, 800, 1600: each of these is waited for; the sixth wait is longer than a call's patience.
    assert_eq!(bench.ledger("start"), 6);
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_server_of_an_unknown_revision_is_refused_by_name() {
    let bench = Bench::new("version=2099-01-01");
    let failure = failure(bench.call("echo", json!({}))).await;
    assert_eq!(failure.reason, Reason::NotStarted);
    assert!(failure.message.contains("2099-01-01"), "{}", failure.message);
    assert_eq!(bench.ledger("echo"), 0);
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_server_that_does_not_shake_hands_is_given_up_in_time() {
    let bench = Bench::with("mute", Limits::default(), |config| config.connect_timeout = Duration::from_millis(300));
    let failure = failure(bench.call("echo", json!({}))).await;
    assert_eq!(failure.reason, Reason::NotStarted);
    assert!(failure.message.contains("connect_timeout"), "{}", failure.message);
    bench.noted("eof", 1).await;
    bench.upstream.close().await;
}

#[tokio::test]
async fn calls_of_a_server_that_dies_end_as_outcome_unknown_and_the_next_one_starts_it_anew() {
    let bench = Bench::new("plain");
    let before = pid(&bench, "ann").await;
    let held = bench.call("hold", json!({}));
    bench.noted("hold", 1).await;
    let died = failure(bench.call("die", json!({}))).await;
    assert_eq!((died.reason, died.retry), (Reason::OutcomeUnknown, Retry::Unknown));
    assert!(died.message.contains("exit code 3"), "{}", died.message);
    assert_eq!(failure(held).await.reason, Reason::OutcomeUnknown);
    assert_ne!(pid(&bench, "ann").await, before);
    assert_eq!(bench.ledger("die"), 1);
    bench.upstream.close().await;
}

/// On several threads, where the end of the process is seen from several sides at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_of_every_call_says_how_and_is_left_alone_for_longer_and_longer() {
    let bench = Bench::new("plain");
    let refused = loop {
        let failure = failure(bench.call("die", json!({}))).await;
        if let Retry::After(wait) = failure.retry {
            break wait;
        }
        assert_eq!(failure.reason, Reason::OutcomeUnknown);
        assert!(failure.message.contains("exit code 3"), "{}", failure.message);
        assert!(bench.ledger("die") <= 6, "it is started again and again");
    };
    assert!(refused > Duration::from_secs(2));
    assert_eq!(bench.ledger("die"), 6);
    bench.upstream.close().await;
}

#[tokio::test]
async fn the_last_answer_of_a_server_that_dies_is_delivered() {
    for _ in 0..5 {
        let bench = Bench::new("plain");
        assert_eq!(result(bench.call("answer-and-die", json!({}))).await, json!({ "last": true }));
        bench.upstream.close().await;
    }
}

#[tokio::test]
async fn the_last_answer_needs_no_line_end_when_the_output_ends_but_must_be_whole() {
    for exits in [true, false] {
        let bench = Bench::new("plain");
        let last = |text: &str| bench.call("last-words", json!({ "text": text, "exits": exits }));
        let whole = r#"{"jsonrpc":"2.0","id":ID,"result":{"last":true}}"#;
        assert_eq!(result(last(whole)).await, json!({ "last": true }), "{exits}");
        let half = whole.strip_suffix("}}").unwrap();
        assert_eq!(failure(last(half)).await.reason, Reason::OutcomeUnknown, "{exits}");
        bench.upstream.close().await;
    }
}

#[tokio::test]
async fn a_cancel_that_kills_the_server_loses_its_other_calls_and_nothing_more() {
    let bench = Bench::new("dies-of-cancel");
    let other = bench.call("hold", json!({}));
    let cancelled = bench.call("hold", json!({}));
    bench.noted("hold", 2).await;
    cancelled.cancel();
    assert_eq!(failure(other).await.reason, Reason::OutcomeUnknown);
    assert_eq!(failure(cancelled).await.reason, Reason::OutcomeUnknown);
    assert_eq!(result(bench.call("echo", json!({ "n": 1 }))).await["arguments"]["n"], 1);
    bench.upstream.close().await;
}

#[tokio::test]
async fn with_cancel_never_a_server_that_dies_of_cancels_survives_one() {
    let bench = Bench::with("dies-of-cancel", Limits::default(), |config| config.cancel = ForwardCancel::Never);
    let other = bench.call("hold", json!({ "n": 1 }));
    let abandoned = bench.call("hold", json!({}));
    let cancelled = bench.call("hold", json!({ "n": 2 }));
    bench.noted("hold", 3).await;
    cancelled.cancel();
    drop(abandoned);
    result(bench.call("release", json!({}))).await;
    assert_eq!(result(other).await, json!({ "n": 1 }));
    assert_eq!(result(cancelled).await, json!({ "n": 2 }));
    assert_eq!((bench.ledger("cancelled"), bench.ledger("start")), (0, 1));
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_call_that_is_abandoned_is_cancelled_at_the_server() {
    let bench = Bench::new("plain");
    let reply = bench.call("hold", json!({}));
    bench.noted("hold", 1).await;
    drop(reply);
    bench.noted("cancelled", 1).await;
    // The late answer goes nowhere and hurts nobody.
    result(bench.call("release", json!({}))).await;
    assert_eq!(bench.ledger("start"), 1);
    bench.upstream.close().await;
}

#[tokio::test]
async fn one_process_too_many_is_refused_with_the_name_of_the_setting() {
    let bench = Bench::with("plain", Limits::default(), |config| config.max_sessions = 1);
    // An idle process would make room.
    let _busy = bench.call_as("ann", "hold", json!({}));
    bench.noted("hold", 1).await;
    let refused = failure(bench.call_as("bo", "echo", json!({}))).await;
    assert_eq!(refused.reason, Reason::Busy);
    assert!(refused.message.contains("max_sessions"), "{}", refused.message);
    bench.upstream.close().await;
}

#[tokio::test]
async fn discover_is_answered_though_the_server_is_silent_and_from_its_handshake_once_it_has_spoken() {
    // It is waited for until it counts as failed.
    let mute = Bench::with("mute", Limits::default(), |config| config.connect_timeout = Duration::from_millis(500));
    let asked = std::time::Instant::now();
    let answer = result(mute.send("ann", Method::Discover, json!({}))).await;
    let took = asked.elapsed();
    assert!(took >= Duration::from_millis(500) && took < Duration::from_secs(5), "{took:?}");
    assert_eq!(answer["capabilities"], json!({ "tools": {} }));
    mute.upstream.close().await;

    let bench = Bench::new("plain");
    result(bench.call("echo", json!({}))).await;
    let answer = result(bench.send("bo", Method::Discover, json!({}))).await;
    assert_eq!(answer["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(answer["capabilities"], json!({ "tools": {} }));
    assert_eq!(answer["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "scripted");
    // Nothing was started for it.
    assert_eq!(bench.ledger("start"), 1);
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_closed_upstream_refuses_calls() {
    let bench = Bench::new("plain");
    result(bench.call("echo", json!({}))).await;
    bench.upstream.close().await;
    assert_eq!(failure(bench.call("echo", json!({}))).await.reason, Reason::Stopping);
}

#[tokio::test]
async fn only_the_local_user_is_shown_what_a_server_said_before_its_start_failed() {
    let said = async |stderr, principal| {
        let bench = Bench::with("exit=3", Limits::default(), |config| config.stderr = stderr);
        let caller = Caller { principal, ..caller("ann", ClientSession::Stateless, &json!({})) };
        let failure = failure(bench.ask_as(caller, Method::CallTool, json!({ "name": "echo" }))).await;
        bench.upstream.close().await;
        failure.message
    };
    let shown = said(StderrFor::Local, Principal::Local).await;
    let (_, last) = shown.split_once("; it said on stderr: ").unwrap_or_else(|| panic!("{shown}"));
    assert!(last.starts_with("[31mno database xxx") && last.chars().count() == 200, "{shown}");
    for (stderr, principal) in [
        (StderrFor::Log, Principal::Local),
        (StderrFor::Local, Principal::Anonymous),
        (StderrFor::Local, Principal::Named("ann".into())),
        (StderrFor::Local, Principal::Credential("Bearer x".into())),
    ] {
        let hidden = said(stderr, principal.clone()).await;
        assert!(
            hidden.contains("exit code 3 before it was ready; the log has what it said"),
            "{principal:?}: {hidden}"
        );
        assert!(!hidden.contains("database"), "{principal:?}: {hidden}");
    }
}

#[tokio::test]
async fn a_server_that_ends_some_time_after_its_output_is_named_with_how_it_ended() {
    let closed = "exec 0<&- 1>&-; sleep 0.5; ";
    for (end, says) in [("exit 3", "`sh` ended with exit code 3"), ("kill -9 $$", "`sh` ended with exit code 137")] {
        let bench = Bench::with("plain", Limits::default(), |config| {
            let Transport::Stdio { command, .. } = &mut config.transport else { panic!() };
            *command = ["sh", "-c", &format!("{closed}{end}")].map(str::to_owned).to_vec();
        });
        let failure = failure(bench.call("echo", json!({}))).await;
        assert_eq!((failure.reason, failure.retry.retryable()), (Reason::NotStarted, Some(true)));
        assert!(failure.message.contains(says), "{}", failure.message);
        assert!(!failure.message.contains("outcome unknown"), "{}", failure.message);
        bench.upstream.close().await;
    }
}
