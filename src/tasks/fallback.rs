//! What a slow call gets, by what its client can take (`fallback`).

use super::companion::{Companions, said_no};
use super::refused;
use crate::config::{AskPolicy, Fallback, Mode, ToolPolicy};
use crate::policy::Policies;
use crate::protocol::{Caller, ClientSession, Outcome, TaskSupport};
use crate::runner::{Form, Promotion, Questions, Way};

/// What this client gets of a call that is slow.
enum Gets {
    /// A task (SEP-2663), promoted then.
    Task(Promotion),
    /// A handle in words, given out then.
    Words(Promotion),
    /// Nothing but the outcome, however long it takes.
    Held,
}

/// Bytes of a tool's name that are logged.
const LOGGED: usize = 64;

/// How a call of the tool goes on; the outcome if this client cannot have what the tool needs.
pub(super) fn way(tool: &str, policies: &Policies, caller: &Caller, companions: &Companions) -> Result<Way, Outcome> {
    let policy = policies.of(tool);
    let gets = match (policy.mode, caller.tasks, policy.fallback) {
        (Mode::Sync, TaskSupport::Declared, _) => Gets::Held,
        (Mode::Auto, TaskSupport::Declared, _) => Gets::Task(Promotion::After(policy.after)),
        (Mode::Task, TaskSupport::Declared, _) => Gets::Task(Promotion::AtOnce),
        (mode, TaskSupport::Undeclared | TaskSupport::Augmenting, fallback) => match (mode, fallback) {
            (Mode::Auto, Fallback::Handle) => Gets::Words(Promotion::After(policy.hold)),
            (Mode::Task, Fallback::Handle) => Gets::Words(Promotion::AtOnce),
            (Mode::Task, Fallback::Refuse) => return Err(refused(tool, policies, caller)),
            // A call that is to be a task of 2025-11-25 says so (see `legacy`).
            (_, Fallback::Wait | Fallback::LegacyTasks | Fallback::Refuse) | (Mode::Sync, _) => Gets::Held,
        },
    };
    let (abilities, session) = (caller.abilities.clone(), caller.session.clone());
    let held = match caller.session {
        ClientSession::Legacy(_) => Questions::PassOn,
        ClientSession::Stateless => Questions::RoundTrip,
    };
    Ok(match gets {
        Gets::Held => Way { promotion: Promotion::Never, questions: held, abilities, form: Form::Task, session },
        Gets::Words(promotion) => {
            Way { promotion, questions: held, abilities, form: companions.words(&caller.session), session }
        }
        Gets::Task(then) => {
            // With `ask = "first"` the first question gets its chance before there is a task.
            let (promotion, questions) = match policy.ask {
                AskPolicy::Task => (then, Questions::Promote),
                AskPolicy::First => (Promotion::After(policy.after), Questions::First { then }),
            };
            Way { promotion, questions, abilities, form: Form::Task, session }
        }
    })
}

/// Whether some client may get a handle in words from a tool.
pub(super) fn speaks(policy: &ToolPolicy) -> bool {
    policy.fallback == Fallback::Handle && policy.mode != Mode::Sync
}

/// The name of a tool as it is logged: what a caller sent, so not all of it.
fn shown(tool: &str) -> &str {
    tool.get(..tool.floor_char_boundary(LOGGED)).unwrap_or_default()
}

/// -32021, or the same in words for the model of a legacy client, whose revision has no such error.
fn refused(tool: &str, policies: &Policies, caller: &Caller) -> Outcome {
    let error = refused::needs_tasks(tool, policies.pattern_of(tool), caller);
    tracing::info!(tool = ?shown(tool), code = error.code(), "a call was refused: its client has no Tasks (fallback = \"refuse\")");
    match caller.session {
        ClientSession::Stateless => Outcome::Error(error),
        ClientSession::Legacy(_) => {
            said_no(&format!("Nothing was run: {}. Do not call it again from here.", error.message()))
        }
    }
}
