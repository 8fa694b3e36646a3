//! Raincheck gives existing synchronous MCP servers Tasks: call now, fetch later.
//!
//! A caller takes a rain check on a slow tool call: it gets a handle now and fetches the result
//! later, over the Tasks extension (`io.modelcontextprotocol/tasks`, SEP-2663) of MCP 2026-07-28.
//!
//! The map, lowest rank first; a module imports only from a lower rank (`tests/architecture.rs`):
//!
//! | rank | module | what is there |
//! |---|---|---|
//! | 0 | [`clock`] | the one clock for what is stored |
//! | 0 | [`jobs`] | spawned jobs that have an owner, and the threads that connections stay with |
//! | 0 | [`shared_map`] | the one concurrent map |
//! | 0 | [`telemetry`] | logs |
//! | 0 | [`visitors`] | open connections, of which the silent make room |
//! | 0 | [`wakes`] | connections that are not woken for nothing |
//! | 1 | [`protocol`] | JSON-RPC, methods, capabilities, headers, SSE: the wire, no I/O |
//! | 1 | [`config`] | the configuration, typed twice: as written, as run |
//! | 2 | [`history`] | how long tools take, learned from their runs |
//! | 2 | [`share`] | what no owner may take alone of what all share |
//! | 2 | [`task`] | id, owner, state, record, expiry: the domain |
//! | 3 | [`store`] | durable tasks in sled |
//! | 3 | [`policy`] | what the config says of one tool |
//! | 4 | [`runner`] | a call raced against its threshold, live runs, settling, deadlines, cancel |
//! | 5 | [`tasks`] | the tower layer |
//! | 5 | [`upstream`] | stdio and HTTP clients of the servers behind |
//! | 5 | [`lists`] | lists from the last good answer while a server is busy or down |
//! | 6 | [`front`] | the HTTP server for the clients in front |
//! | 6 | [`admin`] | the operators' side: health, metrics, an API and a page |
//! | 7 | [`app`] | composition root |
//! | 8 | [`cli`] | operator commands |

// Futures of a call are deep; a later compiler makes an error of what now only looks so.
#![recursion_limit = "256"]

pub mod admin;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod front;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod history;
pub mod jobs;
pub mod lists;
pub mod policy;
pub mod protocol;
pub mod runner;
pub mod share;
pub mod shared_map;
pub mod store;
pub mod task;
pub mod tasks;
pub mod telemetry;
pub mod upstream;
pub mod visitors;
pub mod wakes;
