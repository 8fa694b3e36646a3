//! What several test files share.
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate of its own that uses a part of this")]

pub mod calls;
pub mod layer;
