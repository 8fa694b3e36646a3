//! The whole proxy: the binary, scripted servers behind it, a client that keeps every byte in front.
//!
//! Which field case is shown where: `tests/field-cases.md`.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test ends where it fails")]

mod admin;
mod asking;
mod bytes;
mod client;
mod clients;
mod deadlines;
mod fallbacks;
mod faults;
mod flat;
mod hops;
mod http2;
#[path = "../support/http_server.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod http_server;
mod ids;
mod keys;
mod kill;
mod large;
mod leaving;
mod legacy;
mod legacy_tasks;
mod life;
mod limits;
mod noise;
mod owners;
mod process;
mod reserved;
mod resource;
mod restart;
mod scripted;
#[path = "../support/signs.rs"]
mod signs;
mod start;
mod stop;
mod upstream;

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use serde_json::value::RawValue;

/// Nothing in these tests takes this long, unless it hangs; the machine may be busy.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for what must come.
async fn bounded<T>(future: impl Future<Output = T>) -> T {
    within(PATIENCE, future).await
}

/// Waits for what must come in time.
async fn within<T>(time: Duration, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(time, future).await.unwrap_or_else(|_| panic!("it took longer than {time:?}"))
}

/// Looks until something is so.
async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "it never came: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A member of a JSON object, as it is spelled.
fn member<'a>(object: &'a str, name: &str) -> &'a str {
    let members: HashMap<String, &RawValue> = serde_json::from_str(object).unwrap_or_else(|error| panic!("{error}"));
    members.get(name).unwrap_or_else(|| panic!("no {name}")).get()
}
