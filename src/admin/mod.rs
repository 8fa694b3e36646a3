//! The operators' side: health, metrics, an API in JSON and a page, on a listener of its own.
//!
//! | path | what |
//! |---|---|
//! | `GET /healthz` | the process lives |
//! | `GET /readyz` | it takes calls: 200, else 503 and why |
//! | `GET /metrics` | numbers as Prometheus reads them |
//! | `GET /api/tasks?owner=&state=&server=&tool=&limit=&cursor=` | a page of tasks, the newest first; `owner` is a name in the config, or the beginning of a digest |
//! | `GET /api/tasks/ID`, `POST /api/tasks/ID/cancel` | one task, or one held call |
//! | `GET /api/held?owner=&server=&tool=` | held calls that are no tasks, the oldest first |
//! | `GET /api/tools` | how long tools take |
//! | `GET /` | a page that lists tasks and can cancel them |
//!
//! Arguments and results are not to be had here, whoever asks.

mod answer;
mod door;
mod held;
mod listener;
mod metrics;
mod owners;
mod routes;
mod tasks;

use std::net::SocketAddr;

use tokio::net::TcpListener;

use self::door::Door;
use self::owners::OwnerNames;
use crate::config::{AdminConfig, OwnerRules};
use crate::jobs::Jobs;
use crate::runner::Runner;
use crate::upstream::Upstream;

/// What operators can see and do.
#[derive(Debug)]
pub struct Admin {
    runner: Runner,
    door: Door,
    servers: Vec<Upstream>,
    owners: OwnerNames,
}

impl Admin {
    /// For operators who are let in as `config` says; `local` is the address of the listener.
    pub fn new(runner: Runner, config: &AdminConfig, local: SocketAddr) -> Self {
        Self { runner, door: Door::new(config, local), servers: Vec::new(), owners: OwnerNames::default() }
    }

    /// With the servers behind, whose sessions are counted.
    #[must_use]
    pub fn with_servers(self, servers: Vec<Upstream>) -> Self {
        Self { servers, ..self }
    }

    /// With the owners whom the configuration names, so that their tasks can be asked for by name.
    #[must_use]
    pub fn with_owners(self, rules: &OwnerRules) -> Self {
        Self { owners: OwnerNames::of(rules), ..self }
    }

    /// Serves operators until `jobs` are told to stop.
    pub async fn serve(self, listener: TcpListener, jobs: Jobs) {
        listener::serve(self, listener, jobs).await;
    }
}
