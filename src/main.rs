//! The binary: flags, config, run, exit codes.

fn main() {}
