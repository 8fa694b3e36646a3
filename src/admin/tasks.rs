//! Tasks, as operators see them.

use http::StatusCode;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::answer::{Answer, refused, value};
use super::held;
use super::owners::{Found, OwnerNames};
use crate::protocol::Json;
use crate::runner::{Runner, view};
use crate::store::{Committed, Filter, ReadError, Status};
use crate::task::{Canceller, Owner, Task, TaskId};

/// What a list is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Query {
    /// The name of an owner, or the beginning of its digest.
    owner: Option<String>,
    filter: Filter,
    cursor: Option<TaskId>,
    limit: Option<usize>,
}

/// Tasks of one page.
const USUAL: usize = 50;
pub(super) const MOST: usize = 500;

/// Characters of the beginning of an id that may stand for it.
const LEAST: usize = 4;

/// Bytes of an owner's digest that are shown: enough to tell owners apart, not enough to guess from.
const SHOWN: usize = 6;

pub(super) async fn list(runner: &Runner, names: &OwnerNames, query: &str) -> Answer {
    let Query { owner, mut filter, cursor, limit } = match Query::read(query) {
        Ok(query) => query,
        Err(why) => return refused(StatusCode::BAD_REQUEST, &why),
    };
    if let Some(wanted) = owner {
        match names.find(runner.store(), &wanted) {
            Ok(Found::One(owner)) => filter.owner = Some(owner),
            Ok(Found::Nobody) => return value(StatusCode::OK, &json!({ "tasks": [] })),
            Ok(Found::Several(why)) => return refused(StatusCode::BAD_REQUEST, &format!("owner: {why}")),
            Ok(Found::Unclear) => {
                let why =
                    "owner: a name that the config has, or the beginning of a digest, an even number of hex digits";
                return refused(StatusCode::BAD_REQUEST, why);
            }
            Err(error) => return unreadable(&error),
        }
    }
    match runner.store().list(filter, cursor, limit.unwrap_or(USUAL)).await {
        Ok(page) => {
            let names = names.digests(runner.store());
            let with_owner = |task: &Committed<Task>| names.named(shown(runner, task), &task.owner);
            let tasks: Vec<Value> = page.tasks.iter().map(with_owner).collect();
            let mut list = json!({ "tasks": tasks });
            if let (Some(next), Some(list)) = (page.next, list.as_object_mut()) {
                list.insert("nextCursor".to_owned(), next.as_str().into());
            }
            let lingering = Some(runner.lingering()).filter(|runs| *runs > 0);
            if let (Some(lingering), Some(list)) = (lingering, list.as_object_mut()) {
                list.insert("lingering".to_owned(), lingering.into());
            }
            value(StatusCode::OK, &list)
        }
        Err(error) => unreadable(&error),
    }
}

pub(super) fn show(runner: &Runner, names: &OwnerNames, id: &str) -> Answer {
    let names = names.digests(runner.store());
    if let Some(call) = held::find(runner, id) {
        return held::show(&call, &names);
    }
    match find(runner, id) {
        Ok(task) => value(StatusCode::OK, &names.named(shown(runner, &task), &task.owner)),
        Err(answer) => *answer,
    }
}

/// Asks the run to stop. 202 while it goes on, 200 with the task as it is if it has ended.
pub(super) async fn cancel(runner: &Runner, names: &OwnerNames, id: &str) -> Answer {
    let names = names.digests(runner.store());
    if let Some(call) = held::find(runner, id) {
        return held::cancel(&call, &names).await;
    }
    let task = match find(runner, id) {
        Ok(task) => task,
        Err(answer) => return *answer,
    };
    let shown = |task: &Committed<Task>| names.named(shown(runner, task), &task.owner);
    if task.state.is_terminal() {
        return value(StatusCode::OK, &shown(&task));
    }
    tracing::info!(task = ?task.id, tool = task.tool, "an operator cancels a task");
    match runner.cancel(&task, Canceller::Operator).await {
        Ok(()) => match find(runner, task.id.as_str()) {
            Ok(task) => {
                let status = if task.state.is_terminal() { StatusCode::OK } else { StatusCode::ACCEPTED };
                value(status, &shown(&task))
            }
            Err(answer) => *answer,
        },
        Err(failure) => refused(StatusCode::SERVICE_UNAVAILABLE, &failure.message),
    }
}

fn find(runner: &Runner, id: &str) -> Result<Committed<Task>, Box<Answer>> {
    let unknown = || Box::new(refused(StatusCode::NOT_FOUND, "there is no such task"));
    let found = match (id.parse::<TaskId>(), beginning(id)) {
        (Ok(id), _) => runner.store().look(&id).map(|task| task.into_iter().collect()),
        (Err(_), Some(short)) if short.len() < LEAST => {
            let why = format!("the beginning of an ID has {LEAST} characters at least; give more of it");
            return Err(Box::new(refused(StatusCode::BAD_REQUEST, &why)));
        }
        (Err(_), Some(short)) => runner.store().look_like(short),
        (Err(_), None) => return Err(unknown()),
    };
    let found: Vec<_> = found.map_err(|error| Box::new(unreadable(&error)))?;
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(task), None) => Ok(task),
        (None, _) => Err(unknown()),
        (Some(_), Some(_)) => {
            Err(Box::new(refused(StatusCode::CONFLICT, "several tasks have IDs that begin so; give more of it")))
        }
    }
}

/// The beginning of an id, as the logs show it (`06h2gr3b5o2k4s…`) or a person may type it.
fn beginning(id: &str) -> Option<&str> {
    // In an address the dots are three bytes, escaped.
    let short = id.trim_end_matches('…').trim_end_matches("%E2%80%A6").trim_end_matches("...");
    (!short.is_empty() && short.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(short)
}

fn unreadable(error: &ReadError) -> Answer {
    refused(StatusCode::SERVICE_UNAVAILABLE, &format!("the store cannot be read: {error}"))
}

/// A task without what it was called with and what it gave.
fn shown(runner: &Runner, task: &Task) -> Value {
    let (live, now) = (runner.live().get(&task.id), runner.store().clock().now());
    let live = live.as_deref();
    let facts = view::facts(task, live, now);
    json!({
        "id": task.id.as_str(),
        "owner": owner_shown(&task.owner),
        "server": task.server,
        "tool": task.tool,
        "state": Status::of(&task.state).name(),
        "statusMessage": view::status_message(task, live, now),
        "createdAt": task.created.to_string(),
        "lastUpdatedAt": task.updated.to_string(),
        "reruns": task.reruns,
        "facts": facts.and_then(|facts| Json::read::<Value>(&facts).ok()),
    })
}

pub(super) fn owner_shown(owner: &Owner) -> String {
    data_encoding::HEXLOWER.encode(owner.digest().get(..SHOWN).unwrap_or_default())
}

impl Query {
    fn read(query: &str) -> Result<Self, String> {
        let mut read = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if value.is_empty() {
                continue;
            }
            match name.as_ref() {
                "owner" => read.owner = Some(value.into_owned()),
                "state" => {
                    let known = Status::ALL.map(Status::name).join(", ");
                    let status = Status::named(&value).ok_or_else(|| format!("state: one of {known}"))?;
                    read.filter.status = Some(status);
                }
                "server" => read.filter.server = Some(value.into_owned()),
                "tool" => read.filter.tool = Some(value.into_owned()),
                "cursor" => {
                    read.cursor = Some(value.parse().map_err(|_| "cursor: take nextCursor of a page".to_owned())?);
                }
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=MOST).contains(limit));
                    read.limit = Some(limit.ok_or_else(|| format!("limit: a number from 1 to {MOST}"))?);
                }
                // Not repeated: it may be anything.
                _ => return Err("there are owner, state, server, tool, limit and cursor".to_owned()),
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_what_is_wrong_with_it() {
        for (query, says) in [
            ("state=working", "state: one of queued, running, input_required"),
            ("limit=0", "limit: a number from 1"),
            ("limit=501", "limit: a number from 1"),
            ("cursor=x", "cursor: take"),
            ("order=up", "there are owner, state"),
        ] {
            let why = Query::read(query).unwrap_err();
            assert!(why.starts_with(says), "{query}: {why}");
        }
        let read = Query::read("owner=0Aff&state=queued&tool=a%20b&server=&limit=500").unwrap();
        let filter = Filter { status: Some(Status::Queued), tool: Some("a b".to_owned()), ..Filter::default() };
        assert_eq!(read, Query { owner: Some("0Aff".to_owned()), filter, cursor: None, limit: Some(500) });
        assert_eq!(Query::read("").unwrap(), Query::default());
    }
}
