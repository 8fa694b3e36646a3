//! `raincheck admin`: an operator looks at tasks and stops them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use url::form_urlencoded;

use super::operator::{Complaint, Operator, Secret};
use super::{exit, serve, terminal};
use crate::config::{self, ConfigFaults, Environment};

/// Lists, shows and cancels the tasks of a running proxy over its admin listener.
#[derive(Debug, Args)]
pub(super) struct Admin {
    #[command(subcommand)]
    command: Command,
}

/// The state of calls that are no tasks.
const HELD: &str = "held";

/// How long the end of a cancelled task is waited for, and the pause between two looks.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, Subcommand)]
enum Command {
    /// Held calls that are no tasks, and the newest tasks of all owners
    List {
        #[arg(long, help = "Only those so far: queued, running, input_required, completed, failed, cancelled or held")]
        state: Option<String>,
        /// Only those of this server
        #[arg(long)]
        server: Option<String>,
        /// Only those of this tool
        #[arg(long)]
        tool: Option<String>,
        /// Only those of this owner: a name that the config has, or what the column OWNER shows or its beginning
        #[arg(long)]
        owner: Option<String>,
        /// How many
        #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 20)]
        newest: usize,
        #[command(flatten)]
        common: Common,
    },
    /// What is known of a task or a held call, without its arguments and its result
    Show {
        /// The id of the task, or the beginning of it, as the logs show it
        id: String,
        #[command(flatten)]
        common: Common,
    },
    /// Stop a task or a held call, whoever owns it
    Cancel {
        /// The id of the task, or the beginning of it, as the logs show it
        id: String,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    operator: Operator,
    /// The configuration of the proxy, which says where its admin listener is, and the token
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    config: Option<PathBuf>,
    /// Print what the proxy sent, as JSON
    #[arg(long)]
    json: bool,
}

impl Admin {
    pub(super) async fn run(self) -> u8 {
        let mut command = self.command;
        if let Err(faults) = command.common().find() {
            return serve::report(&faults);
        }
        let done = match command {
            Command::List { state, server, tool, owner, newest, common } => {
                let filter = [("state", state), ("server", server), ("tool", tool), ("owner", owner)];
                list(&filter, newest, &common).await
            }
            Command::Show { id, common } => {
                ask(Method::GET, &id, "", &common).await.map(|task| shown(&task, "", &common))
            }
            Command::Cancel { id, common } => cancel(&id, &common).await,
        };
        match done.and_then(|text| terminal::print(&terminal::plain(&text)).map_err(|error| error.to_string().into())) {
            Ok(()) => exit::OK,
            Err(why) => why.say(),
        }
    }
}

impl Command {
    fn common(&mut self) -> &mut Common {
        match self {
            Self::List { common, .. } | Self::Show { common, .. } | Self::Cancel { common, .. } => common,
        }
    }
}

impl Common {
    /// Takes from the configuration, if one is named, where the proxy is to be asked.
    fn find(&mut self) -> Result<(), ConfigFaults> {
        let Some(path) = &self.config else { return Ok(()) };
        let config = config::load_for_operators(path, &Environment::of_process())?;
        let Some(admin) = &config.admin else {
            let why =
                "has no [admin], so its proxy takes no operators; it needs http there, such as \"127.0.0.1:8081\"";
            return Err(ConfigFaults::one(path.display().to_string(), why));
        };
        self.operator.url = format!("http://{}", admin.http);
        self.operator.token = Secret::of(admin);
        Ok(())
    }
}

/// Asks for pages until there are enough.
async fn list(filter: &[(&str, Option<String>)], newest: usize, common: &Common) -> Result<String, Complaint> {
    let state = filter.iter().find_map(|(name, value)| value.as_deref().filter(|_| *name == "state"));
    let is_for_held = state == Some(HELD);
    let held = if state.is_none() || is_for_held { held(filter, common).await? } else { Vec::new() };
    let (mut tasks, mut cursor, mut lingering) = (Vec::new(), None::<String>, 0);
    while tasks.len() < newest && !is_for_held {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in filter {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        query.append_pair("limit", &(newest - tasks.len()).min(500).to_string());
        if let Some(cursor) = &cursor {
            query.append_pair("cursor", cursor);
        }
        let mut page = common.operator.ask(Method::GET, &format!("/api/tasks?{}", query.finish())).await?;
        if let Some(found) = page.get_mut("tasks").and_then(Value::as_array_mut) {
            tasks.append(found);
        }
        lingering = page.get("lingering").and_then(Value::as_u64).unwrap_or_default();
        cursor = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    let tasks = [held, tasks].concat();
    if common.json {
        return Ok(Value::from(tasks).to_string());
    }
    let table = if tasks.is_empty() { "There are no such tasks.\n".to_owned() } else { table(&tasks) };
    Ok(format!("{table}{}", stopped(lingering)))
}

/// Says that slots are taken by runs that no list shows.
fn stopped(lingering: u64) -> String {
    match lingering {
        0 => String::new(),
        1 => "1 run that was stopped keeps its slot until its server has answered, or for cancel_grace.\n".to_owned(),
        runs => format!(
            "{runs} runs that were stopped keep their slots until their servers have answered, or for cancel_grace.\n"
        ),
    }
}

/// The held calls that are no tasks.
async fn held(filter: &[(&str, Option<String>)], common: &Common) -> Result<Vec<Value>, Complaint> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in filter.iter().filter(|(name, _)| *name != "state") {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    let mut answer = common.operator.ask(Method::GET, &format!("/api/held?{}", query.finish())).await?;
    Ok(answer.get_mut("held").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default())
}

/// Has a task stopped, waits a little for its end, and says what came of it.
async fn cancel(id: &str, common: &Common) -> Result<String, Complaint> {
    let before = ask(Method::GET, id, "", common).await?;
    if has_ended(&before) {
        return Ok(shown(&before, "It had ended before; there was nothing to stop.", common));
    }
    // From here on it is the one that was found.
    let whole = before.get("id").and_then(Value::as_str).unwrap_or(id);
    let mut task = ask(Method::POST, whole, "/cancel", common).await?;
    let until = Instant::now() + PATIENCE;
    while !has_ended(&task) && Instant::now() < until {
        sleep(POLL).await;
        match ask(Method::GET, whole, "", common).await {
            Ok(now) => task = now,
            // A held call that is over is nowhere any more.
            Err(_) if state(&task) == Some("held") => return Ok(shown(&task, "It has ended.", common)),
            Err(complaint) => return Err(complaint),
        }
    }
    let said = if has_ended(&task) { "It has ended." } else { "It was asked to stop and has not ended yet." };
    Ok(shown(&task, said, common))
}

fn has_ended(task: &Value) -> bool {
    matches!(state(task), Some("completed" | "failed" | "cancelled"))
}

fn state(task: &Value) -> Option<&str> {
    task.get("state").and_then(Value::as_str)
}

async fn ask(method: Method, id: &str, action: &str, common: &Common) -> Result<Value, Complaint> {
    let id: String = form_urlencoded::byte_serialize(id.as_bytes()).collect();
    common.operator.ask(method, &format!("/api/tasks/{id}{action}")).await
}

/// A task, with a line in front unless it is for a program.
fn shown(task: &Value, line: &str, common: &Common) -> String {
    if common.json {
        return task.to_string();
    }
    let mut text = String::new();
    if !line.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    }
    // Writing to a string cannot fail.
    for (label, name) in [
        ("id", "id"),
        ("state", "state"),
        ("says", "statusMessage"),
        ("server", "server"),
        ("tool", "tool"),
        ("owner", "owner"),
        ("name", "ownerName"),
        ("created", "createdAt"),
        ("updated", "lastUpdatedAt"),
    ] {
        let _ = writeln!(text, "{label:8} {}", field(task, name, 300));
    }
    for (name, value) in task.get("facts").and_then(Value::as_object).into_iter().flatten() {
        let name = name.strip_prefix("dev.raincheck/").unwrap_or(name);
        let _ = writeln!(text, "{:8} {}", terminal::one_line(name, 20), terminal::one_line(&value.to_string(), 300));
    }
    text
}

/// One line a task, in columns as wide as they need to be.
fn table(tasks: &[Value]) -> String {
    let head = ["ID", "CREATED", "STATE", "SERVER", "TOOL", "OWNER"].map(str::to_owned);
    let row = |task: &Value| {
        let short = field(task, "createdAt", 19).trim_end_matches('…').replace('T', " ");
        let owner = if task.get("ownerName").is_some_and(Value::is_string) { "ownerName" } else { "owner" };
        let [id, state, server, tool, owner] =
            ["id", "state", "server", "tool", owner].map(|name| field(task, name, 36));
        [id, short, state, server, tool, owner]
    };
    let rows: Vec<_> = std::iter::once(head).chain(tasks.iter().map(row)).collect();
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let says = std::iter::once("SAYS".to_owned()).chain(tasks.iter().map(|task| field(task, "statusMessage", 80)));
    let mut text = String::new();
    for (row, says) in rows.iter().zip(says) {
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(text, "{cell:width$}  ");
        }
        text.push_str(&says);
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

fn field(task: &Value, name: &str, longest: usize) -> String {
    terminal::one_line(task.get(name).and_then(Value::as_str).unwrap_or_default(), longest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tasks_stand_in_columns_and_cannot_steer_the_terminal() {
        let tasks = [
            json!({ "id": "a1", "createdAt": "2026-07-28T10:30:00.123Z", "state": "running", "server": "s",
                    "tool": "t\u{1b}[31m", "owner": "0011", "statusMessage": "running for 1s\nmore" }),
            json!({ "id": "b22", "createdAt": "2026-07-28T10:31:00.123Z", "state": "input_required", "server": "s",
                    "tool": "export", "owner": "0022", "ownerName": "ann", "statusMessage": null }),
        ];
        let expected = "\
ID   CREATED              STATE           SERVER  TOOL    OWNER  SAYS
a1   2026-07-28 10:30:00  running         s       t [31m  0011   running for 1s more
b22  2026-07-28 10:31:00  input_required  s       export  ann
";
        assert_eq!(table(&tasks), expected);
    }
}
