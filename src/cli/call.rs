//! `raincheck call`: one tool, from the call to its result.

use std::convert::Infallible;
use std::io::Read;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::HeaderMap;
use tokio::time::Instant;

use super::client::{
    self, Answered, Asked, AtInterrupt, ClientError, Display, End, Endpoint, Follow, Handle, Handles, Person, TaskView,
    Voice,
};
use super::signals::Signals;
use super::{exit, terminal};
use crate::clock::{Clock as _, SystemClock};
use crate::config;
use crate::protocol::error::code;
use crate::protocol::json::JsonError;
use crate::protocol::{CallKey, Json, RpcError};

/// What to call, and how to wait for it.
#[derive(Debug, Args)]
#[command(after_help = "Every handle is kept in a file before it is used: RAINCHECK_HANDLES, or \
    raincheck/handles.jsonl below XDG_STATE_HOME (~/.local/state). Ctrl-C or SIGTERM cancels the call. A server that \
    is away while a task is waited for is asked again for 5 minutes.")]
pub(super) struct Call {
    #[arg(help = "The MCP endpoint, such as http://127.0.0.1:8080/mcp")]
    url: String,
    /// The name of the tool
    tool: String,
    /// The arguments, a JSON object; @FILE reads a file, - reads stdin
    #[arg(value_name = "JSON", default_value = "{}")]
    arguments: String,
    /// Print the handle and leave, if the call becomes a task; what the tool asks before that is asked on the terminal
    #[arg(long)]
    detach: bool,
    /// How long to wait at most; the task goes on then
    #[arg(long, value_name = "DURATION", value_parser = config::duration)]
    timeout: Option<Duration>,
    /// A key for this call: the same key and arguments again join it, and run nothing anew
    #[arg(long, value_name = "KEY", value_parser = read_key)]
    key: Option<CallKey>,
    #[command(flatten)]
    common: Common,
}

/// What all commands of the client share.
#[derive(Debug, Args)]
pub(super) struct Common {
    /// A header for every request, such as 'Authorization: Bearer ...'; @FILE reads one a line from a file
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Print what the server sent, as JSON; of what fails an object with `message`, and `code` if the server sent one
    #[arg(long)]
    pub(super) json: bool,
}

/// A text on stderr and an exit code.
pub(super) struct Stop {
    code: u8,
    text: String,
    json: AsJson,
}

/// What `--json` prints of a [`Stop`].
enum AsJson {
    /// An object with its text.
    Text,
    /// The error that the server sent.
    Error(Json),
    /// Nothing: what there is to tell was printed.
    Printed,
}

/// Why a call is left before it has an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Early {
    Interrupted,
    TimedOut,
}

/// How long a server that was left may take to say its last word; most close at once.
const LAST_WORD: Duration = Duration::from_secs(1);

/// How long no handle may come before that is said to whoever wants one. By default a call becomes a task after 10 s.
const HANDLE_DUE: Duration = Duration::from_secs(15);

/// What is said then.
const NO_HANDLE_YET: &str = "raincheck: no handle yet: the server holds the call open, as it does for a tool of mode \"sync\" or with a longer \
                             `after`, and while it can store no tasks (its log says so). Ctrl-C cancels the call.";

/// What to do where a tool asks and nobody can be asked.
const NOBODY_HERE: &str = "The tool asks for input, and there is no terminal here. Call it on one; or with --detach, if its mode is not \
                           \"sync\" and its ask is not \"first\": then the call becomes a task that waits for `raincheck task answer`.";

/// What to do where the question came in the place of a handle.
const NO_TASK: &str = "There is no task that could wait for `raincheck task answer`, as with mode \"sync\" and ask = \"first\", and where \
                       the server makes none. Call it on a terminal, which is asked, or give the tool another mode or ask there.";

impl Call {
    pub(super) async fn run(self) -> u8 {
        let (mut display, self_json) = (Display::of_process(&self.tool), self.common.json);
        let ended = self.try_run(&mut display).await;
        display.close();
        finish(ended, self_json)
    }

    async fn try_run(self, display: &mut Display) -> Result<u8, Stop> {
        let arguments = read_arguments(&self.arguments).map_err(Stop::usage)?;
        let mut person = Person::of_process();
        let endpoint = self.common.endpoint(&self.url)?.with_person(person.is_here() || self.detach);
        let endpoint = endpoint.with_key(self.key.as_ref());
        let handles = Handles::of_user().map_err(Stop::failure)?;
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let mut signals = Signals::of_process().map_err(Stop::failure)?;

        let voice = display.voice();
        let (called, mut was_interrupted) = {
            let mut call = pin!(endpoint.call(&self.tool, &arguments, display, &mut person));
            let early = tokio::select! {
                biased;
                called = &mut call => Ok(called),
                _ = signals.next() => Err(Early::Interrupted),
                () = expired(deadline) => Err(Early::TimedOut),
                never = remark(voice, self.detach) => match never {},
            };
            match early {
                Ok(called) => (called, false),
                Err(early) => {
                    let left = left(&endpoint, call.as_mut()).await;
                    let called = left.ok_or_else(|| early.stop(self.key.is_some(), signals.code()))?;
                    (Ok(called), early == Early::Interrupted)
                }
            }
        };
        let called = called.map_err(|error| {
            let needs_person = !person.is_here() && !self.detach && error.needs_person();
            let stop = Stop::call(error);
            if needs_person { stop.and(NOBODY_HERE) } else { stop }
        })?;
        // What was left takes no more requests.
        let endpoint = if was_interrupted { self.common.endpoint(&self.url)? } else { endpoint };
        let task = match called {
            Called::Result(result) => {
                display.close();
                if self.detach {
                    display.note("raincheck: no handle: the call ended before it became a task; this is its result");
                }
                let asks = !person.is_here() && !self.detach && result.as_str().contains("elicitation");
                let printed = print_result(&result, self.common.json);
                return printed.map_err(|stop| if asks { stop.and(NOBODY_HERE) } else { stop });
            }
            Called::Task(task) => task,
        };
        let handle =
            Handle { at: now_in_seconds(), url: endpoint.public_url(), tool: self.tool.clone(), task: task.id.clone() };
        if let Err(error) = handles.keep(&handle) {
            // The handle must not be lost with the file, so it is shown; nothing else would find the task.
            display.note(&format!("raincheck: {}; write this handle down: {}", terminal::chain(&error), handle.task));
        }
        if self.detach && !was_interrupted {
            display.close();
            let text = if self.common.json { task.raw.as_str() } else { task.id.as_str() };
            print(&terminal::plain(text))?;
            return Ok(exit::OK);
        }
        let id = task.id.clone();
        let follow = Follow {
            endpoint: &endpoint,
            display: &mut *display,
            person: &mut person,
            deadline,
            at_interrupt: AtInterrupt::Cancel,
            interrupt: async || {
                if !std::mem::take(&mut was_interrupted) {
                    signals.next().await;
                }
            },
        };
        let end = follow.run(task).await;
        display.close();
        report(end, &id, self.common.json, signals.code())
    }
}

/// What the server had answered to a call before it saw that nobody waits any more. Its handle must not be lost: nothing
/// else would find the task.
async fn left<C>(endpoint: &Endpoint, call: Pin<&mut C>) -> Option<Called>
where
    C: Future<Output = Result<Called, ClientError>>,
{
    if !endpoint.leave() {
        return None;
    }
    tokio::time::timeout(LAST_WORD, call).await.ok()?.ok()
}

impl Early {
    fn stop(self, has_key: bool, interrupted: u8) -> Stop {
        let goes_on = "the call goes on: repeat it with the same --key to join it";
        let becomes = if has_key { goes_on } else { "the call was cancelled" };
        match self {
            Self::Interrupted => Stop::new(interrupted, format!("interrupted; {becomes}")),
            Self::TimedOut => Stop::new(exit::FAILURE, format!("no answer came in time; {becomes}")),
        }
    }
}

/// Says that no handle comes, to whoever waits for one to leave.
async fn remark(voice: Voice, detach: bool) -> Infallible {
    if detach {
        tokio::time::sleep(HANDLE_DUE).await;
        voice.say(NO_HANDLE_YET);
    }
    std::future::pending().await
}

/// RFC 3339, whatever the clock shows: a handle must not be lost with it.
fn now_in_seconds() -> String {
    let now = SystemClock.now().to_string();
    now.split_once('.').map_or(now.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// The key as the header has it: in quotes or not. One that does not begin with a quote is what it is.
fn read_key(text: &str) -> Result<CallKey, String> {
    let key = if text.starts_with('"') {
        CallKey::unquote(text).ok_or("a key that begins with a quote ends with one")?
    } else {
        text.into()
    };
    CallKey::read(&key).map_err(|_| "a key has 1 to 256 visible ASCII characters and no spaces".to_owned())
}

/// What `tools/call` gave.
pub(super) enum Called {
    Result(Json),
    Task(TaskView),
}

impl Endpoint {
    /// Calls a tool. The call is never sent twice, except where the server has refused it for missing headers.
    ///
    /// A tool that asks is answered by `person`, and the call goes on (2026-07-28, multi round-trip requests).
    async fn call(
        &self,
        tool: &str,
        arguments: &Json,
        display: &mut Display,
        person: &mut Person,
    ) -> Result<Called, ClientError> {
        let mut headers = HeaderMap::new();
        let mut answered = None;
        loop {
            let ask = client::Ask::Call { tool, arguments, answered: answered.as_ref() };
            let mut on_progress = |progress| display.progress(&progress);
            let result = match self.ask(&ask, &headers, &mut on_progress).await {
                Err(ClientError::Rpc(error)) if error.code() == code::HEADER_MISMATCH && headers.is_empty() => {
                    headers = self.mirrored(tool, arguments).await?;
                    if headers.is_empty() {
                        return Err(ClientError::Rpc(error));
                    }
                    continue;
                }
                other => other.map_err(client::explain)?,
            };
            let kind = result.member("resultType").and_then(|kind| kind.read::<String>().ok());
            match kind.as_deref() {
                Some("task") => return TaskView::handle(result).map(Called::Task),
                Some("input_required") => {
                    let asked = client::questions(result.member("inputRequests").as_ref());
                    if !asked.is_empty() && !person.can_answer(&asked) {
                        return Err(ClientError::Asks(asked));
                    }
                    display.pause();
                    let responses = person.answer(&asked).await;
                    display.resume();
                    answered = Some(Answered { state: result.member("requestState"), responses });
                }
                // Older servers leave it out.
                Some("complete") | None => return Ok(Called::Result(result)),
                Some(other) => {
                    let why = format!("the result's type is \"{}\"", other.escape_debug());
                    return Err(ClientError::NotMcp(why));
                }
            }
        }
    }
}

impl Common {
    /// Whether a header goes with every request.
    pub(super) fn has_headers(&self) -> bool {
        !self.headers.is_empty()
    }

    pub(super) fn endpoint(&self, url: &str) -> Result<Endpoint, Stop> {
        let mut headers = HeaderMap::new();
        for line in &self.headers {
            let Some(path) = line.strip_prefix('@') else {
                client::add_header(&mut headers, line).map_err(Stop::usage)?;
                continue;
            };
            let text =
                std::fs::read_to_string(path).map_err(|error| Stop::usage(format!("cannot read {path}: {error}")))?;
            for line in text.lines().filter(|line| !line.trim().is_empty()) {
                client::add_header(&mut headers, line).map_err(Stop::usage)?;
            }
        }
        Endpoint::new(url, headers).map_err(Stop::usage)
    }
}

impl Stop {
    pub(super) fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), json: AsJson::Text }
    }

    /// The same, with what `--json` prints out already.
    fn printed(self) -> Self {
        Self { json: AsJson::Printed, ..self }
    }

    /// The same with more words.
    #[must_use]
    pub(super) fn and(mut self, words: &str) -> Self {
        self.text.push('\n');
        self.text.push_str(words);
        self
    }

    pub(super) fn usage(text: impl Into<String>) -> Self {
        Self::new(exit::USAGE, text)
    }

    pub(super) fn failure(error: impl std::error::Error) -> Self {
        Self::new(exit::FAILURE, terminal::chain(&error))
    }

    pub(super) fn client(error: ClientError) -> Self {
        match &error {
            ClientError::Rpc(error) => Self::rpc(error),
            other => Self::new(exit::FAILURE, terminal::chain(other)),
        }
    }

    /// A call that got no answer. Nobody can ask after one that has no handle.
    fn call(error: ClientError) -> Self {
        let advice = match &error {
            ClientError::Broken(_) => {
                "no handle came, so the tool may or may not have run: check before calling it again"
            }
            ClientError::Asks(asked) if asked.iter().all(Asked::is_elicitation) => NO_TASK,
            _ => return Self::client(error),
        };
        Self::client(error).and(advice)
    }

    pub(super) fn rpc(error: &RpcError) -> Self {
        let stop = Self::new(exit::FAILURE, client::failure(error));
        Self { json: AsJson::Error(error.raw().clone()), ..stop }
    }
}

/// Says how it ended; with `json` on stdout too.
pub(super) fn finish(ended: Result<u8, Stop>, json: bool) -> u8 {
    ended.unwrap_or_else(|stop| {
        let printed = match &stop.json {
            AsJson::Text => Some(serde_json::json!({ "message": stop.text }).to_string()),
            AsJson::Error(error) => Some(error.as_str().to_owned()),
            AsJson::Printed => None,
        };
        if let Some(printed) = printed.filter(|_| json) {
            // The exit code says that it failed, whoever reads.
            let _ = terminal::print(&printed);
        }
        terminal::complain(&stop.text);
        stop.code
    })
}

pub(super) fn print(text: &str) -> Result<(), Stop> {
    terminal::print(text).map_err(|error| Stop::new(exit::FAILURE, format!("cannot write the result: {error}")))
}

pub(super) fn print_result(result: &Json, raw: bool) -> Result<u8, Stop> {
    let (text, is_error) = client::result(result, raw);
    print(&text)?;
    if is_error { Err(Stop::new(exit::FAILURE, "the tool reports an error").printed()) } else { Ok(exit::OK) }
}

/// The end of a task that was waited for; the exit code is `interrupted` if a signal has ended that.
pub(super) fn report(end: End, id: &str, raw: bool, interrupted: u8) -> Result<u8, Stop> {
    let later = format!("raincheck task get {id} --wait");
    match end {
        End::Ended(task) => ended(&task, raw),
        End::NeedsInput(task) => {
            let client::Status::InputRequired(asked) = &task.status else { return Ok(exit::OK) };
            Err(Stop::new(exit::FAILURE, format!("the task waits for input:{}", client::how_to_answer(id, asked))))
        }
        End::TimedOut => {
            Err(Stop::new(exit::FAILURE, format!("not done in time; the task goes on. Fetch it with\n  {later}")))
        }
        End::Left => Err(Stop::new(
            interrupted,
            format!(
                "interrupted; the task goes on. Fetch it with\n  {later}\nor stop it with\n  raincheck task cancel {id}"
            ),
        )),
        End::Interrupted(Some(task)) => {
            let status = task.word();
            Err(Stop::new(interrupted, format!("interrupted; the task is {status}")))
        }
        End::Interrupted(None) => {
            Err(Stop::new(interrupted, format!("interrupted; the task may still run. Look at it with\n  {later}")))
        }
        End::Lost(error) => {
            let stop = Stop::client(error);
            Err(stop.and(&format!("The handle is kept. Try again with\n  {later}")))
        }
    }
}

/// The outcome of a task, or how far it is.
pub(super) fn ended(task: &TaskView, raw: bool) -> Result<u8, Stop> {
    match &task.status {
        client::Status::Completed(result) => print_result(result, raw),
        client::Status::Failed(error) if raw => {
            print(error.raw().as_str())?;
            Err(Stop::rpc(error).printed())
        }
        client::Status::Failed(error) => Err(Stop::rpc(error)),
        client::Status::Cancelled => {
            let message = task.message.as_deref().map(|text| format!(": {}", terminal::one_line(text, 300)));
            Err(Stop::new(exit::FAILURE, format!("the task was cancelled{}", message.unwrap_or_default())))
        }
        client::Status::Working | client::Status::InputRequired(_) => Ok(exit::OK),
    }
}

async fn expired(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

pub(super) fn read_arguments(text: &str) -> Result<Json, String> {
    read_object("the arguments", "{\"rows\": 10}", text)
}

/// The JSON object that a word of the command line is, or names.
pub(super) fn read_object(what: &str, example: &str, text: &str) -> Result<Json, String> {
    let text = match text.strip_prefix('@') {
        Some(path) => std::fs::read(path).map_err(|error| format!("cannot read {path}: {error}"))?,
        None if text == "-" => {
            let mut read = Vec::new();
            std::io::stdin().lock().read_to_end(&mut read).map_err(|error| format!("cannot read stdin: {error}"))?;
            read
        }
        None => text.as_bytes().to_vec(),
    };
    let wanted = || format!("{what} must be a JSON object, such as '{example}'");
    let json = Json::parse(Bytes::from(text)).map_err(|error| match error {
        JsonError::Syntax(why) => format!("{}: {why}", wanted()),
        other => format!("{what}: {other}"),
    })?;
    match json.members().map(drop) {
        Ok(()) => Ok(json),
        Err(_) if !json.is_object() => Err(wanted()),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_quotes_is_the_one_without_them_as_in_the_header() {
        for (text, key) in
            [("k1", Some("k1")), ("\"k1\"", Some("k1")), ("\"a\\\"b\"", Some("a\"b")), ("k\"\\", Some("k\"\\"))]
        {
            let read = read_key(text).ok();
            assert_eq!(read.as_ref().map(CallKey::as_str), key, "{text}");
        }
        for (text, says) in [("\"k1", "ends with one"), ("\"\"", "1 to 256"), ("a b", "1 to 256")] {
            let error = read_key(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
