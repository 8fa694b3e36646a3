//! `raincheck check`.

mod limits;

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::{exit, look, serve, terminal};
use crate::config::{self, Config, Door, Environment, OwnerSource, StoreOrigin, Transport};

/// Which configuration to check.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

impl Check {
    pub(super) async fn run(self) -> u8 {
        let config = match config::load(&self.config, &Environment::of_process()) {
            Ok(config) => config,
            Err(faults) => return serve::report(&faults),
        };
        let notes = look::notes(&config).await;
        let mut text = match notes.len() {
            0 => String::from("The configuration is fine.\n"),
            1 => String::from("The configuration has no fault; see the note at the end.\n"),
            count => format!("The configuration has no fault; see the {count} notes at the end.\n"),
        };
        text.push_str(&summary(&config));
        for note in notes {
            // Writing into a string cannot fail.
            let _ = writeln!(text, "note      {note}");
        }
        match terminal::print(&text) {
            Ok(()) => exit::OK,
            Err(_) => exit::FAILURE,
        }
    }
}

/// A few lines that say what a configuration does. No secrets.
fn summary(config: &Config) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "callers   {}", callers(config));
    let path = config.store.path.display();
    let _ = match (config.door, config.store_origin) {
        (Door::Stdio, StoreOrigin::Default) => {
            writeln!(text, "store     in the user's data directory, one for each server")
        }
        (Door::Stdio, StoreOrigin::Chosen) | (Door::Http, _) => writeln!(text, "store     {path}"),
    };
    for (name, url) in config.endpoints(config.listen.http) {
        let server = config.servers.iter().find(|server| server.name == name);
        let behind = match server.map(|server| &server.transport) {
            Some(Transport::Stdio { command, .. }) => started(command),
            Some(Transport::Http { url, .. } | Transport::Sse { url, .. }) => look::shown(url),
            None => String::new(),
        };
        let front = if config.door == Door::Stdio { "stdin and stdout" } else { &url };
        let _ = writeln!(text, "server    {name}: {front} -> {behind}");
    }
    if let (Door::Http, Some(admin)) = (config.door, &config.admin) {
        let token = if admin.token.is_some() { ", with a token" } else { "" };
        let _ = writeln!(text, "operators http://{}/{token}", admin.http);
    }
    if let Some(set) = limits::of_all(&config.limits) {
        let _ = writeln!(text, "limits    {set}");
    }
    for (owner, set) in limits::of_owners(&config.owner_rules) {
        let _ = writeln!(text, "owner     {owner}: {set}");
    }
    let _ = writeln!(text, "defaults  {}", limits::of_tool(&config.defaults));
    for rule in &config.tools {
        let of = rule.server.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
        let _ = writeln!(text, "rule      {}{of}: {}", rule.pattern, limits::of_tool(&rule.policy));
    }
    text
}

/// A program, and what it runs where it is one that runs others. What follows may be secret.
fn started(command: &[String]) -> String {
    let Some((program, arguments)) = command.split_first() else { return String::new() };
    let is_plain = |word: &str| {
        word.len() <= 80 && word.chars().all(|sign| sign.is_ascii_alphanumeric() || "@/._-".contains(sign))
    };
    let is_flag = |word: &&String| word.len() == 2 && word.starts_with('-');
    let mut words = vec![program.as_str()];
    if look::runs_others(program) {
        let flags = arguments.iter().take_while(is_flag).count();
        let next = arguments.get(..=flags).unwrap_or_default();
        if next.iter().all(|word| is_plain(word)) && next.last().is_some_and(|word| !word.starts_with('-')) {
            words.extend(next.iter().map(String::as_str));
        }
    }
    let more = if words.len() < command.len() { " …" } else { "" };
    format!("{}{more}", words.join(" "))
}

fn callers(config: &Config) -> String {
    if config.door == Door::Stdio {
        return "the one host on stdin and stdout".to_owned();
    }
    let owner = &config.owner;
    let tokens = match owner.tokens.len() {
        0 => None,
        1 => Some("1 bearer token".to_owned()),
        many => Some(format!("{many} bearer tokens")),
    };
    let signed = owner.jwt.as_ref().map(|jwt| format!("tokens signed by {}", jwt.issuer));
    let proofs: Vec<String> = tokens.into_iter().chain(signed).collect();
    let known = match &owner.from {
        OwnerSource::Header { name, .. } => format!("the header {name}, from trusted addresses"),
        OwnerSource::Authorization if !proofs.is_empty() => proofs.join(", "),
        OwnerSource::Authorization if config.listen.http.ip().is_loopback() => {
            return "Authorization, not required".to_owned();
        }
        OwnerSource::Authorization => "Authorization, checked by the servers behind".to_owned(),
    };
    if owner.allow_anonymous { format!("{known}; or without credentials (allow_anonymous)") } else { known }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary_of(text: &str) -> String {
        summary(&config::parse(text, &Environment::of([])).unwrap())
    }

    #[test]
    fn a_summary_says_who_comes_in_where_and_what_becomes_of_calls() {
        let server = "[[server]]\nname = \"a\"\ncommand = [\"sh\"]\n";
        let jwt =
            "[owner.jwt]\nissuer = \"https://id.example/\"\naudience = [\"a\"]\njwks = \"https://id.example/k\"\n";
        let token = "[[owner.token]]\nname = \"ann\"\ntoken = \"s3cret\"\n";
        let table = [
            (server.to_owned(), "callers   Authorization, not required\n"),
            (format!("{jwt}{server}"), "callers   tokens signed by https://id.example/\n"),
            (format!("{token}{jwt}{server}"), "callers   1 bearer token, tokens signed by https://id.example/\n"),
            (
                format!("[owner]\nallow_anonymous = true\n{token}{server}"),
                "callers   1 bearer token; or without credentials (allow_anonymous)\n",
            ),
            (format!("[listen]\nstdio = true\n{server}"), "callers   the one host on stdin and stdout\n"),
            (format!("[listen]\nstdio = true\n{server}"), "server    a: stdin and stdout -> sh\n"),
            (
                "[[server]]\nname = \"a\"\ncommand = [\"npx\", \"-y\", \"@x/server\", \"s3cret\"]\n".to_owned(),
                "/mcp -> npx -y @x/server …\n",
            ),
            ("[[server]]\nname = \"a\"\ncommand = [\"/bin/x\", \"s3cret\"]\n".to_owned(), "/mcp -> /bin/x …\n"),
            ("[[server]]\nname = \"a\"\ncommand = [\"node\", \"--key\", \"s3cret\"]\n".to_owned(), "/mcp -> node …\n"),
            (
                "[[server]]\nname = \"a\"\nurl = \"http://127.0.0.1:3102/one/mcp?k=s3cret\"\n".to_owned(),
                "/mcp -> http://127.0.0.1:3102/one/mcp\n",
            ),
            (format!("[listen]\nstdio = true\n{server}"), "store     in the user's data directory"),
            (format!("[admin]\nhttp = \"127.0.0.1:9\"\n{server}"), "operators http://127.0.0.1:9/\n"),
            (
                format!("[admin]\nhttp = \"127.0.0.1:9\"\ntoken = \"s3cret\"\n{server}"),
                "operators http://127.0.0.1:9/, with a token\n",
            ),
            (
                format!("[limits]\nrate = \"60/m\"\ncalls = 7\nbody = \"1MiB\"\n{server}"),
                "limits    calls 7, rate 60/1m, body 1.0 MiB\n",
            ),
            (
                format!(
                    "{token}[owner.limits]\nmax_running = 4\nbudget = \"100/d\"\ntimeout = \"5m\"\n\
                     [[owner.limit]]\nname = \"ann\"\nbudget = \"none\"\n{server}[defaults]\nprice = 1\n"
                ),
                "owner     each: max_running 4, budget 100/1day, timeout 5m\nowner     ann: max_running 4, timeout 5m\n",
            ),
            (
                format!(
                    "{server}[defaults]\nmax_running = 3\nrate = \"9/1h\"\nprice = 0.5\nprice_per_minute = 2\n\
                     on_lost = \"rerun\"\ndedupe = \"10m\"\nask = \"first\"\nmax_queued = 2\nidle_timeout = \"1m\"\n"
                ),
                "keep 1day, idle_timeout 1m, max_running 3, max_queued 2, rate 9/1h, price 0.5, price_per_minute 2, \
                 ask first, on_lost rerun, dedupe 10m\n",
            ),
            (
                format!("{server}[[tool]]\nmatch = \"x_*\"\nserver = \"a\"\nmode = \"task\"\nfallback = \"handle\"\n"),
                "rule      x_* of a: mode task, timeout 30m, keep 1day, fallback handle\n",
            ),
            (
                format!("[defaults]\nfallback = \"handle\"\nhold = \"5s\"\n{server}"),
                "defaults  mode auto, after 10s, timeout 30m, keep 1day, fallback handle after 5s\n",
            ),
        ];
        for (text, says) in table {
            let found = summary_of(&text);
            assert!(found.contains(says) && !found.contains("s3cret"), "{says} in {found}");
        }
    }
}
