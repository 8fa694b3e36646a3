//! Values that belong to no task.

use raincheck::store::{CommitError, Shelf};

use crate::support::TestStore;

#[tokio::test]
async fn what_is_shelved_is_there_after_a_restart_each_on_its_shelf() {
    let test = TestStore::new();
    for (shelf, name, value) in
        [(Shelf::History, "b", "1"), (Shelf::History, "a", "2"), (Shelf::History, "a", "3"), (Shelf::Budget, "a", "4")]
    {
        test.store.shelve(shelf, name, Some(value.into())).await.unwrap();
    }
    let test = test.reopened().await;
    let named = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
    assert_eq!(test.store.shelf(Shelf::History).unwrap(), [named("a", "3"), named("b", "1")]);
    assert_eq!(test.store.shelf(Shelf::Budget).unwrap(), [named("a", "4")]);
    test.store.shelve(Shelf::History, "a", None).await.unwrap();
    assert_eq!(test.store.shelf(Shelf::History).unwrap(), [named("b", "1")]);
}

#[tokio::test]
async fn what_is_too_large_for_a_shelf_is_refused_and_changes_nothing() {
    let test = TestStore::new();
    let refused = |error: CommitError| assert!(matches!(error, CommitError::TooLarge { .. }), "{error}");
    refused(test.store.shelve(Shelf::Budget, "a", Some(vec![0; 4097])).await.unwrap_err());
    refused(test.store.shelve(Shelf::Budget, &"n".repeat(257), Some(vec![0])).await.unwrap_err());
    assert_eq!(test.store.shelf(Shelf::Budget).unwrap(), []);
}
