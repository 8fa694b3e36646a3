//! Stops tasks on request.

use super::Runner;
use crate::protocol::Failure;
use crate::store::{ChangeError, Committed, Ending};
use crate::task::{Canceller, Task};

impl Runner {
    /// Asks the run of `task` to stop. A task that has ended stays as it is; one that nothing runs for is ended here. An
    /// error says that the store could not do that now.
    pub async fn cancel(&self, task: &Committed<Task>, by: Canceller) -> Result<(), Failure> {
        if task.state.is_terminal() {
            return Ok(());
        }
        if let Some(live) = self.live().get(&task.id) {
            live.cancel_for(by);
            if live.is_to_be_kept() {
                self.keep_wish(task.id, by).await;
            }
            return Ok(());
        }
        // The record is open, but nothing runs: it is just being settled, or nobody will.
        match self.store().settle(&task.id, Ending::cancelled(by)).await {
            Ok(_) | Err(ChangeError::Refused(..)) => Ok(()),
            Err(error) => Err(error.to_failure()),
        }
    }
}
