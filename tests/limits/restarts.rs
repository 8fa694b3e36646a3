//! Rates across restarts.

use super::*;

const TWO: Option<Rate> = Some(Rate { count: 2, per: HOUR });

/// A proxy with a rate in one of three places.
fn rated(place: usize) -> (ToolPolicy, Bounds, OwnerRules) {
    let rate = |own| TWO.filter(|_| own == place);
    let all = OwnerLimits { rate: rate(2), ..OwnerLimits::default() };
    (
        ToolPolicy { rate: rate(0), max_running: Some(1), ..policy(Mode::Task) },
        Bounds { rate: rate(1), ..BOUNDS },
        OwnerRules { all, ..OwnerRules::default() },
    )
}

async fn is_limited(proxy: &Proxy) -> bool {
    let failure = refused(proxy, of("ann")).await;
    let Retry::After(wait) = failure.retry else { panic!("{failure:?}") };
    assert!(wait <= HOUR / 2, "{wait:?}");
    failure.reason == Reason::RateLimited
}

#[tokio::test]
async fn what_was_started_before_a_restart_counts_and_what_was_left_in_the_line_does_not_count_twice() {
    for place in 0..3 {
        let (policy, bounds, rules) = rated(place);
        let mut proxy = Proxy::ruled(policy, bounds, rules);
        // Ann's alone, who is to have no more than her share; of two starts one is for others.
        let names: &[&str] = if place == 2 { &["ann", "ann"] } else { &["bo", "ann"] };
        for who in names {
            proxy.value(of(who)).await;
        }
        // It goes on: its end would let the one in the line go before the stop.
        let _run = proxy.next_sent().await;
        assert!(is_limited(&proxy).await, "{place}");
        let (policy, bounds, rules) = rated(place);
        let mut proxy = proxy.restarted(policy, bounds, rules).await;
        // The one that was in the line runs.
        proxy.next_sent().await;
        assert!(is_limited(&proxy).await, "{place}");
    }
}

#[tokio::test]
async fn a_start_counts_after_a_crash_for_as_long_as_it_would_have() {
    let limited = || ToolPolicy { rate: Some(Rate { count: 1, per: HOUR }), ..policy(Mode::Task) };
    let mut proxy = Proxy::new(limited());
    proxy.value(of("ann")).await;
    proxy.next_sent().await;
    let written = async {
        while proxy.store.shelf(Shelf::Rate).unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, written).await.expect("it is not written");
    let proxy = proxy.crashes_for(HOUR / 2, limited()).await;
    assert!(is_limited(&proxy).await);
    let mut proxy = proxy.crashes_for(HOUR + HOUR / 60, limited()).await;
    proxy.value(of("ann")).await;
    proxy.next_sent().await;
}
