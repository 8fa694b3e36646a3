//! Callers whose credentials no server has taken yet: whoever invents tokens has one share, not one for each.

use std::net::IpAddr;

use raincheck::protocol::Proofs;

use super::*;

/// A call of whoever has this token, at one of two addresses.
fn call_from(proofs: &Proofs, last: u8, token: &str) -> Call {
    let mut call = of("");
    call.caller.principal = Principal::Credential(proofs.shown(token, IpAddr::from([10, 0, 0, last])));
    call
}

fn is_queued(created: &Value) -> bool {
    created["statusMessage"].as_str().unwrap().starts_with("queued")
}

#[tokio::test]
async fn newcomers_at_one_address_take_slots_as_one_owner_until_a_server_has_answered_them() {
    let proofs = Proofs::default();
    let two = || ToolPolicy { max_running: Some(2), ..policy(Mode::Task) };
    let mut proxy = Proxy::new(two());
    assert!(!is_queued(&proxy.value(call_from(&proofs, 1, "a")).await));
    let (sent, running) = proxy.next_sent().await;
    // The last slot of two is for others.
    assert!(is_queued(&proxy.value(call_from(&proofs, 1, "b")).await));
    assert!(!is_queued(&proxy.value(call_from(&proofs, 2, "c")).await));
    proxy.next_sent().await.1.done(Outcome::Result(text("{}")));
    assert!(is_queued(&proxy.value(call_from(&proofs, 1, "d")).await));
    // The server begins to answer: that run is its owner's from now on, and those who wait have a share of their own.
    sent.caller.principal.taken();
    let (next, _running) = proxy.next_sent().await;
    assert_eq!(next.caller.principal, Principal::Credential("b".into()));
    assert!(proxy.sent.try_recv().is_err());
    running.done(Outcome::Result(text("{}")));
    assert!(is_queued(&proxy.value(call_from(&proofs, 1, "e")).await));
    // Who was answered once is known when it comes again.
    assert!(!is_queued(&proxy.value(call_from(&proofs, 1, "a")).await));
}

#[tokio::test]
async fn newcomers_at_one_address_have_the_limits_of_one_owner() {
    let proofs = Proofs::default();
    let rate = Some(Rate { count: 2, per: HOUR });
    let all = OwnerLimits { rate, max_tasks: Some(3), ..OwnerLimits::default() };
    let rules = OwnerRules { all, ..OwnerRules::default() };
    let mut proxy = Proxy::ruled(policy(Mode::Task), BOUNDS, rules);
    for token in ["a", "b"] {
        proxy.value(call_from(&proofs, 1, token)).await;
        proxy.next_sent().await;
    }
    assert_eq!(refused(&proxy, call_from(&proofs, 1, "c")).await.reason, Reason::RateLimited);
    proxy.value(call_from(&proofs, 2, "c")).await;
    proxy.next_sent().await;
    call_from(&proofs, 1, "d").caller.principal.taken();
    proxy.value(call_from(&proofs, 1, "d")).await;
}

#[tokio::test]
async fn newcomers_at_one_address_have_the_tasks_of_one_owner() {
    let proofs = Proofs::default();
    let all = OwnerLimits { max_tasks: Some(2), ..OwnerLimits::default() };
    let mut proxy = Proxy::ruled(policy(Mode::Task), BOUNDS, OwnerRules { all, ..OwnerRules::default() });
    let mut made = Vec::new();
    for token in ["a", "b"] {
        let id = id_of(&proxy.value(call_from(&proofs, 1, token)).await);
        made.push((id, proxy.next_sent().await));
    }
    let failure = refused(&proxy, call_from(&proofs, 1, "c")).await;
    assert!(failure.reason == Reason::Store && failure.message.contains("max_tasks of the owner"), "{failure:?}");
    proxy.value(call_from(&proofs, 2, "x")).await;
    // Whose task has ended well has its own share, and the others have more room.
    let (id, (sent, running)) = made.remove(0);
    sent.caller.principal.taken();
    running.done(Outcome::Result(text("{}")));
    let mut get = call("tasks/get", json!({ "taskId": id }));
    get.caller.principal = sent.caller.principal;
    let ended = async {
        while proxy.value(get.clone()).await["status"] == "working" {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, ended).await.expect("the task does not end");
    assert_eq!(proxy.value(call_from(&proofs, 1, "c")).await["resultType"], "task");
    assert_eq!(refused(&proxy, call_from(&proofs, 1, "d")).await.reason, Reason::Store);
}
