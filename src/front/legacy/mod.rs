//! Clients of 2025-11-25 and older: they open with `initialize`, have a session, and are asked by requests.
//!
//! [`session`] is the part that knows no transport; over HTTP and over stdio it is the same.

mod http;
mod in_flight;
mod outflow;
mod questions;
mod revision;
mod session;

pub(in crate::front) use http::{EventStream, Legacy, Sender};
pub(in crate::front) use in_flight::SameId;
pub(in crate::front) use outflow::{Outflow, Outgoing};
pub(in crate::front) use questions::QuestionIds;
pub(in crate::front) use revision::Revision;
pub(in crate::front) use session::{Calls, NotOpened, Opened, Seed, Session, Taken, calls_to, open};
