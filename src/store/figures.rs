//! Numbers about the store, for whoever watches it.

use std::sync::atomic::Ordering;

use super::shared::Hot;
use super::{Status, Store};

/// Numbers about the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Commits since it was made.
    pub commits: u64,
    /// Tasks in it, ended ones too.
    pub tasks: u64,
    /// Open tasks by [`Status`], in the order of [`Status::ALL`].
    open: [u64; Status::ALL.len()],
}

impl Figures {
    /// Tasks that have not ended and are so far.
    pub fn open(&self, status: Status) -> u64 {
        Status::ALL.iter().zip(self.open).find(|(other, _)| **other == status).map_or(0, |(_, count)| count)
    }
}

impl Store {
    /// The numbers now. Looks at every open task.
    pub fn figures(&self) -> Figures {
        let shared = &self.inner.shared;
        let (commits, tasks) = (&shared.counts.commits, &shared.counts.tasks);
        let mut figures = Figures {
            commits: commits.load(Ordering::Relaxed),
            tasks: tasks.load(Ordering::Relaxed),
            ..Figures::default()
        };
        shared.hot.for_each(|_, hot| {
            if let Hot::Committed(task) = hot
                && let Some(at) = Status::ALL.iter().position(|status| *status == Status::of(&task.state))
                && let Some(count) = figures.open.get_mut(at)
            {
                *count += 1;
            }
        });
        figures
    }
}
