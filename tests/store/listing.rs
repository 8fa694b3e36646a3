//! Lists of tasks.

use std::time::Duration;

use raincheck::store::{Ending, Filter, Page, Status, Store};
use raincheck::task::{Owner, Task, TaskId};

use crate::support::{TestStore, expiry, json};

/// All pages of a list.
async fn pages(store: &Store, filter: &Filter, limit: usize) -> Vec<Vec<TaskId>> {
    let (mut pages, mut from) = (Vec::new(), None);
    loop {
        let Page { tasks, next } = store.list(filter.clone(), from, limit).await.unwrap();
        pages.push(tasks.iter().map(|task| task.id).collect());
        if next.is_none() {
            return pages;
        }
        from = next;
    }
}

async fn all(store: &Store, filter: &Filter) -> Vec<TaskId> {
    pages(store, filter, 100).await.concat()
}

/// Tasks of two owners in turn, made at different moments; the newest last.
async fn made(test: &TestStore, count: usize) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for at in 0..count {
        let owner = if at % 2 == 0 { test.owner() } else { test.other_owner() };
        ids.push(test.store.create(Task { owner, ..test.running(expiry(600, 30)) }).await.unwrap().id);
        test.clock.advance(Duration::from_millis(5));
    }
    ids
}

fn every_other(ids: &[TaskId]) -> Vec<TaskId> {
    ids.iter().rev().step_by(2).copied().collect()
}

#[tokio::test]
async fn an_owner_sees_its_own_tasks_the_newest_first_page_by_page() {
    let test = TestStore::new();
    let ids = made(&test, 11).await;
    let mine = every_other(&ids);
    let filter = Filter::of(test.owner());
    assert_eq!(pages(&test.store, &filter, 4).await, [mine[..4].to_vec(), mine[4..].to_vec()]);
    // A page that is just full is the last one.
    assert_eq!(pages(&test.store, &filter, 6).await, std::slice::from_ref(&mine));
    assert_eq!(all(&test.store, &Filter::of(test.other_owner())).await, every_other(&ids[..10]));
    assert_eq!(all(&test.store, &Filter::of(Owner::from_parts(1, [0xff; 32]))).await, []);
    let everybody: Vec<_> = ids.iter().rev().copied().collect();
    assert_eq!(pages(&test.store, &Filter::default(), 3).await.concat(), everybody);
    // What is made meanwhile stands before the pages that are still to come.
    let first = test.store.list(filter.clone(), None, 4).await.unwrap();
    test.run(expiry(600, 30)).await;
    let rest = test.store.list(filter, first.next, 4).await.unwrap();
    assert_eq!(rest.tasks.iter().map(|task| task.id).collect::<Vec<_>>(), mine[4..]);
}

#[tokio::test]
async fn a_list_has_what_fits_all_that_the_filter_says() {
    let test = TestStore::new();
    let queued = test.store.create(test.queued(expiry(600, 30))).await.unwrap().id;
    let other = Task { tool: "import".to_owned(), ..test.running(expiry(600, 30)) };
    let running = test.store.create(other).await.unwrap().id;
    let done = test.run(expiry(600, 30)).await;
    test.store.settle(&done, Ending::Completed(json("1"))).await.unwrap();
    let cases = [
        (Filter { status: Some(Status::Queued), ..Filter::default() }, vec![queued]),
        (Filter { status: Some(Status::Running), ..Filter::default() }, vec![running]),
        (Filter { status: Some(Status::Completed), ..Filter::of(test.owner()) }, vec![done]),
        (Filter { status: Some(Status::Completed), ..Filter::of(test.other_owner()) }, vec![]),
        (Filter { tool: Some("import".to_owned()), ..Filter::default() }, vec![running]),
        (Filter { server: Some("other".to_owned()), ..Filter::default() }, vec![]),
    ];
    for (filter, expected) in cases {
        assert_eq!(all(&test.store, &filter).await, expected, "{filter:?}");
    }
    assert_eq!(test.store.look(&done).unwrap().unwrap().id, done);
    assert!(test.store.look(&TaskId::generate(crate::support::START)).unwrap().is_none());
}

#[tokio::test]
async fn what_has_expired_is_in_no_list_before_and_after_it_is_purged() {
    let test = TestStore::new();
    let gone = test.run(expiry(10, 1)).await;
    test.store.settle(&gone, Ending::Cancelled).await.unwrap();
    let stays = test.run(expiry(600, 30)).await;
    test.clock.advance(Duration::from_secs(11));
    let filters = [Filter::of(test.owner()), Filter::default()];
    for filter in &filters {
        assert_eq!(all(&test.store, filter).await, [stays]);
    }
    assert!(test.store.look(&gone).unwrap().is_none());
    assert_eq!(test.store.sweep().await.unwrap().purged, 1);
    let test = test.reopened().await;
    for filter in &filters {
        assert_eq!(all(&test.store, filter).await, [stays]);
    }
    // The purged one left nothing by which its owner could be found.
    test.store.settle(&stays, Ending::Cancelled).await.unwrap();
    test.clock.advance(Duration::from_mins(10));
    assert_eq!(test.store.sweep().await.unwrap().purged, 1);
    assert_eq!(test.store.owners_like(&[]).unwrap(), []);
}

/// A filter that nothing fits reads a part of a large store at a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_may_be_empty_although_the_list_goes_on() {
    let test = TestStore::new();
    let old = Task { tool: "rare".to_owned(), ..test.running(expiry(600, 30)) };
    let old = test.store.create(old).await.unwrap().id;
    test.clock.advance(Duration::from_millis(5));
    let mut made = tokio::task::JoinSet::new();
    for task in (0..4200).map(|_| test.running(expiry(600, 30))) {
        let store = test.store.clone();
        made.spawn(async move {
            while store.create(task.clone()).await.is_err() {
                tokio::task::yield_now().await;
            }
        });
    }
    made.join_all().await;
    let rare = Filter { tool: Some("rare".to_owned()), ..Filter::default() };
    assert_eq!(pages(&test.store, &rare, 10).await, [vec![], vec![old]]);
}

#[tokio::test]
async fn an_owner_is_found_by_the_beginning_of_its_digest() {
    let test = TestStore::new();
    made(&test, 2).await;
    let (ann, bo) = (test.owner(), test.other_owner());
    assert_eq!(test.store.owners_like(&ann.digest()[..6]).unwrap(), [ann]);
    assert_eq!(test.store.owners_like(bo.digest()).unwrap(), [bo]);
    assert_eq!(test.store.owners_like(&[]).unwrap().len(), 2);
    let mut nobody = *ann.digest();
    nobody[31] ^= 1;
    assert_eq!(test.store.owners_like(&nobody).unwrap(), []);
}

/// A store of layout 2 is one whose lists of owners are missing.
#[tokio::test]
async fn a_store_from_before_there_were_lists_gets_them_when_it_is_opened() {
    let test = TestStore::new();
    let mut ids = made(&test, 9).await;
    ids.reverse();
    let path = test.directory.path().join("store");
    test.jobs.stop();
    test.store.close().await;
    {
        let db = sled::open(&path).unwrap();
        db.drop_tree("by_owner").unwrap();
        db.open_tree("meta").unwrap().insert("layout", &2_u32.to_be_bytes()).unwrap();
        db.flush().unwrap();
    }
    let commits = std::fs::read_to_string(path.join("raincheck.store")).unwrap();
    let commits = commits.split(' ').nth(3).unwrap();
    std::fs::write(path.join("raincheck.store"), format!("raincheck-store 2 open {commits} 0\n")).unwrap();
    let test = test.reopened().await;
    assert_eq!(all(&test.store, &Filter::of(test.owner())).await, ids.iter().step_by(2).copied().collect::<Vec<_>>());
    assert_eq!(all(&test.store, &Filter::of(test.other_owner())).await.len(), 4);
    assert!(std::fs::read_to_string(path.join("raincheck.store")).unwrap().starts_with("raincheck-store 3 "));
}
