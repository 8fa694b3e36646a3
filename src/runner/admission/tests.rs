//! The gate: who gets slots, who waits, who is refused.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::gate::{Entry, Gate, Guest, GuestTool, Permits, Ticket};
use super::{Bounds, refusal};
use crate::config::{OwnerLimits, Rate, ToolPolicy};
use crate::protocol::{Failure, Principal, Reason, Retry};

/// What a test says of a call.
#[derive(Default)]
pub(super) struct Of {
    pub(super) policy: ToolPolicy,
    pub(super) limits: OwnerLimits,
}

impl Of {
    pub(super) fn tool(policy: ToolPolicy) -> Self {
        Self { policy, ..Self::default() }
    }

    fn owner(limits: OwnerLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    fn enter(&self, gate: &Arc<Gate>, who: &str, name: &str) -> Result<Entry, Failure> {
        let tool = GuestTool { server: "s", name, policy: &self.policy, limits: &self.limits };
        let principal = if who == LOCAL { Principal::Local } else { Principal::Named(who.into()) };
        gate.enter(&Guest { principal: &principal, tool: Some(tool) })
    }

    pub(super) fn wait(&self, gate: &Arc<Gate>, who: &str, name: &str) -> Ticket {
        match self.enter(gate, who, name).unwrap() {
            Entry::Wait(ticket) => ticket,
            Entry::Free(_) => panic!("a slot was free"),
        }
    }

    pub(super) fn free(&self, gate: &Arc<Gate>, who: &str, name: &str) -> Permits {
        match self.enter(gate, who, name).unwrap() {
            Entry::Free(permits) => permits,
            Entry::Wait(_) => panic!("no slot was free"),
        }
    }

    pub(super) fn refused(&self, gate: &Arc<Gate>, who: &str, name: &str) -> Failure {
        self.enter(gate, who, name).unwrap_err()
    }
}

/// The one user of this machine.
const LOCAL: &str = "local";

pub(super) fn runs(most: usize) -> Of {
    Of::tool(ToolPolicy { max_running: Some(most), ..ToolPolicy::default() })
}

pub(super) fn gate(running: usize, waiting: usize) -> Arc<Gate> {
    Gate::new(Bounds { running, waiting, rate: None })
}

fn is_ready(ticket: &mut Ticket) -> Option<Permits> {
    ticket.now_or_never()
}

#[test]
fn slots_go_to_those_who_wait_in_order() {
    let (gate, of) = (gate(1, 10), Of::default());
    let running = of.free(&gate, "ann", "t");
    let (mut first, mut second) = (of.wait(&gate, "ann", "t"), of.wait(&gate, "ann", "t"));
    let (one, two) = (first.watcher(), second.watcher());
    assert_eq!((one.now(), two.now()), (Some(1), Some(2)));
    drop(running);
    assert_eq!((one.now(), two.now()), (None, Some(1)));
    assert!(is_ready(&mut second).is_none());
    let running = is_ready(&mut first).unwrap();
    drop(running);
    assert!(is_ready(&mut second).is_some());
}

#[test]
fn slots_given_to_one_who_leaves_go_to_the_next() {
    let (gate, of) = (gate(1, 10), Of::default());
    let running = of.free(&gate, "ann", "t");
    let (first, mut second) = (of.wait(&gate, "ann", "t"), of.wait(&gate, "ann", "t"));
    drop(running);
    // The first has the slot, but never looked.
    drop(first);
    assert!(is_ready(&mut second).is_some());
}

#[test]
fn leaving_the_line_moves_the_others_up() {
    let (gate, of) = (gate(1, 10), Of::default());
    let running = of.free(&gate, "ann", "t");
    let (first, second) = (of.wait(&gate, "ann", "t"), of.wait(&gate, "ann", "t"));
    let place = second.watcher();
    drop(first);
    assert_eq!(place.now(), Some(1));
    drop(running);
    drop(second);
    assert_eq!(place.now(), None);
    of.free(&gate, "ann", "t");
}

#[test]
fn who_waits_for_a_busy_tool_holds_nothing_that_others_need() {
    let (gate, limited, free) = (gate(3, 10), runs(2), Of::default());
    let (first, _second) = (limited.free(&gate, "ann", "slow"), limited.free(&gate, "cy", "slow"));
    let mut slow = limited.wait(&gate, "ann", "slow");
    let quick = free.free(&gate, "dan", "quick");
    // All three slots are taken now; who comes next waits for any.
    let mut other = free.wait(&gate, "bo", "quick");
    drop(quick);
    assert!(is_ready(&mut slow).is_none(), "the tool has all the runs that it may have");
    assert!(is_ready(&mut other).is_some());
    drop(first);
    assert!(is_ready(&mut slow).is_some());
}

#[test]
fn an_owner_who_runs_enough_delays_nobody_and_no_limit_holds_for_other_methods() {
    let gate = gate(4, 10);
    let of = Of::owner(OwnerLimits { max_running: Some(2), max_queued: Some(1), ..OwnerLimits::default() });
    let (first, _second) = (of.free(&gate, "ann", "a"), of.free(&gate, "ann", "b"));
    let mut third = of.wait(&gate, "ann", "c");
    let refused = of.refused(&gate, "ann", "d");
    assert_eq!(refused.reason, Reason::QueueFull);
    assert!(refused.message.contains("max_queued of the owner"), "{}", refused.message);
    let ann = Principal::Named("ann".into());
    assert!(matches!(gate.enter(&Guest { principal: &ann, tool: None }), Ok(Entry::Free(_))));
    let _bo = of.free(&gate, "bo", "a");
    assert!(is_ready(&mut third).is_none());
    drop(first);
    assert!(is_ready(&mut third).is_some());
}

#[test]
fn a_greedy_owner_with_a_thousand_calls_delays_another_by_one_turn() {
    let (gate, of) = (gate(1, 10_000), Of::default());
    let mut running = of.free(&gate, "greedy", "t");
    let mut greedy: Vec<_> = (0..1000).map(|n| of.wait(&gate, "greedy", &format!("t{}", n % 3))).collect();
    let mut other = of.wait(&gate, "other", "t");
    assert_eq!(other.watcher().now(), Some(2));
    let mut turns = 0;
    let _others = loop {
        drop(running);
        if let Some(permits) = is_ready(&mut other) {
            break permits;
        }
        turns += 1;
        running = greedy.iter_mut().find_map(is_ready).unwrap();
        greedy.retain(|ticket| ticket.watcher().now().is_some());
    };
    assert_eq!((turns, greedy.len()), (1, 999));
}

#[test]
fn nobody_takes_the_last_slots_while_others_have_none() {
    let (gate, of) = (gate(16, 16), Of::default());
    let mut greedy: Vec<_> = (0..14).map(|_| of.free(&gate, "greedy", "t")).collect();
    let mut more = of.wait(&gate, "greedy", "t");
    let others = (of.free(&gate, "ann", "t"), of.free(&gate, "bo", "t"));
    let mut third = of.wait(&gate, "cy", "t");
    greedy.pop();
    assert!(is_ready(&mut more).is_none());
    let third = is_ready(&mut third).unwrap();
    drop((others, third));
    assert!(is_ready(&mut more).is_some(), "the greedy one has more than the others, but slots are left");
}

#[test]
fn nobody_takes_the_last_slots_of_a_tool_while_others_have_none() {
    // One slot cannot be shared; of two or more one at least is left.
    for (most, own) in [(1, 1), (2, 1), (3, 2), (4, 3), (16, 14)] {
        let (gate, of) = (gate(100, 100), runs(most));
        let mut greedy: Vec<_> = (0..own).map(|_| of.free(&gate, "greedy", "t")).collect();
        let mut more = of.wait(&gate, "greedy", "t");
        // Other tools are no matter.
        let _elsewhere = runs(most).free(&gate, "greedy", "other");
        if most == 1 {
            continue;
        }
        let ann = of.free(&gate, "ann", "t");
        let mut second = of.wait(&gate, "ann", "t");
        drop(ann);
        assert!(is_ready(&mut second).is_some(), "{most}");
        greedy.pop();
        assert!(is_ready(&mut more).is_some(), "{most}: its own place is free again");
    }
}

#[test]
fn the_one_user_of_a_machine_has_every_slot_until_somebody_else_comes() {
    for (slots, of) in [(2, Of::default()), (100, runs(2))] {
        let gate = gate(slots, 4);
        let (first, second) = (of.free(&gate, LOCAL, "t"), of.free(&gate, LOCAL, "t"));
        let mut third = of.wait(&gate, LOCAL, "t");
        let mut ann = of.wait(&gate, "ann", "t");
        drop(first);
        assert!(is_ready(&mut third).is_none(), "there is somebody to leave the last one to");
        assert!(is_ready(&mut ann).is_some());
        drop(second);
        assert!(is_ready(&mut third).is_some());
    }
}

#[test]
fn nobody_fills_the_line_and_each_refusal_names_its_limit() {
    let (gate, of) = (gate(1, 16), Of::tool(ToolPolicy { max_queued: Some(15), ..ToolPolicy::default() }));
    let _running = of.free(&gate, "greedy", "t");
    let _greedy: Vec<_> = (0..14).map(|_| of.wait(&gate, "greedy", "t")).collect();
    let refused = of.refused(&gate, "greedy", "t");
    assert!(refused.message.contains("share"), "{}", refused.message);
    let _ann = of.wait(&gate, "ann", "t");
    let refused = of.refused(&gate, "bo", "t");
    assert!(refused.message.contains("\"t\"") && refused.message.contains("max_queued"), "{}", refused.message);
    let _bo = of.wait(&gate, "bo", "other");
    let refused = of.refused(&gate, "cy", "other");
    assert_eq!((refused.reason, refused.retry), (Reason::QueueFull, Retry::SOON));
    assert!(refused.message.contains("limits.queue"), "{}", refused.message);
}

#[test]
fn nobody_fills_the_line_of_a_tool_for_all_others() {
    let (gate, of) = (gate(1, 100), Of::tool(ToolPolicy { max_queued: Some(4), ..ToolPolicy::default() }));
    let _running = of.free(&gate, "greedy", "t");
    let _greedy: Vec<_> = (0..3).map(|_| of.wait(&gate, "greedy", "t")).collect();
    // What waits for other tools does not count.
    let _elsewhere: Vec<_> = (0..3).map(|_| Of::default().wait(&gate, "ann", "other")).collect();
    let refused = of.refused(&gate, "greedy", "t");
    assert_eq!((refused.reason, refused.retry), (Reason::QueueFull, Retry::SOON));
    assert!(refused.message.contains("\"t\"") && refused.message.contains("your share"), "{}", refused.message);
    let _ann = of.wait(&gate, "ann", "t");
    assert!(of.refused(&gate, "bo", "t").message.contains("too many calls of \"t\""));
}

#[tokio::test(start_paused = true)]
async fn a_rate_lets_so_many_start_and_says_exactly_when_the_next_may() {
    let rate = Some(Rate { count: 2, per: Duration::from_mins(1) });
    let gate = gate(100, 100);
    let by_tool = Of::tool(ToolPolicy { rate, ..ToolPolicy::default() });
    let by_owner = Of::owner(OwnerLimits { rate, ..OwnerLimits::default() });
    for (of, named) in [(by_tool, "(rate)"), (by_owner, "rate of the owner")] {
        let _runs = (of.free(&gate, LOCAL, "t"), of.free(&gate, LOCAL, "t"));
        let refused = of.refused(&gate, LOCAL, "t");
        assert_eq!((refused.reason, refused.retry), (Reason::RateLimited, Retry::After(Duration::from_secs(30))));
        assert!(refused.message.contains(named) && refused.message.contains("2/1m"), "{}", refused.message);
        tokio::time::advance(Duration::from_millis(29_999)).await;
        assert_eq!(of.refused(&gate, LOCAL, "t").retry, Retry::After(Duration::from_millis(1)));
        tokio::time::advance(Duration::from_millis(1)).await;
        of.free(&gate, LOCAL, "t");
        of.refused(&gate, LOCAL, "t");
    }
    // The tool's rate is for all owners, the owner's for all tools.
    let of = Of {
        policy: ToolPolicy { rate, ..ToolPolicy::default() },
        limits: OwnerLimits { rate, ..OwnerLimits::default() },
    };
    tokio::time::advance(Duration::from_mins(2)).await;
    drop((of.free(&gate, "ann", "a"), of.free(&gate, "ann", "b")));
    assert!(of.refused(&gate, "ann", "c").message.contains("owner"));
    drop(of.free(&gate, "bo", "a"));
    assert!(of.refused(&gate, "cy", "a").message.contains("\"a\""));
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_the_last_starts_of_a_rate_while_others_have_had_none() {
    let rate = Some(Rate { count: 4, per: Duration::from_secs(40) });
    let (gate, of) = (gate(100, 100), Of::tool(ToolPolicy { rate, ..ToolPolicy::default() }));
    let seconds = |seconds| Retry::After(Duration::from_secs(seconds));
    for _ in 0..3 {
        drop(of.free(&gate, "greedy", "t"));
    }
    let refused = of.refused(&gate, "greedy", "t");
    assert_eq!((refused.reason, refused.retry), (Reason::RateLimited, seconds(10)));
    assert!(refused.message.contains("your share") && refused.message.contains("4/40s"), "{}", refused.message);
    // The greedy one loses nothing of the rate, only of the burst.
    tokio::time::advance(Duration::from_secs(10)).await;
    drop(of.free(&gate, "greedy", "t"));
    of.refused(&gate, "greedy", "t");
    drop(of.free(&gate, "ann", "t"));
    let refused = of.refused(&gate, "bo", "t");
    assert_eq!(refused.retry, seconds(10));
    assert!(!refused.message.contains("your share"), "{}", refused.message);
    assert_eq!(
        (of.refused(&gate, "greedy", "t").retry, of.refused(&gate, "ann", "t").retry),
        (seconds(20), seconds(20))
    );
    tokio::time::advance(Duration::from_secs(10)).await;
    drop(of.free(&gate, "bo", "t"));
}

/// How often each starts in so many seconds, where the greedy ones ask each quarter of a second, and the others when they
/// were told to.
async fn starts_in(
    rate: Rate,
    of_all: bool,
    greedy: &[&'static str],
    others: &[&'static str],
    seconds: u32,
) -> Vec<u32> {
    let gate = Gate::new(Bounds { running: 100, waiting: 100, rate: of_all.then_some(rate) });
    let of = Of::tool(ToolPolicy { rate: (!of_all).then_some(rate), ..ToolPolicy::default() });
    let mut starts = vec![0; greedy.len() + others.len()];
    let (begun, mut due) = (tokio::time::Instant::now(), vec![tokio::time::Instant::now(); others.len()]);
    for _ in 0..seconds * 4 {
        let now = tokio::time::Instant::now();
        for (at, who) in greedy.iter().enumerate() {
            starts[at] += u32::from(of.enter(&gate, who, "t").is_ok());
        }
        for (at, who) in others.iter().enumerate().filter(|(at, _)| due[*at] <= now).collect::<Vec<_>>() {
            match of.enter(&gate, who, "t") {
                Ok(_) => starts[greedy.len() + at] += 1,
                Err(Failure { retry: Retry::After(wait), .. }) => due[at] = now + wait,
                Err(failure) => panic!("{failure:?}"),
            }
        }
        tokio::time::advance(Duration::from_millis(250)).await;
    }
    let most = u64::from(rate.count) + u64::from(seconds * rate.count) / rate.per.as_secs();
    assert!(u64::from(starts.iter().sum::<u32>()) <= most, "{starts:?}");
    assert!(begun.elapsed() == Duration::from_secs(seconds.into()));
    starts
}

#[tokio::test(start_paused = true)]
async fn two_who_ask_again_and_again_take_no_start_from_a_third_who_comes_when_it_is_told() {
    for of_all in [false, true] {
        for (count, per) in [(1, 10), (2, 20), (4, 40), (16, 160)] {
            let rate = Rate { count, per: Duration::from_secs(per) };
            let starts = starts_in(rate, of_all, &["ann", "bo"], &["cy", "dan"], 800).await;
            // A start each ten seconds, of which each of the four has about a quarter.
            assert!(starts.iter().all(|own| (15..=30).contains(own)), "{count}: {starts:?}");
            assert!(starts.iter().sum::<u32>() >= 78, "{count}: {starts:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_told_to_come_finds_a_start_then_and_loses_it_when_it_is_late() {
    let rate = Some(Rate { count: 1, per: Duration::from_secs(10) });
    let (gate, of) = (gate(100, 100), Of::tool(ToolPolicy { rate, ..ToolPolicy::default() }));
    let seconds = |seconds| Retry::After(Duration::from_secs(seconds));
    drop(of.free(&gate, "greedy", "t"));
    assert_eq!(
        (of.refused(&gate, "greedy", "t").retry, of.refused(&gate, "ann", "t").retry),
        (seconds(10), seconds(10))
    );
    // Who has had one since comes after who has had none, whoever asked first.
    let refused = of.refused(&gate, "greedy", "t");
    assert_eq!(refused.retry, seconds(20));
    assert!(refused.message.contains("others who wait for them"), "{}", refused.message);
    assert_eq!(of.refused(&gate, "bo", "t").retry, seconds(20));
    tokio::time::advance(Duration::from_secs(10)).await;
    // Ann may come within ten seconds; if she does not, it is for the next.
    assert_eq!(of.refused(&gate, "cy", "t").retry, seconds(30));
    tokio::time::advance(Duration::from_millis(9_999)).await;
    of.refused(&gate, "greedy", "t");
    tokio::time::advance(Duration::from_millis(1)).await;
    drop(of.free(&gate, "bo", "t"));
    assert_eq!(of.refused(&gate, "ann", "t").retry, seconds(30));
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_remembered_however_many_others_come() {
    let rate = Some(Rate { count: 1, per: Duration::from_hours(1) });
    let gate = gate(100, 100);
    let by_tool = Of::tool(ToolPolicy { rate, ..ToolPolicy::default() });
    let by_owner = Of::owner(OwnerLimits { rate, ..OwnerLimits::default() });
    for of in [by_tool, by_owner] {
        drop(of.free(&gate, "ann", "t"));
        for n in 0..2000 {
            drop(of.free(&gate, &format!("owner {n}"), &format!("tool {n}")));
        }
        of.refused(&gate, "ann", "t");
    }
}

#[test]
fn nobody_is_told_to_come_back_too_early() {
    let rate = Rate { count: 1, per: Duration::from_hours(1) };
    let table = [
        (1, 1, "1ms"),
        (2_000_000, 2, "2ms"),
        (2_000_001, 3, "3ms"),
        (1_000_000_001, 1001, "2s"),
        (3_601_000_000_000, 3_601_000, "1h 1m"),
    ];
    for (nanos, millis, said) in table {
        let refused = refusal::owner_rate(rate, Duration::from_nanos(nanos));
        assert_eq!(refused.retry, Retry::After(Duration::from_millis(millis)));
        assert!(refused.message.ends_with(&format!("try again in {said}")), "{}", refused.message);
    }
}

#[test]
fn a_refused_call_counts_for_nothing() {
    let rate = Some(Rate { count: 3, per: Duration::from_mins(1) });
    let gate = gate(1, 1);
    let of = Of::tool(ToolPolicy { rate, max_queued: Some(1), ..ToolPolicy::default() });
    let running = of.free(&gate, "ann", "t");
    let waits = Of::default().wait(&gate, "ann", "other");
    for _ in 0..5 {
        assert_eq!(of.refused(&gate, "ann", "t").reason, Reason::QueueFull);
    }
    drop((running, waits));
    of.free(&gate, "ann", "t");
}

#[test]
fn a_rate_of_all_holds_for_all_tools_together_and_leaves_the_last_start_to_others() {
    let rate = Rate { count: 3, per: Duration::from_hours(1) };
    let gate = Gate::new(Bounds { running: 100, waiting: 100, rate: Some(rate) });
    let of = Of::default();
    let _runs = (of.free(&gate, "ann", "a"), of.free(&gate, "ann", "b"));
    let failure = of.refused(&gate, "ann", "c");
    let Retry::After(wait) = failure.retry else { panic!("{failure:?}") };
    assert_eq!(failure.reason, Reason::RateLimited);
    assert!(failure.message.contains("limits.rate") && failure.message.contains("your share"), "{}", failure.message);
    assert!(wait <= Duration::from_mins(20), "{wait:?}");
    let _last = of.free(&gate, "bo", "a");
    let failure = of.refused(&gate, "cy", "d");
    assert!(failure.message.contains("all together (limits.rate); nothing"), "{}", failure.message);
    // What is no call of a tool is not started by this.
    let Ok(Entry::Free(_)) = gate.enter(&Guest { principal: &Principal::Named("cy".into()), tool: None }) else {
        panic!("refused")
    };
}

#[test]
fn the_one_user_has_all_starts_of_the_rate_of_all() {
    let rate = Rate { count: 3, per: Duration::from_hours(1) };
    let gate = Gate::new(Bounds { running: 100, waiting: 100, rate: Some(rate) });
    let of = Of::default();
    let _runs = [(); 3].map(|()| of.free(&gate, LOCAL, "a"));
    assert!(!of.refused(&gate, LOCAL, "b").message.contains("share"));
}

/// How many runs each has had after so many ended, where the greedy ones call whenever they may, and the third when it was
/// told to.
async fn runs_of_three(most_running: usize, most_queued: usize, of_tool: bool) -> [u32; 3] {
    let policy = ToolPolicy { max_running: Some(most_running), max_queued: Some(most_queued), ..ToolPolicy::default() };
    let (gate, of) =
        if of_tool { (gate(100, 100), Of::tool(policy)) } else { (gate(most_running, most_queued), Of::default()) };
    let (mut running, mut waiting, mut runs) = (std::collections::VecDeque::new(), Vec::new(), [0; 3]);
    let mut due = tokio::time::Instant::now();
    for _ in 0..300 {
        for (who, name) in ["ann", "bo", "cy"].into_iter().enumerate() {
            for _ in 0..10 {
                if name == "cy" && due > tokio::time::Instant::now() {
                    break;
                }
                match of.enter(&gate, name, "t") {
                    Ok(Entry::Free(permits)) => {
                        runs[who] += 1;
                        running.push_back(permits);
                    }
                    Ok(Entry::Wait(ticket)) => waiting.push((who, ticket)),
                    Err(Failure { retry: Retry::After(wait), .. }) if name == "cy" => {
                        due = tokio::time::Instant::now() + wait;
                    }
                    Err(failure) => assert_eq!(failure.reason, Reason::QueueFull),
                }
                if name == "cy" {
                    break;
                }
            }
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        running.pop_front();
        waiting.retain_mut(|(who, ticket)| match ticket.now_or_never() {
            Some(permits) => {
                runs[*who] += 1;
                running.push_back(permits);
                false
            }
            None => true,
        });
    }
    runs
}

#[tokio::test(start_paused = true)]
async fn two_who_call_again_and_again_keep_a_third_from_no_slot_and_no_place_in_line() {
    for (running, queued) in [(1, 1), (1, 2), (1, 3), (2, 2), (2, 8), (4, 1), (4, 100), (1, 0), (4, 0)] {
        for of_tool in [false, true] {
            let runs = runs_of_three(running, queued, of_tool).await;
            assert!(runs.iter().all(|own| *own >= 25), "{running} slots, {queued} places, {of_tool}: {runs:?}");
        }
    }
}
