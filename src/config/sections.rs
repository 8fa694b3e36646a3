//! The plain tables: `[listen]`, `[store]`, `[limits]`, `[log]`, `[shutdown]`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use url::{Origin, Url};

use super::reader::{Reader, Section};
use super::run::{Door, Durability, Limits, Listen, LogConfig, LogFormat, Shutdown, StoreConfig, StoreOrigin};
use super::setting::{Setting, Size, WebUrl, choice};
use crate::telemetry::directives;

/// A host as it stands in `Host`, without a port.
struct Host(String);

/// An origin as a browser sends it.
struct WebOrigin(String);

/// What is logged.
struct Level(String);

/// What is logged over stdio, where hosts show every line as if it were a fault: warnings, and what the server itself
/// says on stderr, which would be there without Raincheck too.
const QUIET: &str = "warn,raincheck::upstream::stdio::stderr=debug";

/// No text is nested deeper, and the JSON reader does not go deeper either.
const DEEPEST: usize = 128;

/// No message of MCP is so short that it fits into less: the smallest request of 2026-07-28 takes some 300 bytes.
const LEAST: usize = 1 << 10;

pub(super) fn listen<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>) -> (Listen, Door) {
    let http = section.get(reader, "http").unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)));
    let public_url = section.get(reader, "public_url").map(|WebUrl(url)| url);
    if public_url.as_ref().is_some_and(|url| url.query().is_some()) {
        section.fault(reader, "public_url", "must not have a query (the part from ?)");
    }
    let hosts: Vec<Host> = section.list(reader, "allowed_hosts").unwrap_or_default();
    let origins: Vec<WebOrigin> = section.list(reader, "allowed_origins").unwrap_or_default();
    let listen = Listen {
        http,
        public_url,
        allowed_hosts: hosts.into_iter().map(|Host(host)| host).collect(),
        allowed_origins: origins.into_iter().map(|WebOrigin(origin)| origin).collect(),
        keep_alive: section.get(reader, "keep_alive").unwrap_or(Duration::from_secs(15)),
        session_idle: section.get(reader, "session_idle").unwrap_or(Duration::from_hours(1)),
    };
    (listen, door(reader, section))
}

fn door<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>) -> Door {
    let stdio: Option<bool> = section.get(reader, "stdio");
    // A flag or a variable says what this process is to do; what stands in the file is for the others.
    if section.says(reader, "stdio", true) && section.has(reader, "http") {
        section.fault(
            reader,
            "stdio",
            "http is set too, but a process serves either HTTP or stdio; take one of them out",
        );
    }
    if stdio == Some(true) { Door::Stdio } else { Door::Http }
}

pub(super) fn store<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>, door: Door) -> (StoreConfig, StoreOrigin) {
    let min_free = match door {
        Door::Http => None,
        // A personal machine may be full to the last tenth for years.
        Door::Stdio => Some(256 << 20),
    };
    let path: Option<PathBuf> = section.get(reader, "path");
    let origin = if path.is_some() { StoreOrigin::Chosen } else { StoreOrigin::Default };
    let config = StoreConfig {
        path: path.unwrap_or_else(|| PathBuf::from("raincheck.data")),
        durability: section.get(reader, "durability").unwrap_or(Durability::Power),
        cache_bytes: section.get(reader, "cache").map_or(112 << 20, |Size(bytes)| bytes),
        min_free_bytes: section.get(reader, "min_free").map(|Size(bytes)| bytes).or(min_free),
        max_tasks: section.get(reader, "max_tasks").map_or(1_000_000, |count: usize| count as u64),
    };
    (config, origin)
}

pub(super) fn limits<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>) -> Limits {
    let default = Limits::default();
    let mut bytes = |reader: &mut Reader<'a>, key, or| match section.get(reader, key) {
        Some(Size(bytes)) => usize::try_from(bytes).unwrap_or(usize::MAX),
        None => or,
    };
    let body = bytes(reader, "body", default.body);
    let message = bytes(reader, "message", default.message);
    let line = bytes(reader, "line", default.line);
    for (key, bytes) in [("body", body), ("message", message), ("line", line)] {
        if bytes < LEAST {
            section.fault(reader, key, "must be 1 KiB at least, or hardly any message would pass");
        }
    }
    let mut count = |reader: &mut Reader<'a>, key, or| section.get(reader, key).unwrap_or(or);
    let depth = count(reader, "depth", default.depth);
    let calls = count(reader, "calls", default.calls);
    let connections = count(reader, "connections", default.connections);
    let streams = count(reader, "streams", default.streams);
    let sessions = count(reader, "sessions", default.sessions);
    let queue = count(reader, "queue", default.queue);
    if depth > DEEPEST {
        section.fault(reader, "depth", format!("must be {DEEPEST} at most"));
    }
    let read_timeout = section.get(reader, "read_timeout").unwrap_or(default.read_timeout);
    let rate = section.get(reader, "rate");
    Limits { body, message, line, depth, calls, connections, streams, sessions, queue, rate, read_timeout }
}

pub(super) fn log<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>, door: Door) -> LogConfig {
    let level = match door {
        Door::Http => "info",
        Door::Stdio => QUIET,
    };
    LogConfig {
        format: section.get(reader, "format").unwrap_or(LogFormat::Text),
        level: section.get(reader, "level").map_or_else(|| level.to_owned(), |Level(level)| level),
    }
}

pub(super) fn shutdown<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>) -> Shutdown {
    Shutdown { grace: section.get(reader, "grace").unwrap_or(Duration::from_secs(20)) }
}

impl Setting for Durability {
    const EXPECTED: &'static str = "\"power\" or \"process\"";

    fn from_text(text: &str) -> Result<Self, String> {
        choice(text, &[("power", Self::Power), ("process", Self::Process)], &[])
    }
}

impl Setting for LogFormat {
    const EXPECTED: &'static str = "\"text\" or \"json\"";

    fn from_text(text: &str) -> Result<Self, String> {
        choice(text, &[("text", Self::Text), ("json", Self::Json)], &[])
    }
}

impl Setting for Level {
    const EXPECTED: &'static str = "a level, such as \"info\", or directives, such as \"warn,raincheck=debug\"";

    fn from_text(text: &str) -> Result<Self, String> {
        directives(text).map(Self).map_err(|error| format!("expected {}: {error}", Self::EXPECTED))
    }
}

impl Setting for Host {
    const EXPECTED: &'static str = "a host name, such as \"mcp.example.com\"";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.contains("://") || text.contains('/') {
            return Err(format!("expected {}; leave out the scheme and the path", Self::EXPECTED));
        }
        let host = url::Host::parse(text);
        // A name never has a colon; an IPv6 address stands in brackets.
        match host {
            Ok(host) => Ok(Self(host.to_string().to_lowercase())),
            Err(_) if text.contains(':') => {
                Err(format!("expected {}; leave out the port, and put an IPv6 address into brackets", Self::EXPECTED))
            }
            Err(error) => Err(format!("expected {}: {error}", Self::EXPECTED)),
        }
    }
}

impl Setting for WebOrigin {
    const EXPECTED: &'static str = "an origin, such as \"https://app.example.com\"";

    fn from_text(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Err("every origin cannot be allowed; list the ones that you trust".to_owned());
        }
        let url = Url::parse(text).map_err(|error| format!("expected {}: {error}", Self::EXPECTED))?;
        match url.origin() {
            origin @ Origin::Tuple(..) if matches!(url.path(), "" | "/") && url.query().is_none() => {
                Ok(Self(origin.ascii_serialization()))
            }
            _ => Err(format!("expected {}: a scheme, a host, perhaps a port, and nothing else", Self::EXPECTED)),
        }
    }
}
