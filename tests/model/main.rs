//! The life of tasks against a small reference: clients, the server, timers, jumps of the clock and kills in any order,
//! two things at the same time where that makes a race. What fails is shrunk to the steps that matter.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::match_same_arms,
    reason = "a test ends where it fails; a model reads by what happens, one line each"
)]

#[path = "../asking/client.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod asking;
mod reference;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::sync::mpsc;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use reference::{Model, Op};
use world::World;

/// How many cases; another number comes from the environment.
const CASES: &str = "RAINCHECK_MODEL_CASES";

/// How often it is looked whether all is as it should be.
const RESTS: usize = 200;

/// Calls that there are at most.
const CALLS: usize = 6;

fn ops() -> impl Strategy<Value = Op> {
    let call = 0..CALLS;
    prop_oneof![
        6 => Just(Op::Call),
        3 => Just(Op::CallAuto),
        3 => Just(Op::CallAgain),
        1 => call.clone().prop_map(Op::Leave),
        3 => call.clone().prop_map(Op::Cancel),
        3 => call.clone().prop_map(Op::Answer),
        4 => call.clone().prop_map(Op::Finish),
        2 => call.clone().prop_map(Op::Fail),
        2 => call.clone().prop_map(Op::Die),
        1 => call.clone().prop_map(Op::Progress),
        4 => call.clone().prop_map(Op::Ask),
        1 => call.prop_map(Op::Withdraw),
        3 => prop_oneof![Just(1), Just(3), Just(11), Just(500), Just(2000)].prop_map(Op::Wait),
        2 => prop_oneof![Just(-7200), Just(3_000_000)].prop_map(Op::Jump),
        1 => Just(Op::Crash),
    ]
}

/// What happens at the same time: mostly one thing, or two that may meet, often at the same call.
fn steps() -> impl Strategy<Value = Vec<Op>> {
    let together = (ops(), ops()).prop_map(|(one, other)| match (Model::may_meet(one), Model::may_meet(other)) {
        (true, true) => vec![one, other],
        _ => vec![one],
    });
    let race = (0..CALLS, 0..4_usize)
        .prop_map(|(at, how)| vec![Op::Cancel(at), [Op::Finish(at), Op::Fail(at), Op::Die(at), Op::Cancel(at)][how]]);
    prop_oneof![6 => ops().prop_map(|op| vec![op]), 2 => together, 1 => race]
}

/// The reference has no sum of waits after which what has ended is gone: two long ones are less than that.
fn with_few_long_waits(mut steps: Vec<Vec<Op>>) -> Vec<Vec<Op>> {
    let mut long = 0;
    for op in steps.iter_mut().flatten() {
        if let Op::Wait(seconds @ 2000..) = op {
            long += 1;
            if long > 2 {
                *seconds = 1;
            }
        }
    }
    steps
}

/// Every order in which they may have come.
fn outcomes(model: &Model, ops: &[Op]) -> Vec<Model> {
    let in_order = |mut after: Model, ops: &mut dyn Iterator<Item = &Op>| {
        ops.for_each(|op| after.apply(*op));
        after
    };
    if let [first, second] = ops
        && first.end_of().is_some()
        && first.end_of() == second.end_of()
    {
        // One connection ends once: what comes after that is said to nobody, also where the call is sent again by then.
        return vec![in_order(model.clone(), &mut [*first].iter())];
    }
    let mut all = vec![in_order(model.clone(), &mut ops.iter()), in_order(model.clone(), &mut ops.iter().rev())];
    if let [Op::Cancel(at), Op::Die(lost)] | [Op::Die(lost), Op::Cancel(at)] = ops
        && at == lost
    {
        // A run that is lost is not begun again if somebody wants it to stop by then.
        all.push(in_order(model.clone().never_again(*at), &mut [Op::Die(*at)].iter()));
    }
    all
}

async fn check(steps: Vec<Vec<Op>>) -> Result<(), TestCaseError> {
    // What differs in nothing that can be seen yet may do so later.
    let (mut world, mut models) = (World::new(), vec![Model::default()]);
    for (at, ops) in steps.iter().enumerate() {
        world.act(ops).await;
        let mut candidates = Vec::new();
        for candidate in models.iter().flat_map(|model| outcomes(model, ops)) {
            if !candidates.contains(&candidate) {
                candidates.push(candidate);
            }
        }
        match settled(&mut world, candidates).await {
            Ok(next) => models = next,
            Err(wrong) => {
                return Err(TestCaseError::fail(format!("after step {at}, {ops:?}: {}", wrong.join("; or "))));
            }
        }
    }
    world.end().await;
    Ok(())
}

/// Those that may be right, or what is wrong with each even after a while: what takes several writes may need more turns
/// than one rest gives, and on a busy machine many more.
async fn settled(world: &mut World, candidates: Vec<Model>) -> Result<Vec<Model>, Vec<String>> {
    let mut wrong = Vec::new();
    for _ in 0..RESTS {
        wrong.clear();
        let mut right = Vec::new();
        for candidate in &candidates {
            match world.differs(candidate).await {
                None => right.push(candidate.clone()),
                Some(why) => wrong.push(why),
            }
        }
        if !right.is_empty() {
            return Ok(right);
        }
    }
    Err(wrong)
}

/// With a clock that stands still unless a step says otherwise.
fn in_still_time(test: impl Future<Output = Result<(), TestCaseError>>) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        // While such a job runs, tokio does not move a paused clock by itself.
        let (go_on, wait) = mpsc::channel::<()>();
        let still = tokio::task::spawn_blocking(move || wait.recv());
        let result = test.await;
        drop(go_on);
        let _ = still.await;
        result
    })
}

#[test]
fn lives_that_have_failed_once_are_as_the_reference_says() {
    let lives = [
        vec![vec![Op::CallAgain], vec![Op::Die(0), Op::Fail(0)]],
        vec![vec![Op::CallAgain], vec![Op::Die(0), Op::Finish(0)]],
        vec![vec![Op::CallAgain], vec![Op::Die(0), Op::Die(0)]],
        vec![vec![Op::Call], vec![Op::Finish(0), Op::Die(0)]],
        vec![
            vec![Op::Call],
            vec![Op::CallAgain],
            vec![Op::Call],
            vec![Op::Call],
            vec![Op::Call],
            vec![Op::Finish(3)],
            vec![Op::CallAuto],
            vec![Op::Die(2), Op::Finish(5)],
            vec![Op::Call],
        ],
    ];
    for life in lives {
        let shown = format!("{life:?}");
        in_still_time(check(life)).unwrap_or_else(|wrong| panic!("{shown}: {wrong}"));
    }
}

#[test]
fn tasks_live_as_the_reference_says_whatever_comes_in_whatever_order() {
    let cases = std::env::var(CASES).ok().and_then(|cases| cases.parse().ok()).unwrap_or(12);
    let config =
        ProptestConfig { cases, max_shrink_iters: 400, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in prop::collection::vec(steps(), 1..30))| {
        in_still_time(check(with_few_long_waits(steps)))?;
    });
}
