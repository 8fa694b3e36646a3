//! The configuration as it runs: complete and checked.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use url::Url;

use super::companions::CompanionNames;
use super::fault::Fault;
use super::owner_limits::OwnerRules;
use super::policy::{Rate, ToolPolicy, ToolRule};

pub use crate::telemetry::LogFormat;

/// Everything that a running proxy needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// How clients come in.
    pub door: Door,
    /// The client side over HTTP.
    pub listen: Listen,
    /// The operators' side, if there is one.
    pub admin: Option<AdminConfig>,
    /// Where tasks are kept.
    pub store: StoreConfig,
    /// Who chose where.
    pub store_origin: StoreOrigin,
    /// Who callers are.
    pub owner: OwnerConfig,
    /// What each of them may use.
    pub owner_rules: OwnerRules,
    /// Bounds on everything that grows.
    pub limits: Limits,
    /// How logs look.
    pub log: LogConfig,
    /// How the proxy stops.
    pub shutdown: Shutdown,
    /// The servers behind, at least one, names unique.
    pub servers: Vec<ServerConfig>,
    /// What applies to every tool that no rule names.
    pub defaults: ToolPolicy,
    /// The rules, in the order in which they were written.
    pub tools: Vec<ToolRule>,
    /// What is odd about the text or the variables without being wrong.
    pub notes: Vec<Fault>,
}

/// How clients come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Over HTTP, as `[listen]` says.
    Http,
    /// There is one, on stdin and stdout.
    Stdio,
}

/// Who chose the directory of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOrigin {
    /// The configuration, a flag or a variable.
    Chosen,
    /// Nobody.
    Default,
}

/// The client side.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Where the HTTP listener binds.
    pub http: SocketAddr,
    /// What clients type, where a balancer stands in front.
    pub public_url: Option<Url>,
    /// `Host` values that are allowed beside the loopback names and the public URL's, in lower case, without a port.
    pub allowed_hosts: Vec<String>,
    /// `Origin` values that are allowed beside those of the public URL and, on a loopback address, of this machine.
    pub allowed_origins: Vec<String>,
    /// How often a comment is sent on an open stream.
    pub keep_alive: Duration,
    /// How long the session of a legacy client is kept while it has neither an open stream nor a running call.
    pub session_idle: Duration,
}

/// The operators' side.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// Where the listener for operators binds.
    pub http: SocketAddr,
    /// What operators have to send; `None` on loopback addresses only.
    pub token: Option<TokenProof>,
}

/// Where tasks are kept.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The directory.
    pub path: PathBuf,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// How many bytes sled may use for its cache.
    pub cache_bytes: u64,
    /// New tasks are refused when less than this is free on the disk; `None` for a tenth of the disk, but no
    /// less than 256 MiB and no more than 4 GiB.
    pub min_free_bytes: Option<u64>,
    /// How many records the store may hold.
    pub max_tasks: u64,
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A power cut.
    Power,
    /// The end of the process by any signal, but not a power cut.
    Process,
}

/// Who callers are.
#[derive(Clone, Debug)]
pub struct OwnerConfig {
    /// What proves it.
    pub from: OwnerSource,
    /// Bearer tokens that stand for a name. Secret.
    pub tokens: Vec<NamedToken>,
    /// The issuer whose signed tokens prove who a caller is; `None` if no such tokens are taken.
    pub jwt: Option<JwtConfig>,
    /// Whether callers without credentials are let in on a listener that is not loopback.
    pub allow_anonymous: bool,
}

/// What proves who a caller is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerSource {
    /// The `Authorization` header.
    Authorization,
    /// A header that a gateway sets.
    Header {
        /// Its name.
        name: HeaderName,
        /// The gateway's addresses; from any other the header is refused.
        trusted: Vec<Network>,
    },
}

/// A block of addresses, such as `10.0.0.0/8`, or a single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Any address of the block.
    pub address: IpAddr,
    /// How many leading bits count.
    pub prefix: u8,
}

/// A bearer token that stands for a name.
#[derive(Clone)]
pub struct NamedToken {
    /// The name.
    pub name: String,
    /// What proves it. Secret.
    pub token: TokenProof,
}

/// What a bearer token is compared with.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenProof {
    /// The token itself.
    Plain(String),
    /// Its SHA-256: the config then does not hold what opens the door.
    Sha256([u8; 32]),
}

/// Tokens that an issuer has signed (RFC 7519).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtConfig {
    /// The exact `iss`.
    pub issuer: String,
    /// `aud` must hold one of these; never empty.
    pub audience: Vec<String>,
    /// Where the issuer's keys are.
    pub keys: KeySource,
    /// How far the clocks may differ.
    pub skew: Duration,
}

/// Where a key set (RFC 7517) comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// It is fetched.
    Url(Url),
    /// It is read.
    File(PathBuf),
}

/// Bounds on everything that grows. Refusals name the setting.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body: usize,
    /// Bytes of a line or an event that a server sends.
    pub message: usize,
    /// Bytes of a line that a client over stdio is sent.
    pub line: usize,
    /// Levels of arrays and objects in any message.
    pub depth: usize,
    /// Runs at the same time, all together; more calls wait. Tasks methods do not count.
    pub calls: usize,
    /// Open connections of clients.
    pub connections: usize,
    /// Open `subscriptions/listen` streams, and GET streams of legacy clients.
    pub streams: usize,
    /// Sessions of legacy clients.
    pub sessions: usize,
    /// Calls that wait for a slot, all together; more are refused.
    pub queue: usize,
    /// How often calls of tools may be started, all together; more are refused.
    pub rate: Option<Rate>,
    /// How long a client may take to send a request's head and body.
    pub read_timeout: Duration,
}

/// What is logged, and how it looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// How a line looks.
    pub format: LogFormat,
    /// What is logged, as `RUST_LOG` spells it: `info`, or `warn,raincheck=debug`. `RUST_LOG` comes first if set.
    pub level: String,
}

/// How the proxy stops.
#[derive(Clone, Copy, Debug)]
pub struct Shutdown {
    /// How long running calls may go on.
    pub grace: Duration,
}

/// One server behind the proxy.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its name: mounted at `/NAME/mcp`.
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
    /// Whether principals share its sessions or processes.
    pub share: bool,
    /// How many sessions or processes a principal gets.
    pub sessions: SessionCount,
    /// Whether a session takes one call at a time.
    pub serial: bool,
    /// What it is told that its clients can be asked, beside what they declare.
    pub offer: Vec<Offer>,
    /// Whether a cancel is forwarded to it.
    pub cancel: ForwardCancel,
    /// How long slot and session stay taken when a cancel is not answered.
    pub cancel_grace: Duration,
    /// How long it may take to start, connect and shake hands.
    pub connect_timeout: Duration,
    /// Sessions or processes at the same time.
    pub max_sessions: usize,
    /// How long an unused session or process is kept.
    pub session_idle: Duration,
    /// Which revisions are tried.
    pub era: UpstreamEra,
    /// Who is shown what it said on stderr when it does not start.
    pub stderr: StderrFor,
    /// What the tools are called that are listed beside its own (`fallback = "handle"`).
    pub companion_tools: CompanionNames,
}

/// Who is shown the line that says most of what a server wrote to stderr before its start failed. It may hold secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StderrFor {
    /// The log, and the one user of stdio or of a loopback listener without owners.
    Local,
    /// The log alone.
    Log,
}

/// How a server is reached.
#[derive(Clone)]
pub enum Transport {
    /// As a child process over stdio.
    Stdio {
        /// The program and its arguments; never empty.
        command: Vec<String>,
        /// Variables that are set for it beside our own. May be secret.
        env: BTreeMap<String, String>,
        /// Where it runs; `None` for our own directory.
        cwd: Option<PathBuf>,
        /// Our own variables that it does not get: those that hold secrets of this configuration.
        hide: Vec<String>,
    },
    /// Over Streamable HTTP.
    Http {
        /// The endpoint.
        url: Url,
        /// Headers set on every request. May be secret.
        headers: HeaderMap,
        /// Headers of the caller that are passed on.
        forward: Vec<HeaderName>,
    },
    /// Reached over HTTP+SSE, the transport of 2024-11-05.
    Sse {
        /// The address of its event stream.
        url: Url,
        /// Set on every request to it. Values may be secret.
        headers: HeaderMap,
        /// Headers of the caller that are passed on.
        forward: Vec<HeaderName>,
    },
}

/// How many sessions or processes a principal gets. A legacy client's session has always exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCount {
    /// One, and another when that is busy and the client can be asked: so it is plain whose a question is.
    Auto,
    /// One.
    One,
    /// One for each call that runs.
    Pool,
}

/// A kind of question that a server may be told it can ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// `elicitation/create`, by form.
    Elicitation,
    /// `sampling/createMessage`.
    Sampling,
    /// `roots/list`.
    Roots,
}

/// Whether a cancel is forwarded to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardCancel {
    /// As the server's era wants it.
    Forward,
    /// Never (some servers crash on it); slot and session are free after `cancel_grace`.
    Never,
    /// Forwarded, but the server is known to run on: slot and session stay taken until the end of the run.
    Ignored,
}

/// Which revisions are tried with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamEra {
    /// `initialize` at once; 2026-07-28 only if the server refuses that.
    Legacy,
    /// 2026-07-28 without a handshake.
    Modern,
    /// `server/discover` first, `initialize` if that is not understood.
    Auto,
}

impl ServerConfig {
    /// A server of which nothing is set but how it is reached.
    pub fn new(name: impl Into<String>, transport: Transport) -> Self {
        Self {
            name: name.into(),
            transport,
            share: false,
            sessions: SessionCount::Auto,
            serial: false,
            offer: Vec::new(),
            cancel: ForwardCancel::Forward,
            cancel_grace: Duration::from_secs(30),
            connect_timeout: Duration::from_mins(1),
            max_sessions: 64,
            session_idle: Duration::from_mins(10),
            era: UpstreamEra::Legacy,
            stderr: StderrFor::Local,
            companion_tools: CompanionNames::default(),
        }
    }
}

impl Network {
    /// Whether `address` is in the block. An IPv4 address in IPv6 form counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(block), IpAddr::V4(address)) => {
                let shift = 32_u32.saturating_sub(self.prefix.into());
                let bits = |ip: std::net::Ipv4Addr| ip.to_bits().checked_shr(shift).unwrap_or(0);
                bits(block) == bits(address)
            }
            (IpAddr::V6(block), IpAddr::V6(address)) => {
                let shift = 128_u32.saturating_sub(self.prefix.into());
                let bits = |ip: std::net::Ipv6Addr| ip.to_bits().checked_shr(shift).unwrap_or(0);
                bits(block) == bits(address)
            }
            _ => false,
        }
    }
}

/// Hides the token.
/// Never shows what it holds.
impl fmt::Debug for TokenProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain(..)",
            Self::Sha256(_) => "Sha256(..)",
        })
    }
}

impl fmt::Debug for NamedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedToken").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Hides variables and header values.
impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, env, cwd, hide } => f
                .debug_struct("Stdio")
                .field("program", &command.first())
                .field("env", &env.keys())
                .field("cwd", cwd)
                .field("hide", hide)
                .finish_non_exhaustive(),
            Self::Http { url, headers, forward } | Self::Sse { url, headers, forward } => f
                .debug_struct(if matches!(self, Self::Sse { .. }) { "Sse" } else { "Http" })
                .field("host", &url.host_str())
                .field("headers", &headers.keys())
                .field("forward", forward)
                .finish_non_exhaustive(),
        }
    }
}

impl Limits {
    /// Calls that clients may be held for at the same time: those that run and those that wait.
    pub const fn held(&self) -> usize {
        self.calls.saturating_add(self.queue)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 8 << 20,
            message: 128 << 20,
            line: 10_000_000,
            depth: 128,
            calls: 1024,
            connections: 4096,
            streams: 1024,
            sessions: 1024,
            queue: 1024,
            rate: None,
            read_timeout: Duration::from_secs(30),
        }
    }
}
