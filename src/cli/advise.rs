//! `raincheck advise`: thresholds for each tool, from how long it really took.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgGroup, Args};
use http::Method;

use super::operator::{Complaint, Operator, Secret};
use super::{advice, exit, serve, terminal};
use crate::clock::SystemClock;
use crate::config::{self, Environment, StoreConfig};
use crate::history::{History, Measured};
use crate::jobs::Jobs;
use crate::store::{Shelf, Store};

/// Where the times are measured.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("where").required(true).args(["config", "store", "admin"]))]
pub(super) struct Advise {
    /// A configuration: its admin listener is asked if it has one that answers, else its store is read
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The store of a proxy that does not run
    #[arg(long, value_name = "DIRECTORY")]
    store: Option<PathBuf>,
    /// The admin listener of a proxy that runs
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// The variable that holds the token of [admin]
    #[arg(long, value_name = "NAME")]
    token_env: Option<String>,
}

/// The exit code for a folder that is no store, as of the store itself.
const NO_STORE: u8 = 73;

/// The configuration of a store, whichever it is.
const ANY: &str = "[[server]]\nname = \"any\"\nurl = \"http://127.0.0.1:1/mcp\"\n";

impl Advise {
    pub(super) async fn run(self) -> u8 {
        let found = match (&self.config, &self.store, &self.admin) {
            (_, _, Some(url)) => self.ask(url.clone(), None).await,
            (_, Some(path), _) => match config::parse(ANY, &Environment::of_process()) {
                Ok(config) => read(&StoreConfig { path: path.clone(), ..config.store }).await,
                Err(faults) => return serve::report(&faults),
            },
            (Some(path), ..) => match config::load_for_operators(path, &Environment::of_process()) {
                Ok(config) => {
                    let asked = match &config.admin {
                        Some(admin) => Some(self.ask(format!("http://{}", admin.http), Secret::of(admin)).await),
                        None => None,
                    };
                    match asked {
                        Some(Ok(tools)) => Ok(tools),
                        Some(Err(why)) => read(&config.store)
                            .await
                            .map_err(|error| Complaint { text: format!("{}; {}", why.text, error.text), ..error }),
                        None => read(&config.store).await,
                    }
                }
                Err(faults) => return serve::report(&faults),
            },
            (None, None, None) => return exit::USAGE,
        };
        match found.and_then(|tools| terminal::print(&advice::text(&tools)).map_err(|error| error.to_string().into())) {
            Ok(()) => exit::OK,
            Err(why) => why.say(),
        }
    }

    async fn ask(&self, url: String, token: Option<Secret>) -> Result<Vec<Measured>, Complaint> {
        let operator = Operator { url, token_env: self.token_env.clone(), token };
        let mut answer = operator.ask(Method::GET, "/api/tools").await?;
        let tools = answer.get_mut("tools").map(serde_json::Value::take).unwrap_or_default();
        let read = serde_json::from_value(tools);
        read.map_err(|error| format!("that is no answer of an admin listener: {error}").into())
    }
}

/// Reads a store that nobody has open.
async fn read(config: &StoreConfig) -> Result<Vec<Measured>, Complaint> {
    // Nothing is made where nothing is.
    if !Path::new(&config.path).join("raincheck.store").is_file() {
        let text = format!("there is no store in {}", config.path.display());
        return Err(Complaint { text, code: NO_STORE });
    }
    let jobs = Jobs::new();
    let opened = Store::open(config, Arc::new(SystemClock), &jobs).map_err(|error| Complaint {
        text: format!("{error}; a proxy that runs is asked with --admin, if it has [admin] (one over stdio has none: ask when it has ended)"),
        code: error.exit_code(),
    })?;
    jobs.stop();
    let kept = opened.store.shelf(Shelf::History).map_err(|error| error.to_string());
    opened.store.close().await;
    Ok(History::load(kept?).measured())
}
