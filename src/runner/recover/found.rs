//! Runs of an earlier process that may go on at their server.

use super::super::attend::Attendance;
use super::super::run::Run;
use super::super::running::Running;
use super::super::seat::{Owned, Seat};
use super::call;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Failure, McpService, Method, Outcome};
use crate::store::{Anchored, Closing, Committed};
use crate::task::Task;

impl Run {
    /// Listens on for the answer of a run. It takes the slots that are free and waits for none: it runs already.
    pub(super) async fn find<S: McpService>(
        mut self,
        inner: S,
        owned: Owned,
        task: Committed<Task>,
        anchored: Anchored,
    ) {
        let id = task.id;
        let permits = self.free_slots();
        self.forget_questions(&task).await;
        let mut params = ObjectWriter::new();
        params.string("name", &task.tool);
        self.plan.way.abilities = anchored.abilities.clone();
        let listen = call(Method::Resume(anchored.anchor), params.finish_json(), anchored.abilities, &self);
        let Some(listen) = listen else {
            let failure = Failure::outcome_unknown("the run cannot be asked after");
            return Seat::Task(owned).end(Outcome::Failed(failure)).await;
        };
        let ran = task.ran(self.shared.store.clock().now()).unwrap_or_default();
        let fare = self.shared.admission.fare_of_left(&self.principal, &task);
        let running = Running::send(inner.clone(), listen);
        let attendance =
            Attendance::new(self, running, permits, None).asked_before(task.asked.clone()).found(ran).priced(fare);
        let Some(mut lost) = attendance.attend(Seat::Task(owned)).await else { return };
        // Before it begins again: then its call is not kept any longer.
        let Some(call) = lost.run.kept_call(id).await else {
            return lost.ready.seat.end(Outcome::Failed(Failure::outcome_unknown("the run was lost"))).await;
        };
        if let Some((run, ready)) = lost.begin_again().await {
            run.send(inner, call, ready).await;
        }
    }

    /// The server asks again what is still open, since where a run is never lies behind an open question: it gets
    /// another key then.
    async fn forget_questions(&self, task: &Task) {
        for question in task.state.questions() {
            let closed = self.shared.store.close_question(&task.id, &question.key, Closing::Withdrawn).await;
            if let Err(error) = closed {
                tracing::debug!(task = ?task.id, %error, "a question could not be withdrawn");
            }
        }
    }
}
