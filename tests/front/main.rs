//! The front against clients that see and send every byte, with a scripted server behind it.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "helpers of tests may panic")]

mod http2;
mod keys;
mod legacy;
mod limits;
mod listen;
mod param_headers;
mod replies;
mod requests;
mod secrets;
mod support;
