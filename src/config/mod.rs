//! The configuration, typed twice: as written (TOML, every key optional) and as run (complete, checked).
//!
//! A flag comes before a variable (`RAINCHECK_` + table + `_` + key, in capitals: `RAINCHECK_LISTEN_HTTP`), a
//! variable before the file, the file before the default. Variables reach the plain settings of `[listen]`, `[admin]`,
//! `[store]`, `[owner]`, `[limits]`, `[log]`, `[shutdown]` and `[defaults]`; lists are separated by commas there.
//! Relative paths count from the directory that the process runs in.

mod admin;
mod companions;
mod environment;
mod fault;
mod greeting;
mod jwt;
mod notes;
mod own_headers;
mod owner;
mod owner_limits;
mod policy;
mod reader;
mod run;
mod secret;
mod sections;
mod server;
mod setting;
mod strangers;
mod syntax;
#[cfg(test)]
mod tests;
mod tool;

use std::path::Path;

use http::header::AUTHORIZATION;
use toml::de::DeTable;

use reader::{Reader, Section};

pub use companions::CompanionNames;
pub use environment::Environment;
pub use fault::{ConfigFaults, Fault};
pub use own_headers::is_own_header;
pub use owner_limits::{Budget, Ceilings, OwnerLimits, OwnerRules};
pub use policy::*;
pub use run::*;
pub use setting::duration;

/// Files of configuration are small; a larger one is a wrong path.
const LARGEST: u64 = 4 << 20;

/// What the one server is called that nobody has given a name.
const UNNAMED: &str = "server";

/// The tables whose plain settings variables may override.
const OVERRIDABLE: &[&str] = &["listen", "admin", "store", "owner", "limits", "log", "shutdown", "defaults"];

/// Reads and checks a file.
pub fn load(path: &Path, environment: &Environment) -> Result<Config, ConfigFaults> {
    parse(&text_of(path)?, environment)
}

/// Reads a file for what it says of operators and the store. What is wrong elsewhere is said by those whom it concerns: an
/// operator has not the variables of the proxy.
pub fn load_for_operators(path: &Path, environment: &Environment) -> Result<Config, ConfigFaults> {
    parse_for(&text_of(path)?, environment, |fault| {
        let section = fault.path.split(['.', '[']).next().unwrap_or_default();
        ["admin", "store", "syntax"].contains(&section)
    })
}

fn text_of(path: &Path) -> Result<String, ConfigFaults> {
    let shown = || path.display().to_string();
    let size =
        std::fs::metadata(path).map_err(|error| ConfigFaults::one(shown(), format!("cannot be read: {error}")))?;
    if size.len() > LARGEST {
        return Err(ConfigFaults::one(shown(), "is larger than 4 MiB, so it is hardly a configuration"));
    }
    let text = std::fs::read_to_string(path);
    text.map_err(|error| ConfigFaults::one(shown(), format!("cannot be read: {error}")))
}

/// Reads and checks a text.
pub fn parse(text: &str, environment: &Environment) -> Result<Config, ConfigFaults> {
    parse_for(text, environment, |_| true)
}

/// The same for somebody whom not every fault concerns.
fn parse_for(text: &str, environment: &Environment, concerns: impl Fn(&Fault) -> bool) -> Result<Config, ConfigFaults> {
    let mut reader = Reader::new(text, environment);
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        syntax::report(&mut reader, text, &errors);
        return reader.finish(None, concerns);
    }
    let config = read(&mut reader, table.get_ref());
    reader.finish(Some(config), concerns)
}

impl Config {
    /// The configuration for one server that is a child process: its program, then the arguments.
    pub fn for_command(command: &[String], environment: &Environment) -> Result<Self, ConfigFaults> {
        let command: Vec<_> = command.iter().map(|part| toml::Value::from(part.as_str())).collect();
        for_one("command", &command.into(), environment)
    }

    /// The configuration for one server at a URL.
    pub fn for_url(url: &str, environment: &Environment) -> Result<Self, ConfigFaults> {
        for_one("url", &url.into(), environment)
    }
}

impl OwnerConfig {
    /// Whether Raincheck itself proves who callers are.
    pub fn authenticates(&self) -> bool {
        !self.tokens.is_empty() || self.jwt.is_some() || matches!(self.from, OwnerSource::Header { .. })
    }
}

/// A server in a sentence, by its name if it was given one.
pub fn the_server(name: &str) -> String {
    if name == UNNAMED { "the server".to_owned() } else { format!("the server \"{name}\"") }
}

/// The configuration that says no more than how one server is reached.
fn for_one(key: &str, value: &toml::Value, environment: &Environment) -> Result<Config, ConfigFaults> {
    parse(&format!("[[server]]\nname = \"{UNNAMED}\"\n{key} = {value}\n"), environment).map_err(
        |ConfigFaults(faults)| {
            // Nobody has seen this text, so its lines and paths would only confuse.
            let place = |path: String| match path.strip_prefix("server[0].") {
                Some("url") => "--url".to_owned(),
                Some("command") => "the command behind --".to_owned(),
                _ => path,
            };
            let faults = faults.into_iter().map(|fault| Fault { line: None, path: place(fault.path), ..fault });
            ConfigFaults(faults.collect())
        },
    )
}

fn read<'a>(reader: &mut Reader<'a>, table: &'a DeTable<'a>) -> Config {
    let mut root = Section::root(table);
    let mut part = |reader: &mut Reader<'a>, key| root.table(reader, key);

    let mut section = part(reader, "listen");
    let (listen, door) = sections::listen(reader, &mut section);
    let address_line = section.own_line_of(reader, "http");
    section.finish(reader);

    let mut section = part(reader, "admin");
    let admin = admin::read(reader, &mut section, &listen);
    section.finish(reader);

    let mut section = part(reader, "store");
    let (store, store_origin) = sections::store(reader, &mut section, door);
    section.finish(reader);

    let mut section = part(reader, "owner");
    let (owner, names) = owner::read(reader, &mut section);
    let owner_rules = owner_limits::read(reader, &mut section, &owner, names);
    section.finish(reader);

    let mut section = part(reader, "limits");
    let limits = sections::limits(reader, &mut section);
    section.finish(reader);

    let mut section = part(reader, "log");
    let log = sections::log(reader, &mut section, door);
    section.finish(reader);

    let mut section = part(reader, "shutdown");
    let shutdown = sections::shutdown(reader, &mut section);
    section.finish(reader);

    let mut section = part(reader, "defaults");
    let defaults = tool::policy(reader, &mut section, &ToolPolicy::default());
    section.finish(reader);

    let written = root.tables(reader, "server");
    // Behind a balancer the one user of a loopback listener may be anybody.
    let is_public = door == Door::Http && (listen.public_url.is_some() || !listen.allowed_hosts.is_empty());
    let stderr = if is_public { StderrFor::Log } else { StderrFor::Local };
    let exposure = server::Exposure { authenticates: owner.authenticates(), stderr };
    let mut servers = server::read(reader, &mut root, written, exposure);
    let written = root.tables(reader, "tool");
    let tools = tool::rules(reader, written, &defaults, &servers);
    root.finish(reader);
    reader.unknown_variables(OVERRIDABLE);

    for server in &mut servers {
        if let Transport::Stdio { hide, .. } = &mut server.transport {
            *hide = reader.secret_variables();
        }
    }
    let mut config = Config {
        door,
        listen,
        admin,
        store,
        store_origin,
        owner,
        owner_rules,
        limits,
        log,
        shutdown,
        servers,
        defaults,
        tools,
        notes: Vec::new(),
    };
    refuse_an_open_door(reader, &config, address_line);
    notes::add(reader, table, &config);
    config.notes = reader.take_notes();
    config
}

/// A listener that others can reach must not let in whoever makes up a credential.
///
/// Loopback is open by design. Elsewhere callers must be proved by Raincheck (tokens, a gateway's header), or by
/// every server behind, to which their `Authorization` goes; or the config says that anybody may come in.
///
/// `line` is where its address is written.
fn refuse_an_open_door(reader: &mut Reader<'_>, config: &Config, line: Option<usize>) {
    let address = config.listen.http;
    if config.door == Door::Stdio {
        return;
    }
    if address.ip().is_loopback() || config.owner.authenticates() || config.owner.allow_anonymous {
        return;
    }
    // Who is to check callers is written down, if wrongly, which was said.
    if ["owner.token", "owner.jwt", "owner.from", "owner.trusted"].iter().any(|path| reader.is_faulty(path)) {
        return;
    }
    let trusting = config.servers.iter().find(|server| match &server.transport {
        // An empty command stands for a server that was reported as incomplete.
        Transport::Stdio { command, .. } => !command.is_empty(),
        Transport::Http { forward, .. } | Transport::Sse { forward, .. } => !forward.contains(&AUTHORIZATION),
    });
    if let Some(server) = trusting {
        let message = format!(
            "{address} can be reached from other machines, and nobody checks who calls: server \"{}\" does not get the \
             caller's Authorization. List tokens ([[owner.token]]), or take the caller's name from a gateway \
             (owner.from = \"header:NAME\"), or bind to 127.0.0.1, or let everybody in (owner.allow_anonymous = true)",
            server.name
        );
        reader.fault("listen.http", line, message);
    }
}
