//! Where clients find the servers, and what to try first.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use url::{Host, Url};

use super::run::{Config, Door, OwnerSource, Transport};

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

    /// Whether this is the address of an endpoint of this very proxy, by any name of this machine.
    pub(super) fn is_own(&self, url: &Url) -> bool {
        let alone = (self.servers.len() == 1).then(|| "/mcp".to_owned());
        let mut paths = alone.into_iter().chain(self.servers.iter().map(|server| format!("/{}/mcp", server.name)));
        let path = url.path().trim_end_matches('/');
        if self.door == Door::Stdio {
            return false;
        }
        if let Some(public) = &self.listen.public_url
            && public.origin() == url.origin()
            && let Some(path) = path.strip_prefix(public.path().trim_end_matches('/'))
        {
            return paths.any(|own| own == path);
        }
        let here = self.listen.http.ip().to_canonical();
        let is_here = |address: IpAddr| {
            let is_local = address.is_loopback() && (here.is_loopback() || here.is_unspecified());
            address == here || is_local
        };
        let is_host = match url.host() {
            Some(Host::Domain(name)) => name == "localhost" && is_here(Ipv4Addr::LOCALHOST.into()),
            Some(Host::Ipv4(address)) => is_here(address.into()),
            Some(Host::Ipv6(address)) => is_here(IpAddr::from(address).to_canonical()),
            None => false,
        };
        // Port 0 is none that anybody can know yet.
        let port = url.port_or_known_default().filter(|port| *port != 0);
        is_host && port == Some(self.listen.http.port()) && paths.any(|own| own == path)
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
