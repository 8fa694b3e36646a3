//! A small client of MCP 2026-07-28 over HTTP that declares the Tasks extension on every request.

mod answer;
mod endpoint;
mod error;
mod follow;
mod handles;
mod line;
mod mirror;
mod person;
mod show;
#[cfg(test)]
mod tests;
mod view;
mod wire;

pub(super) use answer::{check_answer, how_to_answer};
pub(super) use endpoint::{Answered, Ask, Endpoint, add_header, explain, read_url};
pub(super) use error::ClientError;
pub(super) use follow::{AtInterrupt, End, Follow};
pub(super) use handles::{Handle, Handles, LAST};
pub(super) use person::Person;
pub(super) use show::{Display, Voice, failure, result};
pub(super) use view::{Asked, Status, TaskView, questions};
pub(super) use wire::Wire;
