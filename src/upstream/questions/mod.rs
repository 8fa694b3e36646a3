//! What a server asks and says outside of its answers: whose it is, and how an answer finds its way back.
//!
//! A question belongs to the call on whose stream it came. Over stdio, and on the listen stream, it names none: it is
//! then put to the call that most likely asked it, and to another one if that call ends first. The answer carries the
//! server's own id, so the right tool gets it in any case.

mod askers;
mod call;
mod floor;
mod put;
mod refusal;
mod table;
#[cfg(test)]
mod tests;

pub(super) use self::askers::Askers;
pub(super) use self::call::{Fate, Seat, Verdict};
pub(super) use self::floor::{Client, Floor, Origin, Request, kind_of};
