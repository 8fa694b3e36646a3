//! What the tools are called: as the config says, unless the server has a tool of that name.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::config::CompanionNames;
use crate::protocol::Json;

/// The names, and what is known of the server's own. A name that was taken once stays taken.
#[derive(Debug)]
pub(super) struct Names {
    wanted: CompanionNames,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// Those of the server's names that could be taken for ours.
    taken: BTreeSet<String>,
    extent: Extent,
}

/// How much of the server's list was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// Not all of it.
    Part,
    /// Not all of it, though it was asked for then.
    Refused(Instant),
    /// All of it, at least once.
    Whole,
}

/// What a name gets in front where the server has it.
const PREFIX: &str = "raincheck_";
/// The server's names that are remembered: one that wants more than this has all names in the world.
const MOST: usize = 64;
/// How long a server that did not list its tools is not asked again.
const PAUSE: Duration = Duration::from_mins(1);

impl Names {
    pub(super) fn new(wanted: CompanionNames) -> Self {
        Self { wanted, known: Mutex::new(Known { taken: BTreeSet::new(), extent: Extent::Part }) }
    }

    /// The names as far as the server's are known.
    pub(super) fn now(&self) -> CompanionNames {
        let known = self.lock();
        if known.taken.is_empty() {
            return self.wanted.clone();
        }
        let CompanionNames { check, cancel, answer } = &self.wanted;
        let wanted = [check, cancel, answer];
        let mut used = known.taken.clone();
        let names = wanted.map(|name| {
            if !known.taken.contains(name) {
                return name.clone();
            }
            used.extend(wanted.into_iter().cloned());
            let numbered = (2_u32..).map(|number| format!("{PREFIX}{name}_{number}"));
            let mut others = std::iter::once(format!("{PREFIX}{name}")).chain(numbered);
            let other = others.find(|other| !used.contains(other)).unwrap_or_default();
            used.insert(other.clone());
            other
        });
        let [check, cancel, answer] = names;
        CompanionNames { check, cancel, answer }
    }

    /// Whether a tool of this name may be ours, whatever the server calls its own.
    pub(super) fn may_be(&self, name: &str) -> bool {
        let CompanionNames { check, cancel, answer } = &self.wanted;
        let plain = name.strip_prefix(PREFIX);
        [check, cancel, answer].into_iter().any(|wanted| {
            name == wanted
                || plain.and_then(|plain| plain.strip_prefix(wanted.as_str())).is_some_and(|rest| {
                    rest.strip_prefix('_')
                        .map_or(rest.is_empty(), |number| number.bytes().all(|it| it.is_ascii_digit()))
                })
        })
    }

    /// Takes note of the names in a page of the server's list.
    pub(super) fn see(&self, tools: &[Json]) {
        for tool in tools {
            let Some(name) = tool.member("name").and_then(|name| name.read::<String>().ok()) else { continue };
            if !self.may_be(&name) {
                continue;
            }
            let mut known = self.lock();
            if known.taken.len() < MOST && known.taken.insert(name.clone()) {
                drop(known);
                tracing::info!(tool = name, "the server has a tool of this name; Raincheck's own gets another");
            }
        }
    }

    /// All of the server's list was seen.
    pub(super) fn saw_all(&self) {
        self.lock().extent = Extent::Whole;
    }

    /// The server did not give its list.
    pub(super) fn was_refused(&self) {
        let mut known = self.lock();
        if known.extent != Extent::Whole {
            known.extent = Extent::Refused(Instant::now());
        }
    }

    /// Whether the server is to be asked for its list.
    pub(super) fn wants_more(&self) -> bool {
        match self.lock().extent {
            Extent::Part => true,
            Extent::Refused(at) => at.elapsed() >= PAUSE,
            Extent::Whole => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Nothing in here panics with the lock held, so what is known is in order.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tool(name: &str) -> Json {
        Json::from_value(&serde_json::json!({ "name": name }))
    }

    fn names_beside(own: &[&str]) -> [String; 3] {
        let names = Names::new(CompanionNames::default());
        names.see(&own.iter().map(|name| tool(name)).collect::<Vec<_>>());
        let CompanionNames { check, cancel, answer } = names.now();
        [check, cancel, answer]
    }

    #[test]
    fn a_name_that_the_server_has_gets_a_prefix_and_then_a_number() {
        let table: &[(&[&str], [&str; 3])] = &[
            (&[], ["check_job", "cancel_job", "answer_job"]),
            (&["export", "check_jobs"], ["check_job", "cancel_job", "answer_job"]),
            (&["cancel_job"], ["check_job", "raincheck_cancel_job", "answer_job"]),
            (&["check_job", "raincheck_check_job"], ["raincheck_check_job_2", "cancel_job", "answer_job"]),
            (&["raincheck_check_job"], ["check_job", "cancel_job", "answer_job"]),
        ];
        for (own, expected) in table {
            assert_eq!(names_beside(own), *expected, "{own:?}");
        }
    }

    #[test]
    fn a_name_of_one_tool_is_not_given_to_another() {
        let wanted = CompanionNames {
            check: "a".to_owned(),
            cancel: "raincheck_a".to_owned(),
            answer: "raincheck_a_2".to_owned(),
        };
        let names = Names::new(wanted);
        names.see(&[tool("a")]);
        assert_eq!(names.now().check, "raincheck_a_3");
    }

    proptest! {
        #[test]
        fn no_name_is_ever_the_servers(own in proptest::collection::vec("(raincheck_)?(check|cancel|answer)_job(_[2-4])?", 0..12)) {
            let own: Vec<&str> = own.iter().map(String::as_str).collect();
            let names = names_beside(&own);
            for name in &names {
                prop_assert!(!own.contains(&name.as_str()), "{name}");
                prop_assert!(Names::new(CompanionNames::default()).may_be(name));
            }
            prop_assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2]);
        }
    }
}
