//! Lists of tasks, the newest first, a page at a time.

use std::sync::Arc;

use super::shared::{Hot, Shared};
use super::{Committed, ReadError, Store};
use crate::clock::Timestamp;
use crate::task::{Owner, State, Task, TaskId};

/// Which tasks are listed: those that fit everything that is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Whose they are; anybody's if `None`. With an owner a page costs what stands in it.
    pub owner: Option<Owner>,
    /// How far they are.
    pub status: Option<Status>,
    /// The name of the server in the config.
    pub server: Option<String>,
    /// The name of the tool.
    pub tool: Option<String>,
}

/// How far a task is, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It waits for a slot.
    Queued,
    /// It runs.
    Running,
    /// It asks.
    InputRequired,
    /// It ended with a result.
    Completed,
    /// It ended without one.
    Failed,
    /// It was stopped.
    Cancelled,
}

/// A part of a list.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The newest first. May be fewer than asked for, even none, although there are more.
    pub tasks: Vec<Committed<Task>>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<TaskId>,
}

/// Records that are looked at for one page: a filter that hardly anything fits must not read the whole store at once.
const LOOKED_AT: usize = 4096;

/// Tasks that are looked at whose ids begin alike.
const ALIKE: usize = 16;

/// Records that are read together.
const CHUNK: usize = 256;

impl Status {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Running, Self::InputRequired, Self::Completed, Self::Failed, Self::Cancelled];

    /// The status of a state.
    pub fn of(state: &State) -> Self {
        match state {
            State::Queued => Self::Queued,
            State::Running { .. } => Self::Running,
            State::InputRequired { .. } => Self::InputRequired,
            State::Completed { .. } => Self::Completed,
            State::Failed { .. } => Self::Failed,
            State::Cancelled { .. } => Self::Cancelled,
        }
    }

    /// Its name, which tells `queued` from `running` where the wire has one word for both.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl Filter {
    /// The tasks of one owner.
    pub fn of(owner: Owner) -> Self {
        Self { owner: Some(owner), ..Self::default() }
    }

    fn wants(&self, task: &Task, now: Timestamp) -> bool {
        let expired = task.expires().is_some_and(|expires| expires <= now);
        !expired
            && self.owner.is_none_or(|owner| task.owner == owner)
            && self.status.is_none_or(|status| Status::of(&task.state) == status)
            && self.server.as_ref().is_none_or(|server| task.server == *server)
            && self.tool.as_ref().is_none_or(|tool| task.tool == *tool)
    }
}

impl Store {
    /// Up to `limit` tasks that `filter` wants, the newest first; those made before the task `before`, if one is given,
    /// which need not be there any more. What has expired is not listed.
    pub async fn list(&self, filter: Filter, before: Option<TaskId>, limit: usize) -> Result<Page, ReadError> {
        let shared = Arc::clone(&self.inner.shared);
        let list = move || list(&shared, &filter, before, limit);
        tokio::task::spawn_blocking(list).await.map_err(|error| ReadError::Io(std::io::Error::other(error)))?
    }

    /// The task with this id, whoever owns it, if it has not expired. For operators.
    pub fn look(&self, id: &TaskId) -> Result<Option<Committed<Task>>, ReadError> {
        let found = self.inner.shared.find(id)?;
        let now = self.clock().now();
        Ok(found.filter(|task| task.expires().is_none_or(|expires| expires > now)))
    }

    /// The tasks whose ids begin so, if they have not expired; of many the first few. For operators.
    pub fn look_like(&self, beginning: &str) -> Result<Vec<Committed<Task>>, ReadError> {
        let ids = self.inner.shared.read(|engine| engine.ids_like(beginning, ALIKE))?;
        let found = ids.iter().map(|id| self.look(id));
        found.filter_map(Result::transpose).collect()
    }

    /// The owner of tasks whose digest begins with these bytes; two if more than one begins so. For operators.
    pub fn owners_like(&self, prefix: &[u8]) -> Result<Vec<Owner>, ReadError> {
        self.inner.shared.read(|engine| engine.owners_like(Owner::SCHEME, prefix))
    }
}

fn list(shared: &Shared, filter: &Filter, before: Option<TaskId>, limit: usize) -> Result<Page, ReadError> {
    let now = shared.clock.now();
    let (mut page, mut from) = (Page::default(), before);
    let mut looked_at = 0;
    while looked_at < LOOKED_AT {
        let chunk = shared.read(|engine| match &filter.owner {
            None => {
                let tasks = engine.tasks_before(from.as_ref(), CHUNK)?;
                Ok(tasks.into_iter().map(|task| (task.id, Some(task))).collect::<Vec<_>>())
            }
            Some(owner) => {
                let ids = engine.owned_before(owner, from.as_ref(), CHUNK.min(limit.saturating_add(1)))?;
                // One that is gone was purged a moment ago.
                ids.into_iter().map(|id| Ok((id, engine.task(&id)?))).collect()
            }
        })?;
        if chunk.is_empty() {
            return Ok(page);
        }
        looked_at += chunk.len();
        for (id, read) in chunk {
            let task = read.map(|task| committed(shared, task)).transpose()?.flatten();
            if let Some(task) = task.filter(|task| filter.wants(task, now)) {
                if page.tasks.len() == limit {
                    page.next = from;
                    return Ok(page);
                }
                page.tasks.push(task);
            }
            from = Some(id);
        }
    }
    page.next = from;
    Ok(page)
}

/// The committed state of a task that was read from the database, durable or not (see [`Shared::find`]).
fn committed(shared: &Shared, read: Task) -> Result<Option<Committed<Task>>, ReadError> {
    match shared.hot.get(&read.id) {
        Some(Hot::Committed(task)) => Ok(Some(task)),
        Some(Hot::Pending) => Ok(None),
        None if read.state.is_terminal() => Ok(Some(Committed::new(Arc::new(read)))),
        // It ended between the two looks.
        None => shared.find(&read.id),
    }
}
