//! What `serve` and `stdio` share: where the configuration comes from.

use std::path::PathBuf;

use clap::Args;

use crate::config::{self, Config, ConfigFaults, Environment};

/// Which server to serve, and the settings that have flags.
#[derive(Debug, Args)]
pub(super) struct Sources {
    /// A configuration; config.example.toml explains every key
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The one server behind is at this URL (Streamable HTTP, or HTTP+SSE of 2024-11-05)
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The directory that keeps the tasks [default: raincheck.data; stdio: one for this server in the user's data directory]
    #[arg(long, value_name = "DIRECTORY")]
    store: Option<String>,
    /// How long a call may take before it becomes a task [default: 10s]
    #[arg(long, value_name = "DURATION")]
    after: Option<String>,
    /// The one server behind is this program, spoken to over its stdin and stdout
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Sources {
    /// The configuration that these flags and `environment` make.
    pub(super) fn read(self, mut environment: Environment) -> Result<Config, ConfigFaults> {
        for (path, name, value) in [("store.path", "--store", self.store), ("defaults.after", "--after", self.after)] {
            if let Some(value) = value {
                environment = environment.with_flag(path, name, value);
            }
        }
        match (self.config, self.url) {
            (Some(path), _) => config::load(&path, &environment),
            (None, Some(url)) => Config::for_url(&url, &environment),
            (None, None) => Config::for_command(&self.command, &environment),
        }
    }
}
