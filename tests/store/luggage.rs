//! What is kept beside a task so that another process can go on with it.

use std::time::Duration;

use raincheck::protocol::{Abilities, Anchor};
use raincheck::store::{Anchored, ChangeError, CommitError, Dispatch, Ending, Luggage};
use raincheck::task::{Expiry, Refusal, State, TaskId};

use crate::outcomes::files;
use crate::support::{START, TestStore, json};

fn dispatch(params: &str, again: bool) -> Dispatch {
    let abilities = Abilities::of(json(r#"{"elicitation":{"form":{}}}"#));
    Dispatch { arrived: START, abilities, params: json(params), again }
}

fn anchored(words: &str) -> Anchored {
    Anchored { anchor: Anchor::new(words.to_owned()), abilities: Abilities::of(json(r#"{"roots":{}}"#)) }
}

fn large() -> String {
    format!(r#"{{"name":"t","arguments":{{"n": 1e400,"x":"{}"}}}}"#, "é".repeat(50_000))
}

async fn queued(test: &TestStore, params: &str, again: bool) -> TaskId {
    let luggage = Luggage { dispatch: Some(dispatch(params, again)), ..Luggage::default() };
    test.store.create_with(test.queued(Expiry::Never), luggage).await.unwrap().id
}

async fn params(test: &TestStore, id: &TaskId) -> Option<String> {
    let dispatch = test.store.dispatch(id).await.unwrap()?;
    assert_eq!((dispatch.arrived, dispatch.abilities.raw().as_str()), (START, r#"{"elicitation":{"form":{}}}"#));
    Some(dispatch.params.as_str().to_owned())
}

#[tokio::test]
async fn the_call_of_a_queued_task_comes_back_byte_for_byte_until_it_starts() {
    let test = TestStore::new();
    let small = queued(&test, r#"{"n": 1E2}"#, false).await;
    let wide = queued(&test, &large(), false).await;
    let test = test.reopened().await;
    assert_eq!(params(&test, &small).await.unwrap(), r#"{"n": 1E2}"#);
    assert_eq!(params(&test, &wide).await.unwrap(), large());
    assert_eq!(files(&test).len(), 1);
    for id in [small, wide] {
        test.store.start(&id).await.unwrap();
        assert_eq!(params(&test, &id).await, None);
    }
    assert_eq!(files(&test).len(), 0, "the file goes with the entry");
}

#[tokio::test]
async fn the_sweep_leaves_the_file_of_a_call_alone_and_its_end_removes_it() {
    let test = TestStore::new();
    let id = queued(&test, &large(), false).await;
    let test = test.reopened().await;
    // The store sweeps its files when it is opened.
    let test = test.reopened().await;
    assert_eq!(params(&test, &id).await.unwrap(), large());
    test.store.settle(&id, Ending::Cancelled).await.unwrap();
    assert_eq!((params(&test, &id).await, files(&test).len()), (None, 0));
}

#[tokio::test]
async fn a_task_that_may_run_again_keeps_its_call_for_one_more_run() {
    let test = TestStore::new();
    let id = queued(&test, &large(), true).await;
    test.store.start(&id).await.unwrap();
    assert!(params(&test, &id).await.is_some());
    let again = test.store.rerun(&id, Duration::ZERO).await.unwrap();
    assert_eq!((&again.state, again.reruns), (&State::Queued, 1));
    let test = test.reopened().await;
    assert_eq!(params(&test, &id).await.unwrap(), large());
    test.store.start(&id).await.unwrap();
    assert_eq!((params(&test, &id).await, files(&test).len()), (None, 0));
    let refused = test.store.rerun(&id, Duration::ZERO).await;
    assert!(matches!(refused, Err(ChangeError::Refused(Refusal::RunAgain, _))), "{refused:?}");
}

#[tokio::test]
async fn the_newest_anchor_is_kept_until_the_end() {
    let test = TestStore::new();
    let luggage =
        Luggage { dispatch: Some(dispatch("{}", true)), anchored: Some(anchored("one")), ..Luggage::default() };
    let id = test.store.create_with(test.running(Expiry::Never), luggage).await.unwrap().id;
    assert_eq!(test.store.anchored(&id).unwrap(), Some(anchored("one")));
    test.store.anchor(&id, &anchored("two")).await.unwrap();
    let test = test.reopened().await;
    assert_eq!(test.store.anchored(&id).unwrap(), Some(anchored("two")));
    let too_large = test.store.anchor(&id, &anchored(&"x".repeat(4000))).await;
    assert!(matches!(too_large, Err(CommitError::TooLarge { .. })), "{too_large:?}");
    // A run that is lost has no place any more, and one that comes late changes nothing.
    test.store.rerun(&id, Duration::ZERO).await.unwrap();
    assert_eq!(test.store.anchored(&id).unwrap(), None);
    test.store.anchor(&id, &anchored("three")).await.unwrap();
    assert_eq!(test.store.anchored(&id).unwrap(), None);
    test.store.start(&id).await.unwrap();
    test.store.anchor(&id, &anchored("four")).await.unwrap();
    test.store.settle(&id, Ending::Completed(json("{}"))).await.unwrap();
    test.store.anchor(&id, &anchored("five")).await.unwrap();
    let test = test.reopened().await;
    assert_eq!(test.store.anchored(&id).unwrap(), None);
}
