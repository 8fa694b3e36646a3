//! The sums of a purse against a reference of a few lines, in any order of starts, minutes, ends and restarts.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use super::super::fare::Fare;
use super::*;
use crate::clock::SystemClock;
use crate::config::{Durability, OwnerLimits, StoreConfig};

/// What happens. Calls are named by the order in which they were let in.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// A call comes: its price, and that of a minute.
    Admit(u64, u64),
    /// It is paid, and its record written.
    Pay(usize),
    /// It goes to the server, for the first time or again after its run was lost.
    Send(usize),
    /// Its server did not take it.
    HeldUp(usize),
    /// It has run for so many milliseconds more.
    Runs(usize, u64),
    /// It is over, sent or not.
    Ends(usize),
    Stop,
    Crash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Reserved,
    Paid,
    Sent { counted: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Known {
    price: u64,
    per_minute: u64,
    ran: u64,
    stand: Stand,
}

/// What should be in the purse, in millionths.
#[derive(Debug, Default)]
struct Reference {
    spent: u64,
    reserved: u64,
    calls: Vec<Option<Known>>,
    /// What was spent whenever that changed since it was last written in any case.
    unwritten: Vec<u64>,
}

/// One process on the store.
struct Process {
    runtime: Runtime,
    purses: Arc<Purses>,
    purse: Arc<Purse>,
    jobs: Jobs,
    fares: Vec<Option<Fare>>,
}

const BUDGET: u64 = 10_000_000;
const PER: Duration = Duration::from_hours(24 * 365);
const ANN: Principal = Principal::Local;

fn budget() -> Budget {
    Budget { amount: Cost::from_millionths(BUDGET), per: PER }
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (which, cost) = (0_usize..6, prop_oneof![Just(0), 1_u64..3_000_000]);
    let op = prop_oneof![
        4 => (cost.clone(), cost).prop_map(|(price, per_minute)| Op::Admit(price, per_minute)),
        4 => which.clone().prop_map(Op::Pay),
        4 => which.clone().prop_map(Op::Send),
        1 => which.clone().prop_map(Op::HeldUp),
        4 => (which.clone(), 0_u64..120_000).prop_map(|(which, millis)| Op::Runs(which, millis)),
        2 => which.prop_map(Op::Ends),
        1 => Just(Op::Stop),
        1 => Just(Op::Crash),
    ];
    proptest::collection::vec(op, 1..60)
}

impl Reference {
    fn covers(&self, price: u64, reserved: u64) -> bool {
        price.max(1) <= BUDGET.saturating_sub(self.spent + reserved)
    }

    fn spends(&mut self, more: u64) {
        self.spent += more;
        self.unwritten.push(self.spent);
    }

    fn gives_back(&mut self, some: u64) {
        self.spent -= some;
        self.unwritten.push(self.spent);
    }

    /// The call is over, or forgotten.
    fn ends(&mut self, at: usize) {
        match self.calls[at].take() {
            Some(Known { price, stand: Stand::Reserved, .. }) => self.reserved -= price,
            Some(Known { price, stand: Stand::Paid, .. }) => self.gives_back(price),
            Some(Known { stand: Stand::Sent { .. }, .. }) | None => {}
        }
    }
}

impl Process {
    fn on(store: &Store) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (jobs, ending) = (Jobs::new(), CancellationToken::new());
        let all = OwnerLimits { budget: Some(budget()), ..OwnerLimits::default() };
        let purses = Purses::open(store, &jobs, &ending, &OwnerRules { all, ..OwnerRules::default() });
        let purse = purses.of(&ANN, budget());
        Self { runtime, purses, purse, jobs, fares: Vec::new() }
    }

    /// What it does and what it should do; whether both let the call go on.
    async fn does(
        (purses, purse, fares): (&Arc<Purses>, &Arc<Purse>, &mut Vec<Option<Fare>>),
        reference: &mut Reference,
        op: Op,
    ) -> Result<(), TestCaseError> {
        if let Op::Admit(price, per_minute) = op {
            let [of_price, of_minute] = [price, per_minute].map(Cost::from_millionths);
            let fare = Fare::reserve(purses, &ANN, budget(), of_price, of_minute).ok();
            let covered = reference.covers(price, reference.reserved);
            prop_assert_eq!(fare.is_some(), covered, "let in");
            if covered {
                reference.reserved += price;
            }
            reference.calls.push(covered.then_some(Known { price, per_minute, ran: 0, stand: Stand::Reserved }));
            fares.push(fare);
            return Ok(());
        }
        let (Op::Pay(at) | Op::Send(at) | Op::HeldUp(at) | Op::Runs(at, _) | Op::Ends(at)) = op else { return Ok(()) };
        let (Some(Some(fare)), Some(Some(call))) = (fares.get_mut(at), reference.calls.get(at)) else { return Ok(()) };
        let mut call = *call;
        match (op, call.stand) {
            (Op::Pay(_), stand) => {
                let is_paid = fare.pay().is_ok();
                // What others have reserved is for those who come later.
                let covered = stand != Stand::Reserved || reference.covers(call.price, 0);
                prop_assert_eq!(is_paid, covered, "paid");
                if stand == Stand::Reserved && covered {
                    (reference.reserved, call.stand) = (reference.reserved - call.price, Stand::Paid);
                    reference.spends(call.price);
                }
                if is_paid {
                    fare.written().await;
                    if call.price > 0 {
                        reference.unwritten = vec![reference.spent];
                    }
                }
            }
            (Op::Send(_), Stand::Paid | Stand::Sent { .. }) => {
                fare.sent();
                (call.ran, call.stand) = (0, Stand::Sent { counted: 0 });
            }
            (Op::HeldUp(_), stand) => {
                fare.held_up();
                if let Stand::Sent { counted } = stand {
                    reference.gives_back(counted + call.price);
                    reference.reserved += call.price;
                    (call.ran, call.stand) = (0, Stand::Reserved);
                }
            }
            (Op::Runs(_, millis), Stand::Sent { counted }) => {
                call.ran += millis;
                let goes_on = fare.count(Duration::from_millis(call.ran)).is_ok();
                let all = call.per_minute * call.ran / 60_000;
                reference.spends(all - counted);
                call.stand = Stand::Sent { counted: all };
                prop_assert_eq!(goes_on, call.per_minute == 0 || reference.spent < BUDGET, "goes on");
            }
            (Op::Ends(_), _) => {
                fares[at] = None;
                reference.ends(at);
                return Ok(());
            }
            _ => return Ok(()),
        }
        reference.calls[at] = Some(call);
        let sums = purse.sums();
        prop_assert_eq!(sums, (reference.spent, reference.reserved), "after {:?}", op);
        Ok(())
    }

    fn takes(&mut self, reference: &mut Reference, op: Op) -> Result<(), TestCaseError> {
        let Self { runtime, purses, purse, fares, .. } = self;
        runtime.block_on(Self::does((purses, purse, fares), reference, op))?;
        prop_assert_eq!(self.purse.sums(), (reference.spent, reference.reserved), "after {:?}", op);
        Ok(())
    }

    /// Ends in order: nothing that was spent is lost.
    fn stops(mut self, reference: &mut Reference) {
        self.runtime.block_on(async {
            self.fares.clear();
            self.jobs.stop();
            self.jobs.idle().await;
        });
        (0..reference.calls.len()).for_each(|at| reference.ends(at));
        reference.calls.clear();
        reference.unwritten = vec![reference.spent];
    }

    /// Ends in the middle of everything.
    fn crashes(self, reference: &mut Reference) {
        self.fares.into_iter().for_each(std::mem::forget);
        self.runtime.shutdown_background();
        reference.calls.clear();
        reference.reserved = 0;
    }
}

impl Purse {
    fn sums(&self) -> (u64, u64) {
        let state = self.state();
        (state.ledger.spent().millionths(), state.reserved.millionths())
    }
}

fn store() -> (Store, Jobs, TempDir) {
    let (directory, jobs) = (tempfile::tempdir().unwrap(), Jobs::new());
    let path = directory.path().join("store");
    let durability = Durability::Process;
    let config = StoreConfig { path, durability, cache_bytes: 8 << 20, min_free_bytes: Some(0), max_tasks: 100 };
    (Store::open(&config, Arc::new(SystemClock), &jobs).unwrap().store, jobs, directory)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_happens_to_calls_a_purse_has_spent_and_keeps_what_it_should(ops in ops()) {
        let outer = Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = outer.enter();
        let (store, _jobs, _directory) = store();
        let mut reference = Reference { unwritten: vec![0], ..Reference::default() };
        let mut process = Process::on(&store);
        for op in ops {
            match op {
                Op::Stop => process.stops(&mut reference),
                Op::Crash => process.crashes(&mut reference),
                op => {
                    process.takes(&mut reference, op)?;
                    continue;
                }
            }
            process = Process::on(&store);
            let (spent, reserved) = process.purse.sums();
            // Of what was not written in any case some may have been.
            prop_assert!(reference.unwritten.contains(&spent), "{spent} after {op:?}, of {:?}", reference.unwritten);
            prop_assert_eq!(reserved, 0);
            reference.spent = spent;
            reference.unwritten = vec![spent];
        }
    }
}
