//! What a proxy was in the middle of when it was killed, by what its log says.

use rand::seq::IndexedRandom;

/// Something that is written, and that a kill may interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Create,
    Promote,
    Settle,
    Purge,
    Drain,
}

/// In how many rounds the kill has hit each moment.
#[derive(Debug, Default)]
pub(crate) struct Hits([usize; 5]);

const ALL: [Moment; 5] = [Moment::Create, Moment::Promote, Moment::Settle, Moment::Purge, Moment::Drain];

impl Moment {
    /// Any of those that the log announces.
    pub(crate) fn any() -> Self {
        *ALL[..4].choose(&mut rand::rng()).unwrap()
    }

    /// What the log says before it.
    pub(crate) const fn begins(self) -> &'static str {
        match self {
            Self::Create | Self::Promote => "a call is to become a task",
            Self::Settle => "a task is to end",
            Self::Purge => "tasks are to be purged",
            Self::Drain => "a task is left to the next process",
        }
    }

    /// Whether such a line is about this moment: only the tool `auto` becomes a task while it runs.
    pub(crate) fn is_in(self, line: &str) -> bool {
        line.contains(self.begins())
            && match self {
                Self::Create => !is_auto(line),
                Self::Promote => is_auto(line),
                Self::Settle | Self::Purge | Self::Drain => true,
            }
    }

    /// Whether the line says that it is over.
    fn is_over(self, line: &str) -> bool {
        match self {
            Self::Create => line.contains("a call became a task") && !is_auto(line),
            Self::Promote => {
                let ended = ["a call became a task", "a slow call could not be made a task"];
                is_auto(line) && ended.iter().any(|text| line.contains(text))
            }
            Self::Settle => line.contains("a task is settled"),
            Self::Purge => line.contains("tasks were purged"),
            Self::Drain => false,
        }
    }
}

fn is_auto(line: &str) -> bool {
    line.contains("tool=\"auto\"")
}

impl Hits {
    /// Counts what the log of a proxy that was killed began and did not end.
    pub(crate) fn count(&mut self, log: &str, refused: bool) {
        for (hits, moment) in self.0.iter_mut().zip(ALL) {
            let begun = log.lines().filter(|line| moment.is_in(line)).count();
            let over = log.lines().filter(|line| moment.is_over(line)).count();
            *hits += usize::from(begun > over || moment == Moment::Drain && refused);
        }
    }

    pub(crate) fn has_all(&self) -> bool {
        self.0.iter().all(|hits| *hits > 0)
    }
}
