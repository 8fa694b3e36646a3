//! `subscriptions/listen` of modern clients in front of a legacy server: what it says outside of calls reaches those
//! who listen (2026-07-28, subscriptions).

mod filter;
mod hub;
mod listen;
mod subscriptions;

pub(super) use self::hub::Hub;
pub(super) use self::listen::listen;
pub(super) use self::subscriptions::Subscriptions;
