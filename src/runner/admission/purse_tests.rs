//! Purses of many owners: what is forgotten, and what is not.

use super::*;
use crate::clock::{Clock as _, ManualClock};
use crate::config::{Durability, OwnerLimits, StoreConfig};

const DAY: Duration = Duration::from_hours(24);
const SHORT: Budget = Budget { amount: Cost::from_millionths(5), per: Duration::from_secs(2) };
const LONG: Budget = Budget { amount: Cost::from_millionths(1), per: DAY };
const ONE: Cost = Cost::from_millionths(1);

struct Purser {
    purses: Arc<Purses>,
    clock: Arc<ManualClock>,
    folder: tempfile::TempDir,
}

impl Purser {
    /// With a budget of a day for all, and a short one for bo.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_800_000_000_000)));
        let config = StoreConfig {
            path: folder.path().join("store"),
            durability: Durability::Process,
            cache_bytes: 1 << 20,
            min_free_bytes: Some(0),
            max_tasks: 10,
        };
        let jobs = Jobs::new();
        let shared: crate::clock::SharedClock = clock.clone();
        let store = Store::open(&config, shared, &jobs).unwrap().store;
        let of = |budget| OwnerLimits { budget: Some(budget), ..OwnerLimits::default() };
        let named = [("bo".to_owned(), of(SHORT))].into();
        let rules = OwnerRules { all: of(LONG), named, ..OwnerRules::default() };
        Self { purses: Purses::open(&store, &jobs, &CancellationToken::new(), &rules), clock, folder }
    }

    /// The purse of somebody who has spent one, without a write.
    fn spender(&self, name: &str, budget: Budget) -> Arc<Purse> {
        let purse = self.purses.of(&Principal::Named(name.into()), budget);
        purse.state().ledger.spend(ONE, budget.per, self.clock.now());
        purse
    }

    fn spent(&self, name: &str, budget: Budget) -> Cost {
        self.purses.of(&Principal::Named(name.into()), budget).state().ledger.spent()
    }

    fn shelf(&self) -> Vec<(String, Vec<u8>)> {
        assert!(self.folder.path().exists());
        self.purses.store.shelf(Shelf::Budget).unwrap()
    }
}

#[tokio::test]
async fn what_owners_have_spent_is_forgotten_by_the_time_of_their_own_budget() {
    let purser = Purser::new();
    for owner in 0..FEW {
        purser.spender(&format!("owner {owner}"), LONG);
    }
    purser.spender("bo", SHORT);
    purser.clock.advance(Duration::from_secs(30));
    // Whose budget is for two seconds comes, and is one of more than a few.
    purser.spender("cy", SHORT);
    assert_eq!(purser.purses.known.len(), FEW + 1, "what bo has spent counts no more, and what the others have does");
    assert_eq!(purser.spent("owner 7", LONG), ONE);
    purser.clock.advance(DAY * 2);
    purser.spender("cy", SHORT);
    assert_eq!(purser.spent("dan", LONG), Cost::ZERO);
    assert!(purser.purses.known.len() <= 2);
}

#[tokio::test]
async fn what_is_found_in_the_store_counts_for_as_long_as_any_budget_could_until_its_owner_comes() {
    let purser = Purser::new();
    let ann = purser.spender("ann", LONG);
    purser.purses.write(&ann).await;
    let Purses { store, jobs, ending, .. } = &*purser.purses;
    let rules = OwnerRules {
        all: OwnerLimits { budget: Some(SHORT), ..OwnerLimits::default() },
        named: [("ann".to_owned(), OwnerLimits { budget: Some(LONG), ..OwnerLimits::default() })].into(),
        ..OwnerRules::default()
    };
    let next = Purser {
        purses: Purses::open(store, jobs, ending, &rules),
        clock: Arc::clone(&purser.clock),
        folder: tempfile::tempdir().unwrap(),
    };
    next.clock.advance(Duration::from_hours(1));
    for owner in 0..=FEW {
        next.spender(&format!("owner {owner}"), SHORT);
    }
    assert_eq!(next.spent("ann", LONG), ONE);
}

#[tokio::test]
async fn what_the_crowd_has_spent_counts_for_as_long_as_the_longest_budget() {
    let purser = Purser::new();
    for number in 0..MOST {
        let mut digest = [1; 32];
        digest[..8].copy_from_slice(&number.to_be_bytes());
        let ledger = Ledger::default();
        let purse = Arc::new(Purse::new(&digest, ledger, DAY));
        purse.state().ledger.spend(ONE, DAY, purser.clock.now());
        purser.purses.known.insert(digest, purse);
    }
    let crowd = purser.purses.of(&Principal::Named("ann".into()), LONG);
    purser.purses.spend(&crowd, LONG, ONE);
    purser.clock.advance(Duration::from_secs(30));
    let bo = purser.purses.of(&Principal::Named("bo".into()), SHORT);
    assert!(Arc::ptr_eq(&crowd, &bo));
    purser.purses.reserve(&bo, SHORT, ONE).unwrap();
    assert_eq!(crowd.state().ledger.spent(), ONE, "the time of one budget held for what others had spent");
}

#[tokio::test]
async fn what_an_owner_has_spent_who_is_back_stays_on_the_shelf() {
    let purser = Purser::new();
    let digest = *purser.purses.store.owner(&Principal::Named("ann".into())).digest();
    let ann = purser.spender("ann", LONG);
    purser.purses.write(&ann).await;
    let kept = purser.shelf();
    // Spent and not yet written: nothing is taken away and written again.
    purser.spender("ann", LONG);
    purser.purses.unshelve(&digest).await;
    assert_eq!((kept.len(), purser.shelf()), (1, kept));
    purser.purses.known.remove(&digest);
    purser.purses.unshelve(&digest).await;
    assert_eq!(purser.shelf(), []);
}

#[tokio::test]
async fn what_an_owner_spends_who_comes_back_while_it_is_taken_from_the_shelf_is_written_again() {
    let purser = Purser::new();
    let digest = *purser.purses.store.owner(&Principal::Named("ann".into())).digest();
    // The store has a thread of its own, which may be done before she can come.
    for _ in 0..1000 {
        purser.purses.write(&purser.spender("ann", LONG)).await;
        let kept = purser.shelf();
        purser.purses.known.remove(&digest);
        let mut taken = std::pin::pin!(purser.purses.unshelve(&digest));
        let begun = std::future::poll_fn(|context| std::task::Poll::Ready(taken.as_mut().poll(context))).await;
        if begun.is_ready() {
            continue;
        }
        purser.spender("ann", LONG);
        taken.await;
        assert_eq!((kept.len(), purser.shelf()), (1, kept));
        return;
    }
    panic!("it was always taken away before she came");
}
