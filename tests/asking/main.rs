//! Questions of a server in mid-call, around a scripted service: tasks that ask, calls that are retried with answers,
//! the limits of both, and streams of task states.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test ends where it fails")]

#[path = "../support/mod.rs"]
mod support;

mod again;
mod client;
mod listening;
mod passing;
mod races;
mod rounds;
mod shares;
mod states;
mod tasks;
