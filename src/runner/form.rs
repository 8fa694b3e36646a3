//! What a handle looks like to a client: `CreateTaskResult` for those that declare the extension, for others whatever
//! the layer above writes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::live::Live;
use super::{Shared, view};
use crate::clock::Timestamp;
use crate::protocol::Rope;
use crate::store::Committed;
use crate::task::Task;

/// What a handle looks like to one client.
#[derive(Clone, Debug, Default)]
pub enum Form {
    /// `CreateTaskResult` (SEP-2663).
    #[default]
    Task,
    /// As somebody else writes it.
    Other(Arc<dyn WriteHandle>),
}

/// Writes handles for clients that cannot take a `CreateTaskResult`. A handle is made from a committed task and
/// nothing else.
pub trait WriteHandle: fmt::Debug + Send + Sync {
    /// The result of the call that became this task, in the shape of the client's era.
    fn write(&self, handed: &Handed<'_>) -> Rope;

    /// How long the client wants the task to be kept, counted from its creation; `None` if it does not say.
    fn ttl(&self) -> Option<Duration> {
        None
    }

    /// Whether the repeat of a call that has ended is answered by a handle too. Words say that there is no result yet.
    fn is_for_ended(&self) -> bool {
        false
    }
}

/// A task whose handle is given out.
#[derive(Clone, Copy, Debug)]
pub struct Handed<'a> {
    /// The record.
    pub task: &'a Committed<Task>,
    /// Its run; `None` if none goes on here.
    pub live: Option<&'a Live>,
    /// Why the handle is given out.
    pub occasion: Occasion,
    /// The time.
    pub now: Timestamp,
}

/// Why a handle is given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The call has just become a task.
    Made,
    /// The call is the repeat of one that is a task already, and joins it.
    Joined,
}

impl Shared {
    /// The result of the call that became `task`.
    pub(super) fn handle(&self, form: &Form, task: &Committed<Task>, live: Option<&Live>, occasion: Occasion) -> Rope {
        form.write(&Handed { task, live, occasion, now: self.store.clock().now() })
    }
}

impl Form {
    /// The result of the call that became this task.
    fn write(&self, handed: &Handed<'_>) -> Rope {
        match self {
            Self::Task => match handed.occasion {
                Occasion::Made => view::created(handed.task, handed.live, handed.now),
                Occasion::Joined => view::joined(handed.task, handed.live, handed.now),
            },
            Self::Other(writer) => writer.write(handed),
        }
    }

    /// How long the client wants the task to be kept.
    pub(super) fn ttl(&self) -> Option<Duration> {
        match self {
            Self::Task => None,
            Self::Other(writer) => writer.ttl(),
        }
    }
}
