//! The front against clients that see and send every byte, with a scripted server behind it.

mod replies;
mod requests;
mod support;
