//! `raincheck stdio`: one server in front of one host, over stdin and stdout.

use std::os::fd::{AsFd, BorrowedFd};

use clap::{ArgGroup, Args};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::oneshot;

use super::signals::Shutdown;
use super::sources::Sources;
use super::{exit, look, serve, terminal};
use crate::app::{self, Host};
use crate::config::{Config, Environment, ServerConfig};
use crate::jobs::Jobs;
use crate::telemetry;

/// Which server to serve, and how.
#[derive(Debug, Args)]
#[command(
    override_usage = "raincheck stdio [OPTIONS] -- COMMAND [ARGUMENT]...\n       raincheck stdio [OPTIONS] --url URL\n       \
                      raincheck stdio [OPTIONS] --config FILE [--server NAME]"
)]
#[command(group = ArgGroup::new("behind").required(true).args(["config", "url", "command"]))]
pub(super) struct Stdio {
    #[command(flatten)]
    sources: Sources,
    /// Which server of the configuration, where it has several
    #[arg(long, value_name = "NAME", requires = "config")]
    server: Option<String>,
}

impl Stdio {
    pub(super) fn run(self) -> u8 {
        let environment = Environment::of_process().with_flag("listen.stdio", "raincheck stdio", "true".to_owned());
        match self.sources.read(environment) {
            Ok(config) => serve_one(config, self.server.as_deref()),
            Err(faults) => serve::report(&faults),
        }
    }
}

/// Serves the server of that name, or the only one, on stdin and stdout, and gives the exit code.
pub(super) fn serve_one(config: Config, name: Option<&str>) -> u8 {
    let server = match choose(&config, name) {
        Ok(server) => server.clone(),
        Err(why) => {
            terminal::complain(&why);
            return exit::USAGE;
        }
    };
    let logs = match telemetry::start_unread(config.log.format, &config.log.level) {
        Ok(logs) => logs,
        Err(error) => {
            terminal::complain(&terminal::chain(&error));
            return exit::USAGE;
        }
    };
    for note in &config.notes {
        tracing::warn!("{note}");
    }
    let started = tokio::runtime::Builder::new_multi_thread().enable_all().build().and_then(|runtime| {
        let _entered = runtime.enter();
        let shutdown = Shutdown::of_process()?;
        Ok((runtime, shutdown))
    });
    let (runtime, shutdown) = match started {
        Ok(started) => started,
        Err(error) => {
            terminal::complain(&format!("cannot start: {error}"));
            return exit::FAILURE;
        }
    };
    let host = Host { input: tokio::io::stdin(), output: tokio::io::stdout(), gone: hung_up(std::io::stdout()) };
    runtime.block_on(async {
        // A wrong command or address shows here, not only at the first call.
        let looks = Jobs::new();
        let look = look::at_servers(vec![server.clone()], config.limits.clone(), config.door);
        looks.spawn("look at the server", look);
        app::run_stdio(config, server, host, shutdown).await;
    });
    // A read of stdin cannot be stopped, and nobody waits for it.
    runtime.shutdown_background();
    logs.finish();
    exit::OK
}

fn choose<'a>(config: &'a Config, name: Option<&str>) -> Result<&'a ServerConfig, String> {
    let names = || config.servers.iter().map(|server| server.name.as_str()).collect::<Vec<_>>().join(", ");
    match (name, config.servers.as_slice()) {
        (None, [only]) => Ok(only),
        (None, _) => Err(format!("the configuration has several servers; choose one with --server: {}", names())),
        (Some(name), servers) => servers
            .iter()
            .find(|server| server.name == name)
            .ok_or_else(|| format!("the configuration has no server \"{}\"; it has: {}", name.escape_debug(), names())),
    }
}

/// Resolves when nobody holds the other end of `output` any more. A host that was killed shows in nothing else while
/// there is nothing to write.
async fn hung_up(output: impl AsFd + Send + 'static) {
    let (sender, hung_up) = oneshot::channel();
    let watch = move || {
        if wait_for_hang_up(output.as_fd()) {
            let _ = sender.send(());
        }
    };
    let watching = std::thread::Builder::new().name("raincheck-stdout".to_owned()).spawn(watch);
    if watching.is_err() || hung_up.await.is_err() {
        // It cannot be watched: then only a write finds out.
        std::future::pending::<()>().await;
    }
}

/// Whether the other end was closed; false if that cannot be told.
fn wait_for_hang_up(output: BorrowedFd<'_>) -> bool {
    let mut watched = [PollFd::new(output, PollFlags::empty())];
    loop {
        match poll(&mut watched, PollTimeout::NONE) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => {
                let seen = watched.iter().filter_map(PollFd::revents).fold(PollFlags::empty(), |all, one| all | one);
                return seen.intersects(PollFlags::POLLERR | PollFlags::POLLHUP);
            }
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::pipe;

    use super::*;

    #[tokio::test]
    async fn a_closed_reader_is_noticed_without_a_write() {
        let (reader, writer) = pipe().unwrap();
        let mut gone = Box::pin(hung_up(writer));
        assert!(futures_util::poll!(gone.as_mut()).is_pending());
        drop(reader);
        tokio::time::timeout(std::time::Duration::from_secs(30), gone).await.unwrap();
    }
}
