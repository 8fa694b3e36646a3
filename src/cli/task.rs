//! `raincheck task`: what became of the calls whose handles were kept.

mod forget;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use tokio::time::timeout;
use url::Url;

use super::call::{Common, Stop, ended, finish, print, read_object, report};
use super::client::{
    AtInterrupt, ClientError, Display, End, Endpoint, Follow, Handle, Handles, LAST, Person, Status, TaskView,
    check_answer, how_to_answer,
};
use super::signals::Signals;
use super::{exit, terminal};
use crate::protocol::error::code;
use crate::protocol::rope::ObjectWriter;

/// Uses the handles that `call` has kept.
#[derive(Debug, Args)]
pub(super) struct Task {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The newest handles, and how far each is
    List {
        /// How many
        #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 20)]
        newest: usize,
        /// Only the handles of the endpoint at this URL, or without a path of its whole server
        #[arg(long)]
        url: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// How far a task is, and its result if there is one
    Get {
        #[command(flatten)]
        which: Which,
        /// Wait for the result; Ctrl-C ends the wait, and the task goes on
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Answer a question of a task that waits for input
    Answer {
        #[command(flatten)]
        which: Which,
        /// The key of the question, as `get` shows it
        key: String,
        /// The answer, a JSON object such as '{"action":"accept","content":{"name":"Ann"}}'; @FILE reads a file, - reads
        /// stdin
        #[arg(value_name = "JSON")]
        answer: String,
        #[command(flatten)]
        common: Common,
    },
    /// Forget handles; their tasks are not touched
    #[command(group = ArgGroup::new("forgotten").required(true).multiple(true).args(["handle", "ended", "unknown", "server"]))]
    Forget {
        /// The handle or its beginning, or "last" for the newest
        #[arg(value_name = "HANDLE", conflicts_with_all = ["ended", "unknown", "url", "server"])]
        handle: Option<String>,
        /// The handles whose tasks have ended: their results can be fetched no more
        #[arg(long)]
        ended: bool,
        /// The handles that their servers do not know: expired, of an owner who sends other headers, or in a store that is
        /// not served there now
        #[arg(long)]
        unknown: bool,
        /// All handles of the server at this URL, without asking it: for one that is gone for ever
        #[arg(long, value_name = "URL", conflicts_with_all = ["ended", "unknown", "url"])]
        server: Option<String>,
        /// Only the handles of the endpoint at this URL, or without a path of its whole server
        #[arg(long)]
        url: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Ask the server to stop a task
    Cancel {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        common: Common,
    },
}

/// Which task is meant.
#[derive(Debug, Args)]
struct Which {
    /// The handle or its beginning, or "last" for the newest; with --url the whole handle
    #[arg(value_name = "HANDLE")]
    handle: String,
    /// The MCP endpoint, for a handle that was not kept on this machine
    #[arg(long)]
    url: Option<String>,
}

/// Characters of a handle of Raincheck.
const WHOLE: usize = 36;
/// What to do where a beginning was not found at a server.
const GIVE_ALL: &str = "With --url the handle must be whole: beginnings are those of handles that `raincheck call` has kept on this \
                        machine. `raincheck admin list` shows operators the whole handles of a proxy that has [admin].";

/// What to do where "last" was asked for at a server.
const NO_LAST: &str =
    "\"last\" stands for the newest handle that is kept on this machine, which leads to its server: leave --url away";

/// What a list says of a task that its server does not know.
const UNKNOWN: &str =
    "unknown to its server: expired, or its caller sent other headers (-H), or another store is served there now";

/// How long one server may take to say how far a task is, in a list.
const PATIENCE: Duration = Duration::from_secs(10);

impl Task {
    pub(super) async fn run(self) -> u8 {
        let json = self.command.common().json;
        let ended = match self.command {
            Command::List { newest, url, common } => list(newest, url.as_deref(), &common).await,
            Command::Get { which, wait, common } => get(&which, wait, &common).await,
            Command::Answer { which, key, answer, common } => answer_one(&which, &key, &answer, &common).await,
            Command::Forget { handle: Some(handle), .. } => forget_one(&handle),
            Command::Forget { server: Some(server), .. } => forget::server(&server),
            Command::Forget { handle: None, ended, unknown, url, common, .. } => {
                forget::all(forget::Which { ended, unknown }, url.as_deref(), &common).await
            }
            Command::Cancel { which, common } => cancel(&which, &common).await,
        };
        finish(ended, json)
    }
}

impl Command {
    fn common(&self) -> &Common {
        match self {
            Self::List { common, .. }
            | Self::Get { common, .. }
            | Self::Answer { common, .. }
            | Self::Forget { common, .. }
            | Self::Cancel { common, .. } => common,
        }
    }
}

impl Which {
    /// The handle, and where it leads.
    fn find(&self) -> Result<(String, String), Stop> {
        if let Some(url) = &self.url {
            if self.handle == LAST {
                return Err(Stop::usage(NO_LAST));
            }
            return Ok((self.handle.clone(), url.clone()));
        }
        let handle = Handles::of_user().and_then(|handles| handles.find(&self.handle)).map_err(Stop::failure)?;
        Ok((handle.task, handle.url))
    }

    /// What the server says against it, and what to do where it was given no more than the beginning of a handle.
    fn refused(&self, error: ClientError) -> Stop {
        let is_unknown = matches!(&error, ClientError::Rpc(error) if error.code() == code::INVALID_PARAMS);
        let is_short = self.url.is_some() && self.handle.trim_end_matches('…').len() < WHOLE;
        let stop = Stop::client(error);
        if is_unknown && is_short { stop.and(GIVE_ALL) } else { stop }
    }
}

async fn list(newest: usize, url: Option<&str>, common: &Common) -> Result<u8, Stop> {
    let handles = kept(newest, url, common)?;
    if handles.is_empty() {
        terminal::say("No handles are kept: raincheck call URL TOOL --detach makes one.");
    }
    for handle in handles {
        let state = state(&handle, common).await?;
        let text = if common.json {
            let task = state.as_ref().map_or("null", |task| task.raw.as_str());
            let kept = serde_json::to_string(&handle).map_err(Stop::failure)?;
            format!("{{\"handle\":{kept},\"task\":{task}}}")
        } else {
            let shown = match &state {
                Ok(task) => match &task.message {
                    Some(message) => format!("{}: {}", task.word(), terminal::one_line(message, 80)),
                    None => task.word().to_owned(),
                },
                Err(ClientError::Rpc(error)) if error.code() == code::INVALID_PARAMS => UNKNOWN.to_owned(),
                Err(why) => terminal::one_line(&terminal::chain(why), 120),
            };
            let (tool, url) = (terminal::one_line(&handle.tool, 40), terminal::one_line(&handle.url, 80));
            format!("{}  {}  {url}  {tool}  {shown}", handle.task, handle.at)
        };
        print(&terminal::plain(&text))?;
    }
    Ok(exit::OK)
}

/// The newest handles, of the server at `url` if one is named. A header goes to one server only.
fn kept(newest: usize, url: Option<&str>, common: &Common) -> Result<Vec<Handle>, Stop> {
    // Those of one server may be older.
    let most = if url.is_some() { usize::MAX } else { newest };
    let mut handles = Handles::of_user().and_then(|handles| handles.newest(most)).map_err(Stop::failure)?;
    if let Some(url) = url {
        handles.retain(|handle| is_at(&handle.url, url));
        handles.drain(..handles.len().saturating_sub(newest));
    }
    let origins: BTreeSet<_> = handles.iter().map(|handle| origin(&handle.url)).collect();
    if common.has_headers() && origins.len() > 1 {
        let text = format!(
            "the handles lead to {} servers, and a header is meant for one of them: name it with --url",
            origins.len()
        );
        return Err(Stop::usage(text));
    }
    Ok(handles)
}

/// Whether a handle leads to the endpoint at `url`, or, where that has no path, to any of its server.
fn is_at(handle: &str, url: &str) -> bool {
    let (Ok(handle), Ok(url)) = (Url::parse(handle), Url::parse(url)) else { return handle == url };
    let path = |url: &Url| url.path().trim_end_matches('/').to_owned();
    handle.origin() == url.origin() && (path(&url).is_empty() || path(&handle) == path(&url))
}

/// The server that a URL leads to.
fn origin(url: &str) -> String {
    Url::parse(url).map_or_else(|_| url.to_owned(), |url| url.origin().ascii_serialization())
}

/// How far a task is, or why that is not known.
async fn state(handle: &Handle, common: &Common) -> Result<Result<TaskView, ClientError>, Stop> {
    let endpoint = common.endpoint(&handle.url)?;
    let found = timeout(PATIENCE, endpoint.get(&handle.task)).await;
    Ok(found.unwrap_or_else(|_| Err(ClientError::Broken("the server gives no answer".into()))))
}

fn forget_one(handle: &str) -> Result<u8, Stop> {
    let handles = Handles::of_user().map_err(Stop::failure)?;
    let found = handles.find(handle).map_err(Stop::failure)?;
    handles.forget(&[found]).map_err(Stop::failure)?;
    terminal::say("the handle is forgotten; its task is not touched");
    Ok(exit::OK)
}

async fn get(which: &Which, wait: bool, common: &Common) -> Result<u8, Stop> {
    let (id, url) = which.find()?;
    let mut person = Person::of_process();
    let endpoint = common.endpoint(&url)?.with_person(person.is_here());
    let task = if wait {
        match waited(which, &endpoint, &id, &mut person).await? {
            ControlFlow::Continue(task) => task,
            ControlFlow::Break((end, interrupted)) => return report(end, &id, common.json, interrupted),
        }
    } else {
        endpoint.get(&id).await.map_err(|error| which.refused(error))?
    };
    if common.json {
        print(task.raw.as_str())?;
        let failed = matches!(task.status, Status::Failed(_) | Status::Cancelled);
        return Ok(if failed { exit::FAILURE } else { exit::OK });
    }
    // What a failure says is said at the end.
    let message = task.message.as_deref().filter(|_| !matches!(task.status, Status::Failed(_)));
    let message = message.map(|text| format!(": {}", terminal::one_line(text, 300))).unwrap_or_default();
    let (when, time) = if task.is_terminal() { ("at", &task.updated) } else { ("since", &task.created) };
    terminal::say(&format!("{} {when} {}{message}", task.word(), terminal::one_line(time, 40)));
    if let Status::InputRequired(asked) = &task.status {
        terminal::say(how_to_answer(&id, asked).trim_start());
    }
    ended(&task, false)
}

/// The task, if it had ended before; else how the wait for its end ended, and the exit code if a signal has ended that.
async fn waited(
    which: &Which,
    endpoint: &Endpoint,
    id: &str,
    person: &mut Person,
) -> Result<ControlFlow<(End, u8), TaskView>, Stop> {
    let mut display = Display::of_process("task");
    let mut signals = Signals::of_process().map_err(Stop::failure)?;
    let interrupt = async || {
        signals.next().await;
    };
    let at_interrupt = AtInterrupt::Leave;
    let mut follow = Follow { endpoint, display: &mut display, person, deadline: None, interrupt, at_interrupt };
    // A URL that somebody has typed may be wrong; a handle that is kept was good once.
    let found = match &which.url {
        None => follow.find(id).await,
        Some(_) => match endpoint.get(id).await {
            Ok(task) => ControlFlow::Continue(task),
            Err(error) => ControlFlow::Break(End::Lost(error)),
        },
    };
    let ended = match found {
        ControlFlow::Continue(task) if !task.is_terminal() => Ok(ControlFlow::Break(follow.run(task).await)),
        ControlFlow::Break(End::Lost(error)) if which.url.is_some() || !error.is_passing() => Err(which.refused(error)),
        ended => Ok(ended),
    };
    let ended = ended.map(|ended| ended.map_break(|end| (end, signals.code())));
    display.close();
    ended
}

async fn answer_one(which: &Which, key: &str, answer: &str, common: &Common) -> Result<u8, Stop> {
    let (id, url) = which.find()?;
    let example = r#"{"action":"accept","content":{"name":"Ann"}}"#;
    let answer = read_object("the answer", example, answer).map_err(Stop::usage)?;
    let endpoint = common.endpoint(&url)?;
    let task = endpoint.get(&id).await.map_err(|error| which.refused(error))?;
    let open = match &task.status {
        Status::InputRequired(asked) => asked.as_slice(),
        _ => &[],
    };
    let Some(asked) = open.iter().find(|asked| asked.key == key) else {
        let (key, open) = (terminal::one_line(key, 64), how_to_answer(&id, open));
        return Err(Stop::new(exit::FAILURE, format!("the task is {} and does not ask \"{key}\"{open}", task.word())));
    };
    let faults = check_answer(asked, &answer);
    if !faults.is_empty() {
        let faults: Vec<_> = faults.iter().map(|fault| terminal::one_line(fault, 300)).collect();
        let right = how_to_answer(&id, std::slice::from_ref(asked));
        return Err(Stop::usage(format!(
            "the answer does not fit, and nothing was sent:\n  {}{right}",
            faults.join("\n  ")
        )));
    }
    let mut responses = ObjectWriter::new();
    responses.raw(key, &answer);
    endpoint.update(&id, &responses.finish_json()).await.map_err(Stop::client)?;
    terminal::say("the answer is on its way to the tool");
    Ok(exit::OK)
}

async fn cancel(which: &Which, common: &Common) -> Result<u8, Stop> {
    let (id, url) = which.find()?;
    let endpoint = common.endpoint(&url)?;
    endpoint.cancel(&id).await.map_err(|error| which.refused(error))?;
    let task = endpoint.get(&id).await.map_err(Stop::client)?;
    let shown = if task.is_terminal() {
        format!("the task is {}", task.word())
    } else {
        format!("the server was asked to stop the task; it is still {}", task.word())
    };
    terminal::say(&shown);
    Ok(exit::OK)
}
