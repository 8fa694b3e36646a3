//! Held calls that are no tasks, as operators see them.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::timeout;
use url::form_urlencoded;

use super::answer::{Answer, refused, value};
use super::owners::{Digests, OwnerNames};
use super::tasks::{MOST, owner_shown};
use crate::clock::millis;
use crate::runner::{HeldCall, Runner, Stage, view};

/// What the ids of held calls begin with; no task has such a one.
const PREFIX: &str = "held-";

/// How long a call may take to be over that was stopped.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn list(runner: &Runner, names: &OwnerNames, query: &str) -> Answer {
    let (mut owner, mut server, mut tool) = (None, None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()).filter(|(_, value)| !value.is_empty()) {
        match name.as_ref() {
            "owner" => owner = Some(value.into_owned()),
            "server" => server = Some(value.into_owned()),
            "tool" => tool = Some(value.into_owned()),
            // Not repeated: it may be anything.
            _ => return refused(StatusCode::BAD_REQUEST, "there are owner, server and tool"),
        }
    }
    let is_wanted = |call: &HeldCall| {
        owner.as_ref().is_none_or(|wanted| names.fits(runner.store(), wanted, call.owner()))
            && server.as_ref().is_none_or(|server| server == call.server())
            && tool.as_ref().is_none_or(|tool| tool == call.name())
    };
    let all = runner.held().all();
    let digests = names.digests(runner.store());
    let shown_as = |call: &Arc<HeldCall>| digests.named(shown(call, "held"), call.owner());
    let held: Vec<_> = all.iter().filter(|call| is_wanted(call)).take(MOST).map(shown_as).collect();
    value(StatusCode::OK, &json!({ "held": held }))
}

/// The held call that this id names.
pub(super) fn find(runner: &Runner, id: &str) -> Option<Arc<HeldCall>> {
    runner.held().get(id.strip_prefix(PREFIX)?.parse().ok()?)
}

pub(super) fn show(call: &HeldCall, names: &Digests<'_>) -> Answer {
    value(StatusCode::OK, &names.named(shown(call, "held"), call.owner()))
}

/// Stops a held call. 200 once it is over, 202 while it is not.
pub(super) async fn cancel(call: &HeldCall, names: &Digests<'_>) -> Answer {
    tracing::info!(number = call.number(), tool = call.name(), "an operator cancels a held call");
    call.cancel();
    let (status, mut shown) = match timeout(PATIENCE, call.gone()).await {
        Ok(()) => (StatusCode::OK, shown(call, "cancelled")),
        Err(_) => (StatusCode::ACCEPTED, shown(call, "held")),
    };
    if status == StatusCode::OK
        && let Some(shown) = shown.as_object_mut()
    {
        // Where it was means nothing any more.
        shown.insert("statusMessage".to_owned(), format!("held for {}, and over now", age_of(call)).into());
    }
    value(status, &names.named(shown, call.owner()))
}

/// In the shape of a task.
fn shown(call: &HeldCall, state: &str) -> Value {
    let age = call.age();
    let how = match call.stage() {
        Stage::Queued(place) => match place.now() {
            Some(number) => format!("number {number} in line for a free slot{}", view::kept(&place)),
            None => "about to start".to_owned(),
        },
        Stage::Waits(what) => what.describe().to_owned(),
        Stage::Running => "running".to_owned(),
        Stage::Asking => "the tool asks its caller".to_owned(),
        Stage::Parked => "its caller was sent away with questions, to come back with answers".to_owned(),
    };
    let held = age_of(call);
    json!({
        "id": format!("{PREFIX}{}", call.number()),
        "owner": owner_shown(call.owner()),
        "server": call.server(),
        "tool": call.name(),
        "state": state,
        "statusMessage": format!("held for {held}: {how}"),
        "createdAt": call.since().to_string(),
        "lastUpdatedAt": call.since().to_string(),
        "facts": { "dev.raincheck/ageMs": millis(age) },
    })
}

/// How long it is held, as people say it.
fn age_of(call: &HeldCall) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(call.age().as_secs()))
}
