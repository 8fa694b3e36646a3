//! The guard of a child process.
