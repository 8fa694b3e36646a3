//! The HTTP upstream against scripted servers: what the field has seen, each with its right outcome.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by a panic")]

mod answers;
mod asks;
mod client;
mod eras;
#[path = "../support/http_server.rs"]
mod http_server;
mod looks;
mod modern;
mod old_tasks;
mod param_headers;
mod refusals;
#[path = "../support/replies.rs"]
mod replies;
mod resuming;
mod revisions;
mod sessions;
mod sse;
mod sse_telling;
mod stopping;
mod streams;
mod telling;
mod telling_ends;
