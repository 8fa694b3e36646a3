//! Where clients find the servers, and what to try first.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use super::run::{Config, OwnerSource, Transport};

impl Config {
    /// The URLs of all servers at the listener that is bound to `address`, each with the name of its server; a
    /// single server is also at `/mcp`, and only that is shown.
    pub fn endpoints(&self, address: SocketAddr) -> Vec<(&str, String)> {
        let base = match &self.listen.public_url {
            Some(url) => url.as_str().trim_end_matches('/').to_owned(),
            // Nobody can connect to "every address"; from this machine loopback is one of them.
            None if address.ip().is_unspecified() => format!("http://{}:{}", Ipv4Addr::LOCALHOST, address.port()),
            None => format!("http://{address}"),
        };
        match self.servers.as_slice() {
            [only] => vec![(only.name.as_str(), format!("{base}/mcp"))],
            many => many.iter().map(|server| (server.name.as_str(), format!("{base}/{}/mcp", server.name))).collect(),
        }
    }

    /// A few lines for the person who has just started the proxy: the endpoints, and what to try.
    pub fn greeting(&self, address: SocketAddr) -> String {
        let mut text = String::from("Raincheck is ready. Clients connect to\n");
        let endpoints = self.endpoints(address);
        // Writing into a string cannot fail.
        for (name, url) in &endpoints {
            let _ = writeln!(text, "  {url}   ({name})");
        }
        let demo = self.servers.iter().find(|server| match &server.transport {
            Transport::Stdio { command, .. } => command.get(1).is_some_and(|argument| argument == "demo-server"),
            Transport::Http { .. } | Transport::Sse { .. } => false,
        });
        let (name, tool) = match demo {
            Some(server) => (server.name.as_str(), "slow_report"),
            None => ("", "TOOL"),
        };
        let url = endpoints.iter().find(|(of, _)| *of == name).or(endpoints.first()).map(|(_, url)| url.as_str());
        let url = url.unwrap_or_default();
        let _ = write!(
            text,
            "To see a slow call become a task:\n  {} call {}{url} {tool} '{{}}'",
            program(),
            self.credentials()
        );
        text
    }

    /// What `raincheck call` has to bring, where callers are proved here.
    fn credentials(&self) -> String {
        if self.owner.allow_anonymous || !self.owner.authenticates() {
            return String::new();
        }
        match &self.owner.from {
            OwnerSource::Header { name, .. } => format!("-H '{name}: NAME' "),
            OwnerSource::Authorization => "-H 'Authorization: Bearer ...' ".to_owned(),
        }
    }
}

/// This program as it was called, so that what is shown can be pasted.
fn program() -> String {
    let called = std::env::args().next().unwrap_or_default();
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "/._-".contains(sign);
    if !called.is_empty() && called.chars().all(plain) { called } else { "raincheck".to_owned() }
}
