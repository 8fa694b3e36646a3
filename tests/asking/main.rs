//! Questions of a server in mid-call, around a scripted service: tasks that ask, calls that are retried with answers,
//! the limits of both, and streams of task states.

#[path = "../support/mod.rs"]
mod support;

mod client;
mod listening;
mod passing;
mod races;
mod rounds;
mod tasks;
