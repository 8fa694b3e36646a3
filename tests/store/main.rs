//! The store: its contract, how it opens, and what it keeps when its process is killed.
#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "../../src/durable_sync.rs"]
mod durable_sync;

mod contract;
mod crash;
mod keys;
mod kill;
mod listing;
mod luggage;
mod opening;
mod outcomes;
mod shelf;
#[path = "../support/signs.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod signs;
mod support;
mod sweeping;
