//! Looks at what a configuration leads to, for whoever sets one up: nothing of this keeps the proxy from starting.

use std::path::Path;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use crate::config::{Config, Fallback, Mode, ServerConfig, ToolPolicy, Transport, the_server};

/// How long a server may take to take a connection before that is said.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is odd about a configuration without being wrong.
pub(super) fn notes(config: &Config) -> Vec<String> {
    let servers = config.servers.iter().filter_map(|server| {
        let name = the_server(&server.name);
        missing_program(server).or_else(|| match &server.transport {
            Transport::Http { url, .. } if url.path() == "/" => {
                let url = shown(url);
                Some(format!("{name}: {url} has no path; most servers are at {url}mcp"))
            }
            Transport::Stdio { .. } | Transport::Http { .. } | Transport::Sse { .. } => None,
        })
    });
    let idle = |policy: &ToolPolicy| policy.fallback == Fallback::Refuse && policy.mode != Mode::Task;
    let says = "fallback = \"refuse\" means something beside mode = \"task\" only";
    // Rules of mode "task" may be what the default is for.
    let is_used = |policy: &ToolPolicy| policy.fallback == Fallback::Refuse && policy.mode == Mode::Task;
    let used = config.tools.iter().any(|rule| is_used(&rule.policy));
    let defaults = (idle(&config.defaults) && !used).then(|| format!("defaults: {says}"));
    let rules = config.tools.iter().filter(|rule| idle(&rule.policy) && config.defaults.fallback != Fallback::Refuse);
    let rules = rules.map(|rule| format!("tool \"{}\": {says}", rule.pattern));
    servers.chain(defaults).chain(rules).chain(config.notes.iter().map(ToString::to_string)).collect()
}

/// Says in the log which servers cannot be reached as things are. They may come later.
pub(super) async fn at_servers(servers: Vec<ServerConfig>) {
    let looks = servers.iter().map(|server| async move {
        let why = match &server.transport {
            Transport::Stdio { .. } => missing_program(server),
            Transport::Http { url, .. } | Transport::Sse { url, .. } => unreachable(url).await,
        };
        if let Some(why) = why {
            tracing::warn!(server = server.name, "calls will fail for now: {why}");
        }
    });
    futures_util::future::join_all(looks).await;
}

/// Why the program of a server cannot be started, if that can be seen.
fn missing_program(server: &ServerConfig) -> Option<String> {
    let Transport::Stdio { command, env, cwd, .. } = &server.transport else { return None };
    let program = command.first()?;
    let is_there = if program.contains('/') {
        let folder = cwd.as_deref().unwrap_or(Path::new("."));
        folder.join(program).is_file()
    } else {
        let path = env.get("PATH").map(Into::into).or_else(|| std::env::var_os("PATH")).unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    let name = the_server(&server.name);
    (!is_there).then(|| format!("{name}: the program \"{}\" is not found", program.escape_debug()))
}

async fn unreachable(url: &Url) -> Option<String> {
    let (host, port) = (url.host_str()?, url.port_or_known_default()?);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let at = shown(url);
    match timeout(PATIENCE, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(format!("there is no connection to {at}: {error}")),
        Err(_) => Some(format!("{at} takes no connection")),
    }
}

/// A URL without credentials and query.
fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    fn config(text: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raincheck.toml");
        std::fs::write(&path, text).unwrap();
        crate::config::load(&path, &Environment::of([])).unwrap()
    }

    #[test]
    fn what_is_odd_is_noted_and_what_is_fine_is_not() {
        let fine = "[[server]]\nname = \"a\"\ncommand = [\"sh\"]\n[[server]]\nname = \"b\"\nurl = \"http://h/mcp?k=secret\"\n\
                    [[tool]]\nmatch = \"x\"\nmode = \"task\"\nfallback = \"refuse\"\n";
        assert_eq!(notes(&config(fine)), Vec::<String>::new());
        let odd = "[defaults]\nfallback = \"refuse\"\n[[server]]\nname = \"a\"\ncommand = [\"no-such-program-here\"]\n\
                   [[server]]\nname = \"c\"\ncommand = [\"/no/such/program\"]\n\
                   [[server]]\nname = \"b\"\nurl = \"http://h?k=secret\"\n[[tool]]\nmatch = \"x\"\nmode = \"sync\"\n";
        let found = notes(&config(odd));
        assert_eq!(found.len(), 4, "{found:?}");
        for says in ["no-such-program-here", "/no/such/program", "most servers are at http://h/mcp", "defaults:"] {
            assert!(found.iter().any(|note| note.contains(says)), "{says}: {found:?}");
        }
        assert!(!found.iter().any(|note| note.contains("secret")), "{found:?}");
    }

    #[tokio::test]
    async fn a_server_that_takes_no_connection_is_seen() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Url = format!("http://{}/mcp?k=secret", listener.local_addr().unwrap()).parse().unwrap();
        assert_eq!(unreachable(&url).await, None);
        drop(listener);
        let why = unreachable(&url).await.unwrap();
        assert!(why.contains("/mcp:") && !why.contains("secret"), "{why}");
    }
}
