//! `[[server]]`: the servers behind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::companions;
use super::own_headers::is_own_header;
use super::reader::{Reader, Section};
use super::run::{ForwardCancel, Offer, ServerConfig, SessionCount, StderrFor, Transport, UpstreamEra};
use super::secret;
use super::setting::{Setting, WebUrl, choice};

/// What is spoken over HTTP.
#[derive(Clone, Copy)]
enum Wire {
    /// Streamable HTTP, and HTTP+SSE with a server that turns out to know no other.
    Http,
    /// HTTP+SSE.
    Sse,
}

/// What the rest of the configuration says of the callers.
#[derive(Clone, Copy)]
pub(super) struct Exposure {
    /// Whether Raincheck itself proves who they are.
    pub(super) authenticates: bool,
    /// Who sees what a server says on stderr, where nothing is said about it.
    pub(super) stderr: StderrFor,
}

/// Reads all servers.
pub(super) fn read<'a>(
    reader: &mut Reader<'a>,
    root: &mut Section<'a>,
    sections: Vec<Section<'a>>,
    exposure: Exposure,
) -> Vec<ServerConfig> {
    if sections.is_empty() && !root.has(reader, "server") {
        root.fault(reader, "server", "there is none; add a [[server]] with a name and a command or a url");
    }
    let mut names = BTreeSet::new();
    let mut servers = Vec::new();
    for mut section in sections {
        let name = section.get(reader, "name").map(|Name(name)| name);
        if name.is_none() && !section.has(reader, "name") {
            section.fault(reader, "name", "is missing: it is mounted at /NAME/mcp");
        }
        if let Some(name) = &name
            && !names.insert(name.clone())
        {
            section.fault(reader, "name", format!("another server is called \"{name}\" already"));
        }
        let transport = transport(reader, &mut section, exposure.authenticates);
        // A server that is not complete is read to its end all the same, so that all its faults show at once.
        let complete = name.is_some() && transport.is_some();
        let transport = transport.unwrap_or_else(|| Transport::Stdio {
            command: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            hide: Vec::new(),
        });
        let default = ServerConfig::new(name.unwrap_or_default(), transport);
        let server = ServerConfig {
            share: section.get(reader, "share").unwrap_or(default.share),
            sessions: section.get(reader, "sessions").unwrap_or(default.sessions),
            serial: section.get(reader, "serial").unwrap_or(default.serial),
            offer: section.list(reader, "offer").unwrap_or_default(),
            cancel: section.get(reader, "cancel").unwrap_or(default.cancel),
            cancel_grace: section.get(reader, "cancel_grace").unwrap_or(default.cancel_grace),
            connect_timeout: section.get(reader, "connect_timeout").unwrap_or(default.connect_timeout),
            max_sessions: section.get(reader, "max_sessions").unwrap_or(default.max_sessions),
            session_idle: section.get(reader, "session_idle").unwrap_or(default.session_idle),
            era: section.get(reader, "era").unwrap_or(default.era),
            stderr: section.get(reader, "stderr").unwrap_or(exposure.stderr),
            companion_tools: companions::read(reader, &mut section),
            ..default
        };
        section.finish(reader);
        if complete || !server.name.is_empty() {
            servers.push(server);
        }
    }
    servers
}

fn transport<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>, authenticates: bool) -> Option<Transport> {
    let command: Option<Vec<Word>> = section.list(reader, "command");
    let command = command.map(|words| words.into_iter().map(|Word(word)| word).collect());
    let url = section.get(reader, "url").map(|WebUrl(url)| url);
    let env = variables(reader, section);
    let cwd: Option<PathBuf> = section.get(reader, "cwd");
    let headers = headers(reader, section);
    let forward: Option<Vec<HeaderName>> = section.list(reader, "forward");
    let wire = section.get(reader, "transport").unwrap_or(Wire::Http);

    let (has_command, has_url) = (section.has(reader, "command"), section.has(reader, "url"));
    let (strangers, needed): (&[&str], _) = match (has_command, has_url) {
        (true, false) => (&["headers", "headers_env", "headers_file", "forward", "transport"], "url"),
        (false, true) => (&["env", "env_file", "cwd"], "command"),
        (both, _) => {
            let found = if both { "both are set" } else { "neither is set" };
            section.fault(reader, "url", format!("a server needs exactly one of command and url, {found}"));
            (&[], "")
        }
    };
    for key in strangers {
        if section.has(reader, key) {
            section.fault(reader, key, format!("only means something beside {needed}"));
        }
    }
    // All that is written is looked at before anything is given up, so that all faults show at once.
    let command = command.and_then(|command| program(reader, section, command));
    let forward = match (has_command, has_url) {
        (true, false) => Vec::new(),
        _ => forwarded(reader, section, forward, &headers, authenticates),
    };
    match (has_command, has_url) {
        (true, false) => command.map(|command| Transport::Stdio { command, env, cwd, hide: Vec::new() }),
        (false, true) => url.map(|url| match wire {
            Wire::Http => Transport::Http { url, headers, forward },
            Wire::Sse => Transport::Sse { url, headers, forward },
        }),
        (true, true) | (false, false) => None,
    }
}

/// A word of a command: an argument may well be empty.
struct Word(String);

impl Setting for Word {
    const EXPECTED: &'static str = String::EXPECTED;
    const LIST: &'static str = "a list, such as [\"npx\", \"-y\", \"some-server\"]";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }
}

/// `@self` is this very program, wherever it stands.
fn program<'a>(reader: &mut Reader<'a>, section: &Section<'a>, mut command: Vec<String>) -> Option<Vec<String>> {
    let Some(first) = command.first_mut().filter(|first| !first.is_empty()) else {
        section.fault(reader, "command", "must not be empty: the program first, then its arguments");
        return None;
    };
    if first == "@self" {
        match reader.environment.program().and_then(|path| path.to_str()) {
            Some(path) => path.clone_into(first),
            None => {
                section.fault(
                    reader,
                    "command",
                    "the path of this program, for @self, cannot be found or is not UTF-8",
                );
            }
        }
    } else if first.contains(' ') && command.len() == 1 {
        let message = "is a list: the program first, then each argument as a string of its own; no shell reads it";
        section.fault(reader, "command", message);
        return None;
    }
    Some(command)
}

fn variables<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for (key, from_file) in [("env", false), ("env_file", true)] {
        for (name, text, line) in section.strings(reader, key) {
            let path = format!("{}.{}", section.path_of(key), name.escape_debug());
            if name.is_empty() || name.contains(['=', '\0']) {
                reader.fault(&path, line, "is not a name that a variable can have");
            }
            let value = if from_file { secret::of_file(&text) } else { Ok(text) };
            match value {
                Err(message) => reader.fault(&path, line, message),
                Ok(value) if value.contains('\0') => reader.fault(&path, line, "must not hold a zero byte"),
                Ok(value) => {
                    if variables.insert(name, value).is_some() {
                        reader.fault(&path, line, "is set in env as well; leave one");
                    }
                }
            }
        }
    }
    variables
}

fn headers<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for key in ["headers", "headers_env", "headers_file"] {
        for (name, text, line) in section.strings(reader, key) {
            let path = format!("{}.{}", section.path_of(key), name.escape_debug());
            let value = match key {
                "headers_env" => secret::of_variable(reader, &text),
                "headers_file" => secret::of_file(&text),
                _ => Ok(text),
            };
            let value = value.and_then(|value| {
                let mut value = HeaderValue::from_str(&value)
                    .map_err(|_| "holds characters that a header cannot have".to_owned())?;
                value.set_sensitive(true);
                Ok(value)
            });
            match (settable(&name), value) {
                (Ok(name), Ok(value)) => {
                    if headers.insert(name, value).is_some() {
                        reader.fault(path, line, "is set twice; leave one");
                    }
                }
                (name, value) => {
                    for message in [name.err(), value.err()].into_iter().flatten() {
                        reader.fault(&path, line, message);
                    }
                }
            }
        }
    }
    headers
}

fn settable(name: &str) -> Result<HeaderName, String> {
    let name = HeaderName::from_text(name)?;
    if is_own_header(&name) { Err("Raincheck sets this header itself".to_owned()) } else { Ok(name) }
}

/// While Raincheck does not prove who callers are it stands in front of the same resource, so their credentials
/// go on; with a proof of its own they were meant for Raincheck, and go nowhere unless somebody says so.
fn forwarded<'a>(
    reader: &mut Reader<'a>,
    section: &Section<'a>,
    written: Option<Vec<HeaderName>>,
    fixed: &HeaderMap,
    authenticates: bool,
) -> Vec<HeaderName> {
    let Some(forward) = written else {
        let pass = !authenticates && !fixed.contains_key(AUTHORIZATION);
        return if pass { vec![AUTHORIZATION] } else { Vec::new() };
    };
    for name in &forward {
        if let Err(message) = settable(name.as_str()) {
            section.fault(reader, "forward", format!("{name}: {message}"));
        }
        if fixed.contains_key(name) {
            section.fault(reader, "forward", format!("{name} is set in headers as well; leave one"));
        }
    }
    forward
}

/// A name of a server: part of a path.
struct Name(String);

impl Setting for Name {
    const EXPECTED: &'static str = "a name of lower-case letters, digits, - and _, such as \"reports\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
        if text.is_empty() || text.len() > 64 || !text.bytes().all(fits) {
            return Err(format!("expected {} (64 characters at most)", Self::EXPECTED));
        }
        Ok(Self(text.to_owned()))
    }
}

impl Setting for Wire {
    const EXPECTED: &'static str = "\"http\" or \"sse\"";

    fn from_text(text: &str) -> Result<Self, String> {
        choice(text, &[("http", Self::Http), ("sse", Self::Sse)], &[])
    }
}

impl Setting for ForwardCancel {
    const EXPECTED: &'static str = "\"forward\", \"never\" or \"ignored\"";

    fn from_text(text: &str) -> Result<Self, String> {
        choice(text, &[("forward", Self::Forward), ("never", Self::Never), ("ignored", Self::Ignored)], &[])
    }
}

impl Setting for UpstreamEra {
    const EXPECTED: &'static str = "\"legacy\", \"modern\" or \"auto\"";

    fn from_text(text: &str) -> Result<Self, String> {
        choice(text, &[("legacy", Self::Legacy), ("modern", Self::Modern), ("auto", Self::Auto)], &[])
    }
}

impl Setting for StderrFor {
    const EXPECTED: &'static str = "\"local\" or \"log\"";

    fn from_text(text: &str) -> Result<Self, String> {
        choice(text, &[("local", Self::Local), ("log", Self::Log)], &[])
    }
}

impl Setting for SessionCount {
    const EXPECTED: &'static str = "\"auto\", \"one\" or \"pool\"";

    fn from_text(text: &str) -> Result<Self, String> {
        choice(text, &[("auto", Self::Auto), ("one", Self::One), ("pool", Self::Pool)], &[])
    }
}

impl Setting for Offer {
    const EXPECTED: &'static str = "\"elicitation\", \"sampling\" or \"roots\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let choices = [("elicitation", Self::Elicitation), ("sampling", Self::Sampling), ("roots", Self::Roots)];
        choice(text, &choices, &[])
    }
}
