//! The jobs that move messages into streams. A call of a legacy client goes on when its client leaves (2025-11-25,
//! sending messages), so it is driven by a job, not by the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use super::channel::Channel;
use super::session::{HttpSession, Use};
use super::sessions::Sessions;
use crate::front::legacy::{Outflow, Outgoing};
use crate::jobs::Jobs;
use crate::share::Place;

/// What a client gets of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Everything, on the stream of the call.
    Stream,
    /// The same, on one that it can come back to.
    Resumable,
    /// The answer. Questions go to the session's own stream, notifications nowhere.
    Answer,
}

/// The stream of one POST, which ends with this, whatever happens.
pub(super) struct PostStream {
    channel: Arc<Channel>,
    usage: Use,
    /// Requests that still wait for an answer.
    unanswered: AtomicUsize,
}

/// A session that can be found, which it cannot without this.
struct Findable {
    session: Arc<HttpSession>,
    sessions: Sessions,
}

/// Drives calls until they end or the session is closed. The stream ends with the last answer: a call that was cancelled
/// has none.
pub(super) async fn calls(outflows: Vec<Outflow>, stream: PostStream, reach: Reach) {
    let driving = join_all(outflows.into_iter().map(|outflow| drive(outflow, &stream, reach)));
    tokio::select! {
        biased;
        () = stream.usage.session().closing.cancelled() => {}
        _ = driving => {}
    }
}

async fn drive(mut outflow: Outflow, stream: &PostStream, reach: Reach) {
    let session = stream.usage.session();
    while let Some(outgoing) = outflow.next().await {
        match (outgoing, reach) {
            (Outgoing::Message(text), Reach::Answer) => session.own.push(Outgoing::Message(text)),
            (Outgoing::Notice(_), Reach::Answer) | (Outgoing::Pause, Reach::Answer | Reach::Stream) => {}
            (Outgoing::Pause, Reach::Resumable) => stream.channel.pause(),
            (answer @ (Outgoing::Answer(_) | Outgoing::Challenge(..)), _) => {
                stream.channel.push(answer);
                stream.answered();
            }
            (Outgoing::Cancelled, _) => stream.answered(),
            (outgoing, _) => stream.channel.push(outgoing),
        }
        stream.channel.room().await;
    }
}

/// Drives the session itself: until the session upstream is lost, the client ends it, or nobody has used it for `idle`.
pub(super) async fn session(
    mut own: Outflow,
    session: Arc<HttpSession>,
    sessions: Sessions,
    jobs: Jobs,
    idle: Duration,
    place: Place,
) {
    let findable = Findable { session: Arc::clone(&session), sessions };
    let moving = async {
        while let Some(outgoing) = own.next().await {
            session.own.push(outgoing);
            session.own.room().await;
        }
    };
    let why = tokio::select! {
        biased;
        () = session.closing.cancelled() => "it was closed",
        () = moving => "the session with the server was lost",
        () = unused_for(&session, idle) => "nobody used it",
        () = stopping(&session, &jobs) => "the proxy stops",
    };
    tracing::debug!(server = session.server, why, "a session of a legacy client ended");
    drop((findable, own, place));
}

/// Resolves when nobody has used the session for that long.
async fn unused_for(session: &HttpSession, idle: Duration) {
    loop {
        session.unused().await;
        let unused = session.idle().unwrap_or_default();
        if unused >= idle {
            return;
        }
        tokio::time::sleep(idle.saturating_sub(unused)).await;
    }
}

/// Resolves when the proxy stops and no call runs any more. GET streams end at once.
async fn stopping(session: &HttpSession, jobs: &Jobs) {
    jobs.stopping().await;
    session.own.end();
    session.unused().await;
}

impl PostStream {
    /// The stream `channel`, for the answers to so many requests.
    pub(super) fn new(channel: Arc<Channel>, usage: Use, requests: usize) -> Self {
        Self { channel, usage, unanswered: AtomicUsize::new(requests) }
    }

    fn answered(&self) {
        if self.unanswered.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.usage.session().end_stream(&self.channel);
        }
    }
}

impl Drop for PostStream {
    fn drop(&mut self) {
        self.usage.session().end_stream(&self.channel);
    }
}

impl Drop for Findable {
    fn drop(&mut self) {
        self.sessions.remove(&self.session);
        self.session.own.end();
    }
}
