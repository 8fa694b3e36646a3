//! Durable tasks. To be written.
