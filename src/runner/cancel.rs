//! Stops tasks on request.

use super::Runner;
use crate::protocol::Failure;
use crate::store::{ChangeError, Committed, Ending};
use crate::task::{Canceller, Task};

impl Runner {
    /// Asks the run of `task` to stop. A task that has ended stays as it is; one that nothing runs for is ended here.
    /// Should this process be killed before the run has stopped, the next one does not go on with it. An error says that
    /// the store could not see to that now.
    pub async fn cancel(&self, task: &Committed<Task>, by: Canceller) -> Result<(), Failure> {
        if task.state.is_terminal() {
            return Ok(());
        }
        if let Some(live) = self.live().get(&task.id) {
            live.cancel_for(by);
            return self.store().forsake(&task.id).await.map_err(|error| error.to_failure());
        }
        // The record is open, but nothing runs: it is just being settled, or nobody will.
        match self.store().settle(&task.id, Ending::cancelled(by)).await {
            Ok(_) | Err(ChangeError::Refused(..)) => Ok(()),
            Err(error) => Err(error.to_failure()),
        }
    }
}
