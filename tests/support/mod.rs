//! What several test files share.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "each test file is a crate of its own that uses a part of this, and is to stop at what it did not expect"
)]

pub mod calls;
pub mod layer;
