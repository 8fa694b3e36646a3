//! Calls of a server of 2026-07-28, which asks by results (multi round-trip requests) and may have tasks of its own.
//! The rounds are ours: the caller gets the questions, the server the retries.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::input::{self, Questions};
use super::state::State;
use super::watch::Watch;
use super::{Leg, Manners, left, malformed, modern_task, relay, unknown};
use crate::protocol::error::code;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{
    Call, Failure, Json, Method, Outcome, Params, Reason, ReplySender, Retry, RpcError, TASKS_EXTENSION, TaskSupport,
};

/// Which round of a call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// If the server does not take it, nothing of the call has run.
    First,
    /// A part of the call has run.
    Later,
}

/// What a result of a modern server is.
enum Kind {
    /// The end.
    Complete,
    /// Questions, and what is to be given back with the answers.
    Asks(Option<Json>, Option<Json>),
    /// A task of the server.
    Task(State),
}

/// Retries of one call.
const ROUNDS: u32 = 16;
/// Results in a row that ask nothing (2026-07-28, multi round-trip requests: a `requestState` alone is a request to come
/// again). With the waits in between about five seconds.
const SILENT: u32 = 8;
/// The wait before a retry that brings no answers; it doubles.
const BREATH: Duration = Duration::from_millis(20);
/// For how long a round that the server does not take is sent again: a stream that broke is taken up again for as long.
const PATIENCE: Duration = Duration::from_secs(16);
/// The least wait before that.
const PAUSE: Duration = Duration::from_secs(1);

/// Makes a call of a modern server, to its outcome.
pub(in crate::upstream) async fn call<L: Leg>(
    leg: &L,
    manners: Manners,
    mut call: Call,
    sender: &mut ReplySender,
) -> Outcome {
    call.caller.tasks = TaskSupport::Undeclared;
    let outcome = if can_take_rounds(&call.method) {
        rounds(leg, manners, call, sender).await
    } else {
        if call.method == Method::Listen
            && let Some(params) = without_tasks(&call.params)
        {
            call.params = params;
        }
        relay(leg.send(call), sender).await
    };
    outcome.unwrap_or_else(left)
}

/// Whether such a call of a modern server is more than a request and its answer.
pub(in crate::upstream) fn must_be_driven(method: &Method) -> bool {
    can_take_rounds(method) || *method == Method::Listen
}

/// Whether the server may answer such a request with questions.
fn can_take_rounds(method: &Method) -> bool {
    matches!(method, Method::CallTool | Method::GetPrompt | Method::ReadResource)
}

async fn rounds<L: Leg>(leg: &L, manners: Manners, mut call: Call, sender: &mut ReplySender) -> Option<Outcome> {
    // What a caller sends of this belongs to rounds that it had with us.
    call.params = with_answers(&call, None, None)?;
    let (mut round, mut silent) = (Round::First, 0);
    for _ in 0..=ROUNDS {
        let outcome = send(leg, &call, round, sender).await?;
        let result = match &outcome {
            Outcome::Result(result) => result,
            Outcome::Error(error)
                if wants_tasks(error)
                    && call.caller.tasks == TaskSupport::Undeclared
                    && call.method == Method::CallTool
                    && !sender.is_cancelled() =>
            {
                call.caller.tasks = TaskSupport::Declared;
                continue;
            }
            _ => return Some(outcome),
        };
        let (requests, state) = match kind(result) {
            None => return Some(malformed("its result is of a kind that is not known")),
            Some(Kind::Complete) => return Some(outcome),
            Some(Kind::Task(created)) => {
                let watch = Watch::new(leg, &call, sender, manners, &created);
                return modern_task::see_through(watch, created.status).await;
            }
            Some(Kind::Asks(requests, state)) => (requests, state),
        };
        let answers = if let Some(requests) = requests {
            silent = 0;
            match gather(&requests, &call, sender).await? {
                Ok(answers) => Some(answers),
                Err(outcome) => return Some(outcome),
            }
        } else {
            silent += 1;
            if state.is_none() {
                return Some(malformed("its result is input_required with neither inputRequests nor requestState"));
            }
            if silent == SILENT {
                return Some(malformed(&format!(
                    "its result was input_required {SILENT} times in a row, with a requestState and no inputRequests, so \
                     there was nothing to ask and nothing to answer"
                )));
            }
            tokio::select! {
                () = tokio::time::sleep(BREATH * 2_u32.saturating_pow(silent)) => {}
                () = sender.cancelled() => return Some(stopped()),
            }
            None
        };
        call.params = with_answers(&call, answers, state)?;
        round = Round::Later;
    }
    Some(malformed("it asked again and again and never came to an end"))
}

/// Sends a round, to its outcome. A later one that the server does not take is sent again for a while, which is safe: what was
/// asked and answered would be lost otherwise. Whatever comes of it, it never reads as a call that did not start. `None` once
/// nobody waits for the call any more.
async fn send<L: Leg>(leg: &L, call: &Call, round: Round, sender: &mut ReplySender) -> Option<Outcome> {
    let stop = sender.cancellation();
    let mut refused_at = None;
    loop {
        let failure = match relay(leg.send(call.clone()), sender).await? {
            Outcome::Failed(failure) if round == Round::Later && failure.reason.is_of_unsent() => failure,
            outcome => return Some(outcome),
        };
        if sender.is_cancelled() {
            return Some(stopped());
        }
        let Retry::After(wait) = failure.retry else { return Some(half_run(&failure)) };
        let wait = wait.max(PAUSE);
        if wait > PATIENCE.saturating_sub(refused_at.get_or_insert_with(Instant::now).elapsed()) {
            return Some(half_run(&failure));
        }
        tracing::debug!(why = failure.how(), "a server did not take the next part of a call, which is sent again");
        tokio::select! {
            biased;
            () = sender.abandoned() => return None,
            () = stop.cancelled() => return Some(stopped()),
            () = leg.over() => return Some(half_run(&failure)),
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Has the questions answered. `None` once nobody waits for the call any more; an outcome if the call is over.
async fn gather(requests: &Json, call: &Call, sender: &mut ReplySender) -> Option<Result<Json, Outcome>> {
    let Some(questions) = Questions::read(requests) else {
        return Some(Err(malformed("it asks what cannot be asked of a client")));
    };
    if let Err(error) = questions.check(&call.caller.abilities) {
        return Some(Err(Outcome::Error(error)));
    }
    let asked = questions.0.into_iter().map(|(key, question)| (key, input::put(question, sender)));
    let asked: Vec<_> = asked.collect();
    let answers = join_all(asked.into_iter().map(|(key, (kind, mut asking))| async move {
        let answer = asking.answer().await;
        (key, input::response(kind, answer))
    }));
    let stop = sender.cancellation();
    let answers = tokio::select! {
        biased;
        () = sender.abandoned() => return None,
        () = stop.cancelled() => return Some(Err(stopped())),
        answers = answers => answers,
    };
    let mut responses = ObjectWriter::new();
    for (key, response) in answers {
        match response {
            Ok(response) => responses.raw(&key, &response),
            Err(error) => return Some(Err(Outcome::Error(error))),
        };
    }
    Some(Ok(responses.finish_json()))
}

/// What a `subscriptions/listen` wants of the server: its tasks are none of the caller's.
fn without_tasks(params: &Params) -> Option<Params> {
    let wanted = params.raw().member("notifications").filter(|wanted| wanted.member("taskIds").is_some())?;
    let mut rest = ObjectWriter::new();
    rest.members_of(&wanted, |name| name != "taskIds").ok()?;
    let mut listen = ObjectWriter::new();
    listen.members_of(params.raw(), |name| name != "notifications").ok()?;
    listen.raw("notifications", &rest.finish_json());
    Params::read(&Method::Listen, Some(listen.finish_json())).ok()
}

/// The parameters of a call, with these answers and this state in the place of any that are there.
fn with_answers(call: &Call, answers: Option<Json>, state: Option<Json>) -> Option<Params> {
    let raw = call.params.raw();
    let mut params = ObjectWriter::new();
    params.members_of(raw, |name| !matches!(name, "inputResponses" | "requestState")).ok()?;
    if let Some(answers) = answers {
        params.raw("inputResponses", &answers);
    }
    if let Some(state) = state {
        params.raw("requestState", &state);
    }
    Params::read(&call.method, Some(params.finish_json())).ok()
}

/// `None` for a kind of a revision to come.
fn kind(result: &Json) -> Option<Kind> {
    let members = result.members().ok()?;
    let part = |name: &str| members.get(name).map(|raw| Json::of(result.bytes(), raw));
    let kind = part("resultType").and_then(|kind| kind.read::<String>().ok());
    match kind.as_deref() {
        None | Some("complete") => Some(Kind::Complete),
        Some("input_required") => {
            let asks = |requests: &Json| !requests.members().is_ok_and(|all| all.is_empty());
            Some(Kind::Asks(part("inputRequests").filter(asks), part("requestState")))
        }
        Some("task") => State::read(result).map(Kind::Task),
        Some(_) => None,
    }
}

/// Whether an error says that the call needs the Tasks extension (SEP-2663, capability negotiation).
fn wants_tasks(error: &RpcError) -> bool {
    let required = error.raw().member("data").and_then(|data| data.member("requiredCapabilities"));
    let extension = required.and_then(|required| required.member("extensions"));
    error.code() == code::MISSING_CAPABILITY && extension.is_some_and(|it| it.member(TASKS_EXTENSION).is_some())
}

fn stopped() -> Outcome {
    unknown("the call was cancelled while the server waited for answers")
}

/// The outcome of a call of which the server has taken the first part, and not the next.
fn half_run(failure: &Failure) -> Outcome {
    let how = failure.how();
    let how = format!("the first part of the call has run, and the next could not be sent to the server: {how}");
    let message = format!("outcome unknown: {how}; check what the tool has done before calling it again");
    Outcome::Failed(Failure::new(Reason::OutcomeUnknown, message, Retry::Unknown).for_how(&how))
}
