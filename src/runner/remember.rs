//! Remembers how runs ended and how long they took, and keeps that in the store, now and then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use memchr::memmem::Finder;
use tokio::time::sleep;

use super::attend::Attendance;
use super::{Runner, Shared, What};
use crate::history::{End, History};
use crate::protocol::{Failure, Json, Outcome, Reason};
use crate::store::{Shelf, Store};

/// How long what was learned may be in memory only.
const SAVE_AFTER: Duration = Duration::from_secs(5);

/// Values that are saved at the same time: enough for one group commit, few enough for the store's queue.
const AT_ONCE: usize = 64;

/// A result that says that the tool failed is short.
const LONGEST_TOOL_ERROR: usize = 16 << 10;

/// Whether somebody is about to save.
#[derive(Debug, Default)]
pub(super) struct Saving(AtomicBool);

/// What the store remembers. Blocks for as long as reading it takes.
pub(super) fn history(store: &Store) -> History {
    match store.shelf(Shelf::History) {
        Ok(kept) => History::load(kept),
        Err(error) => {
            tracing::warn!(%error, "how long tools take is not known any more");
            History::default()
        }
    }
}

impl Attendance {
    /// Counts how the run ended, if it is one of a tool.
    pub(super) fn remember(&self, end: End) {
        let What::Tool(tool) = &self.run.plan.what else { return };
        let shared = &self.run.shared;
        let now = shared.store.clock().now();
        shared.history.ended(&self.run.plan.server, tool, end, self.clock.ran(), now);
        if shared.history.is_unsaved() {
            save_soon(shared);
        }
    }
}

/// Saves what is not saved yet, a little later, unless somebody does already.
fn save_soon(shared: &Arc<Shared>) {
    if shared.saving.0.swap(true, Ordering::AcqRel) {
        return;
    }
    let runner = Runner(Arc::clone(shared));
    shared.jobs.spawn("save history", async move {
        tokio::select! {
            () = sleep(SAVE_AFTER) => {}
            // What comes after this is saved at the very end.
            () = runner.ending() => {}
        }
        runner.0.saving.0.store(false, Ordering::Release);
        runner.save_history().await;
    });
}

impl Runner {
    /// How long tools take, and how runs ended.
    pub fn history(&self) -> &History {
        &self.0.history
    }

    /// Keeps in the store what was learned of the tools. To be called before the store is closed.
    pub async fn save_history(&self) {
        let (store, history) = (&self.0.store, &self.0.history);
        stream::iter(history.take_unsaved())
            .for_each_concurrent(AT_ONCE, |(name, record)| async move {
                if let Err(error) = store.shelve(Shelf::History, &name, record).await {
                    tracing::debug!(%error, "how long a tool takes could not be saved");
                    history.not_saved(&name);
                }
            })
            .await;
    }
}

/// How a run ended that ended by itself.
pub(super) fn end_of(outcome: &Outcome) -> End {
    match outcome {
        Outcome::Result(result) if is_tool_error(result) => End::ToolError,
        Outcome::Result(_) | Outcome::Shaped(_) => End::Completed,
        Outcome::Error(_) => End::ServerError,
        Outcome::Failed(failure) => end_of_failure(failure),
        Outcome::Task(_) => End::Failed,
    }
}

/// How a run ended that was given up.
pub(super) fn end_of_failure(failure: &Failure) -> End {
    match failure.reason {
        Reason::Timeout | Reason::IdleTimeout => End::Timeout,
        _ => End::Failed,
    }
}

/// Made once: to make it takes longer than to search most results.
static IS_ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"isError\""));

fn is_tool_error(result: &Json) -> bool {
    // The search is far cheaper than reading every result once more.
    result.len() <= LONGEST_TOOL_ERROR
        && IS_ERROR.find(result.bytes()).is_some()
        && result.member("isError").is_some_and(|it| it.as_str() == "true")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Retry, RpcError};

    #[test]
    fn a_run_counts_by_how_it_ended() {
        let result = |text: &'static str| Outcome::Result(Json::parse(text.into()).unwrap());
        let failed = |reason| Outcome::Failed(Failure::new(reason, "", Retry::Unknown));
        let table = [
            (result("{\"content\":[]}"), End::Completed),
            (result("{\"content\":[],\"isError\":false}"), End::Completed),
            (result("{\"content\":[{\"text\":\"\\\"isError\\\":true\",\"isError\":true}]}"), End::Completed),
            (result("{\"isError\":true,\"content\":[]}"), End::ToolError),
            (Outcome::Error(RpcError::new(-32602, "no")), End::ServerError),
            (failed(Reason::Timeout), End::Timeout),
            (failed(Reason::IdleTimeout), End::Timeout),
            (failed(Reason::OutcomeUnknown), End::Failed),
        ];
        for (outcome, expected) in table {
            assert_eq!(end_of(&outcome), expected, "{outcome:?}");
        }
    }
}
