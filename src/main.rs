//! The binary: flags, config, run, exit codes.

mod durable_sync;

fn main() {}
