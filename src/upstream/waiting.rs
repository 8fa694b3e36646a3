//! Says that a call has to wait before its server can have it.

use std::future::{Future, poll_fn};
use std::pin::Pin;

use crate::config::{ServerConfig, Transport};
use crate::protocol::{Event, ReplySender, WaitsFor};

/// Waits for `ready`. If that is not there at once, whoever reads the reply is told what the call waits for.
pub(super) fn telling<'a, F: Future>(
    sender: &'a ReplySender,
    server: &'a ServerConfig,
    mut ready: Pin<&'a mut F>,
) -> impl Future<Output = F::Output> + use<'a, F> {
    let mut is_told = false;
    poll_fn(move |context| {
        let polled = ready.as_mut().poll(context);
        if polled.is_pending() && !std::mem::replace(&mut is_told, true) {
            sender.event(Event::Waits(waits_for(server)));
        }
        polled
    })
}

fn waits_for(server: &ServerConfig) -> WaitsFor {
    match &server.transport {
        _ if server.serial => WaitsFor::Turn,
        Transport::Stdio { .. } => WaitsFor::Start,
        Transport::Http { .. } | Transport::Sse { .. } => WaitsFor::Connection,
    }
}
