//! The calls of one session and their open questions.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::askers::Askers;
use super::call::Addressee;
use super::floor::{Client, Origin};
use super::refusal;
use crate::protocol::{Json, Principal, Question, QuestionKind, RpcError};
use crate::task::MOST_QUESTIONS;

/// The calls of one session and their open questions.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// By the id upstream, so in the order of their age.
    pub(super) calls: BTreeMap<u64, Running>,
    pub(super) open: BTreeMap<u64, Open>,
    /// The number of the next question.
    pub(super) next: u64,
    pub(super) client: Option<Client>,
    pub(super) users: Users,
    pub(super) beginning: Beginning,
}

/// How far a session is, for what servers ask when one begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Beginning {
    /// It is not open yet.
    #[default]
    Ahead,
    /// It was opened then, and has not asked for roots.
    Since(Instant),
    /// It has asked for roots.
    Over,
}

/// How long after its handshake a server may take to ask for roots.
const BEGINNING: Duration = Duration::from_secs(5);

/// A call that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) addressee: Addressee,
    /// The tool, if it is a call of one.
    pub(super) tool: Option<String>,
    /// The server's handle, if it is a task of the server that is watched, or its result is waited for.
    pub(super) task: Option<Json>,
    pub(super) way: Way,
}

/// Whether the client of a call can be asked in its course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By an input request (2026-07-28, only some methods), or by a request (older).
    Open,
    /// Not at all: its method knows no input requests.
    None,
}

/// A question that waits for its answer, or whose answer is on its way.
#[derive(Debug)]
pub(super) struct Open {
    /// The server's id for it.
    pub(super) id: Json,
    pub(super) target: Target,
    pub(super) withdrawn: CancellationToken,
    pub(super) stage: Stage,
}

/// How far a question is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for its answer.
    Asked,
    /// The answer is on its way to the server.
    Answered,
}

/// To whom a question is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To the client of this call.
    Call(u64),
    /// To the legacy client whose session this is.
    Client,
}

/// Whose calls a session has seen.
#[derive(Debug, Default)]
pub(super) enum Users {
    /// Nobody's, or it is not shared.
    #[default]
    Nobody,
    /// One principal's.
    One(Principal),
    /// Several principals'. A question may then come from work that one left behind.
    Several,
}

impl Table {
    /// Whether this is what a session asks when it begins: servers want the roots then, as their SDKs show it, and no
    /// call waits for them.
    pub(super) fn begins_with(&mut self, question: &Question, task: Option<&Json>, origin: Origin) -> bool {
        if question.kind != QuestionKind::Roots || task.is_some() || matches!(origin, Origin::Call(_)) {
            return false;
        }
        match std::mem::replace(&mut self.beginning, Beginning::Over) {
            Beginning::Since(opened) => opened.elapsed() < BEGINNING,
            Beginning::Ahead | Beginning::Over => false,
        }
    }

    /// Whose a question is. `serial`: the session takes one call at a time, so there is never a doubt.
    pub(super) fn choose(
        &self,
        question: &Question,
        task: Option<&Json>,
        origin: Origin,
        askers: &Askers,
        serial: bool,
    ) -> Result<Target, RpcError> {
        let mut running = self.calls.iter().rev().filter(|(_, call)| call.addressee.is_there());
        let of_task = task.and_then(|task| running.find(|(_, call)| call.task.as_ref() == Some(task)));
        match (origin, of_task) {
            (Origin::Call(id), _) => {
                let running = self.calls.get(&id).filter(|call| call.addressee.is_there());
                return running.map(|_| Target::Call(id)).ok_or_else(|| refusal::ended(question));
            }
            // What a legacy client would get on its own listen stream it gets there.
            (Origin::Session | Origin::Channel, Some((id, _))) => return Ok(Target::Call(*id)),
            (Origin::Session, None) if self.client.is_some() => return Ok(Target::Client),
            (Origin::Session | Origin::Channel, None) => {}
        }
        if matches!(self.users, Users::Several) && !serial {
            return Err(refusal::ambiguous(question));
        }
        let running = self.calls.iter().filter(|(_, call)| call.addressee.is_there() && call.way == Way::Open);
        let likeliest = running.max_by_key(|(id, call)| {
            let known = call.tool.as_deref().is_some_and(|tool| askers.knows(tool));
            // One that waits for an answer hardly asks again before it has that.
            (call.addressee.abilities.covers(question), !self.asks(**id), known, **id)
        });
        match (likeliest, &self.client) {
            (Some((id, _)), _) => Ok(Target::Call(*id)),
            (None, Some(_)) => Ok(Target::Client),
            (None, None) => Err(refusal::nobody(question)),
        }
    }

    pub(super) fn addressee(&self, target: Target) -> Option<&Addressee> {
        match target {
            Target::Call(id) => self.calls.get(&id).map(|call| &call.addressee),
            Target::Client => self.client.as_ref().map(|client| &client.0),
        }
    }

    /// The questions that wait for their answer there.
    fn asked(&self, target: Target) -> impl Iterator<Item = &Open> {
        self.open.values().filter(move |open| open.target == target && open.stage == Stage::Asked)
    }

    /// Whether a question of this call waits for its answer.
    pub(super) fn asks(&self, call: u64) -> bool {
        self.asked(Target::Call(call)).next().is_some()
    }

    /// Whether another question may be put there.
    pub(super) fn has_room(&self, target: Target) -> bool {
        self.asked(target).count() < MOST_QUESTIONS
    }
}

impl Users {
    /// A call of `principal` came.
    pub(super) fn add(&mut self, principal: &Principal) {
        match self {
            Self::Nobody => *self = Self::One(principal.clone()),
            Self::One(known) if known != principal => *self = Self::Several,
            Self::One(_) | Self::Several => {}
        }
    }
}
