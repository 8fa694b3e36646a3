//! Clients of the servers behind: a call goes out in the server's own words, its answer comes back.

mod attempts;
mod beside;
mod drive;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod guests;
mod handshake;
mod http;
mod incoming;
mod later;
mod listening;
mod log_level;
mod look;
mod naming;
mod outcome;
mod pending;
mod questions;
mod sessions;
mod stdio;
mod subscription;
mod tie;
mod wire;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tower_service::Service;

use crate::config::{Limits, ServerConfig, Transport};
use crate::jobs::Jobs;
use crate::protocol::{Call, Caller, Failure, Json, Method, Outcome, Reply, TaskSupport};

use self::guests::Guests;
use self::handshake::LastSeen;
use self::http::HttpUpstream;
use self::listening::Hub;
use self::questions::Askers;
use self::stdio::StdioUpstream;

pub use self::look::{Callers, Look, look};
pub use self::sessions::SessionFigures;
pub use self::stdio::{GuardProgram, guard};
pub(crate) use self::stdio::{lines, scan};

/// One server behind the proxy. Clones share its sessions.
#[derive(Clone, Debug)]
pub struct Upstream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    setup: Setup,
    link: Link,
}

#[derive(Debug)]
enum Link {
    Stdio(StdioUpstream),
    Http(HttpUpstream),
}

/// What every way to reach a server is made of.
#[derive(Clone, Debug)]
struct Setup {
    config: Arc<ServerConfig>,
    limits: Arc<Limits>,
    /// The jobs of this upstream alone. They end when it is closed, not when the proxy begins to stop:
    /// running calls have a time of grace.
    jobs: Jobs,
    /// To be set after every handshake.
    last_seen: LastSeen,
    shared: Shared,
}

/// What all sessions with one server share. Clones are the same.
#[derive(Clone, Debug, Default)]
struct Shared {
    /// The tools that are known to ask.
    askers: Askers,
    /// Those who listen.
    hub: Hub,
    /// The legacy clients in front of a modern server.
    guests: Guests,
}

/// How long `server/discover` waits for a server that was never seen, while that is starting. Clients keep what it says
/// for as long as they run, so it is worth some time: `npx` takes from 2 s to 10 s, and no client that we know gives
/// up before 10 s.
const DISCOVER_PATIENCE: Duration = Duration::from_secs(8);

impl Upstream {
    /// A client of the server that `config` describes. Nothing is started or connected before the first call.
    ///
    /// To be [closed](Upstream::close) when the proxy stops.
    pub fn new(config: Arc<ServerConfig>, limits: &Limits, jobs: &Jobs) -> Self {
        Self::with_guard(config, limits, jobs, GuardProgram::current())
    }

    /// The same, with another program in the place of this one to guard child processes, for tests and for
    /// users of the library, whose own program has no `guard` command.
    pub fn with_guard(config: Arc<ServerConfig>, limits: &Limits, jobs: &Jobs, guard: GuardProgram) -> Self {
        let limits = Arc::new(limits.clone());
        let setup =
            Setup { config, limits, jobs: jobs.child(), last_seen: LastSeen::default(), shared: Shared::default() };
        let link = match &setup.config.transport {
            Transport::Stdio { .. } => Link::Stdio(StdioUpstream::new(&setup, guard)),
            Transport::Http { .. } | Transport::Sse { .. } => Link::Http(HttpUpstream::new(&setup)),
        };
        Self(Arc::new(Inner { setup, link }))
    }

    /// The server's name in the config.
    pub fn name(&self) -> &str {
        &self.0.setup.config.name
    }

    /// How many sessions or processes there are and were.
    pub fn sessions(&self) -> SessionFigures {
        match &self.0.link {
            Link::Stdio(stdio) => stdio.figures(),
            Link::Http(http) => http.figures(),
        }
    }

    /// What the server says of who may use it (RFC 9728), as it says it; `None` if it does not, or if its callers do not
    /// log in to it themselves.
    pub async fn resource_metadata(&self) -> Option<Json> {
        match &self.0.link {
            Link::Stdio(_) => None,
            Link::Http(http) => http.resource_metadata().await,
        }
    }

    /// Ends all sessions and child processes in good order, within a few seconds. Calls that still run end
    /// as outcome unknown, new ones are refused.
    pub async fn close(&self) {
        match &self.0.link {
            Link::Stdio(stdio) => stdio.close().await,
            Link::Http(http) => http.close().await,
        }
    }

    fn send(&self, mut call: Call) -> Reply {
        // From here on it says what is wanted of the server on this request, which is decided on the way to it.
        call.caller.tasks = TaskSupport::Undeclared;
        if call.method == Method::Discover {
            return self.discover(call.caller);
        }
        match &self.0.link {
            // A child ends with the process that started it.
            Link::Stdio(_) if matches!(call.method, Method::Resume(_)) => {
                let why = "Raincheck was restarted during the run, and the server with it";
                Reply::ready(Outcome::Failed(Failure::outcome_unknown(why)))
            }
            Link::Stdio(stdio) => stdio.call(call),
            Link::Http(http) => http.call(call),
        }
    }

    /// Answers `server/discover` from the last handshake, so that a client can connect while the server is
    /// down. A first handshake is waited for until it fails, for a while.
    fn discover(&self, caller: Caller) -> Reply {
        if let Some(known) = self.0.setup.last_seen.get() {
            return Reply::ready(Outcome::Result(known.discover_result()));
        }
        let (sender, reply) = Reply::channel();
        let inner = Arc::clone(&self.0);
        self.0.setup.jobs.spawn("discover", async move {
            // Giving up on waiting leaves the connect going on in its own job.
            tokio::select! {
                _ = tokio::time::timeout(DISCOVER_PATIENCE, inner.prepare(&caller)) => {}
                () = sender.cancelled() => return,
            }
            let result =
                inner.setup.last_seen.get().map_or_else(handshake::unknown_server, |info| info.discover_result());
            sender.done(Outcome::Result(result));
        });
        reply
    }
}

impl Inner {
    /// Connects for `caller`, if that has not been done.
    async fn prepare(&self, caller: &Caller) {
        match &self.link {
            Link::Stdio(stdio) => stdio.prepare(caller).await,
            Link::Http(http) => http.prepare(caller).await,
        }
    }
}

impl Service<Call> for Upstream {
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        ready(Ok(self.send(call)))
    }
}
