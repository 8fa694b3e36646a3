//! `raincheck stdio` as a host runs it: a child process in front of a real server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test ends where it fails")]

mod calls;
mod ends;
mod fallbacks;
mod host;
mod keys;
mod legacy;
mod legacy_tasks;
mod lines;
mod stores;
mod unread;

#[path = "../upstream_stdio/scripted.rs"]
mod scripted;
#[path = "../support/signs.rs"]
mod signs;

use std::time::Duration;

/// No step of a test takes this long.
const PATIENCE: Duration = Duration::from_secs(30);
