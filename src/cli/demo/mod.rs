//! `raincheck demo-server`: a small MCP server of the old kind, to try Raincheck with.
//!
//! It speaks 2025-11-25 (and older) on stdin and stdout, knows nothing of tasks, and holds every call open until
//! the tool is done. Like the servers that the SDKs make, it answers pings and heeds cancels while tools run.

mod session;
#[cfg(test)]
mod tests;
mod tools;

use tokio::io::{stdin, stdout};

use super::{exit, terminal};

/// Serves stdin and stdout until stdin ends.
pub(super) async fn run() -> u8 {
    match session::serve(stdin(), stdout()).await {
        Ok(()) => exit::OK,
        Err(error) => {
            terminal::complain(&format!("demo-server: {error}"));
            exit::FAILURE
        }
    }
}
