//! `raincheck serve`.

use std::io;
use std::net::SocketAddr;

use clap::{ArgGroup, Args};

use super::look;
use super::signals::Shutdown;
use super::sources::Sources;
use super::{exit, stdio, terminal};
use crate::app::{self, AppError};
use crate::config::{Config, ConfigFaults, Door, Environment};
use crate::front::keep_date;
use crate::jobs::Jobs;
use crate::telemetry::{self, LogFormat};

/// What to serve, and how.
#[derive(Debug, Args)]
#[command(
    override_usage = "raincheck serve --config FILE [OPTIONS]\n       raincheck serve --url URL [OPTIONS]\n       \
                      raincheck serve [OPTIONS] -- COMMAND [ARGUMENT]..."
)]
#[command(group = ArgGroup::new("what").required(true).args(["config", "url", "command"]))]
pub(super) struct Serve {
    #[command(flatten)]
    sources: Sources,
    /// Where clients come in [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
}

impl Serve {
    pub(super) fn run(self) -> u8 {
        let mut environment = Environment::of_process();
        let named = self.named(&environment);
        if let Some(value) = self.listen {
            environment = environment.with_flag("listen.http", "--listen", value);
        }
        let config = match self.sources.read(environment) {
            Ok(config) => config,
            Err(faults) => return report(&faults),
        };
        if config.door == Door::Stdio {
            return stdio::serve_one(config, None);
        }
        if let Err(error) = telemetry::start(config.log.format, &config.log.level) {
            // The level was checked with the configuration, so hardly anything comes here.
            terminal::complain(&terminal::chain(&error));
            return exit::USAGE;
        }
        proxy(config, named).unwrap_or_else(|error| {
            tracing::error!("cannot start: {error}");
            exit::FAILURE
        })
    }

    /// What the address of the listener comes from, for somebody who has to choose another.
    fn named(&self, environment: &Environment) -> &'static str {
        if self.listen.is_some() {
            "give --listen another address"
        } else if environment.variable("RAINCHECK_LISTEN_HTTP").is_some() {
            "change RAINCHECK_LISTEN_HTTP, or give --listen another address"
        } else if self.sources.config.is_some() {
            "change listen.http in the configuration, or give --listen another address"
        } else {
            "give another address, such as --listen 127.0.0.1:8081"
        }
    }
}

/// Runs the proxy until a signal, and gives the exit code.
fn proxy(config: Config, named: &str) -> io::Result<u8> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().on_thread_start(keep_date).build()?;
    let code = runtime.block_on(async {
        let shutdown = Shutdown::of_process()?;
        let shown = config.clone();
        for note in &config.notes {
            tracing::warn!("{note}");
        }
        // A wrong command or address shows here, not only at the first call.
        let looks = Jobs::new();
        looks
            .spawn("look at the servers", look::at_servers(config.servers.clone(), config.limits.clone(), config.door));
        Ok(match app::run(config, shutdown, move |address| greet(&shown, address)).await {
            Ok(()) => exit::OK,
            Err(error) => {
                let mut why = terminal::chain(&error);
                if let AppError::Bind { source, .. } = &error {
                    let is_taken = source.kind() == io::ErrorKind::AddrInUse;
                    let stop = if is_taken { "stop what listens there, or " } else { "" };
                    why = format!("{why}; {stop}{named}");
                }
                if tracing::enabled!(tracing::Level::ERROR) {
                    tracing::error!("{why}");
                } else {
                    // Logs are switched off, but nobody should have to guess from an exit code.
                    terminal::complain(&why);
                }
                error.exit_code()
            }
        })
    });
    // What still runs was given its grace time.
    runtime.shutdown_background();
    code
}

/// Says where clients find the servers, once they can come.
fn greet(config: &Config, address: SocketAddr) {
    for (server, url) in config.endpoints(address) {
        tracing::info!(server, url, "serving");
    }
    if config.log.format == LogFormat::Text {
        terminal::say(&config.greeting(address));
    }
}

pub(super) fn report(faults: &ConfigFaults) -> u8 {
    let count = match faults.0.len() {
        1 => "1 fault".to_owned(),
        many => format!("{many} faults"),
    };
    terminal::complain(&format!("the configuration has {count}"));
    for fault in &faults.0 {
        terminal::say(&format!("  {fault}"));
    }
    exit::USAGE
}
