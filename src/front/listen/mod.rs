//! `subscriptions/listen` (2026-07-28, subscriptions): a stream that stays open until the client leaves, the proxy
//! stops, or the server ends it.
//!
//! The service below is asked as for any call. What it says comes in at the server's speed, and goes out at the
//! client's: in between is a [`mailbox`], which keeps only the newest state of each thing.

mod feed;
mod filter;
mod mailbox;

use std::future::Future;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use super::body::Pieces;
use super::refusal::Refusal;
use super::sse::{self, KeepAlive};
use crate::jobs::Jobs;
use crate::protocol::{Reply, RequestId};
use crate::share::Place;

pub(super) use self::feed::Feed;
pub(super) use self::filter::Filter;

/// An open subscription over HTTP.
pub(super) struct Subscription {
    feed: Feed,
    pieces: Pieces,
    keep_alive: KeepAlive,
    /// The place among the open streams.
    _place: Place,
}

/// What every subscription needs.
pub(super) struct Terms {
    /// The place among the open streams.
    pub(super) place: Place,
    /// How long the stream may be silent.
    pub(super) keep_alive: Duration,
    /// Where its job runs; a stop of these ends the subscription gracefully.
    pub(super) jobs: Jobs,
}

impl Subscription {
    /// The subscription of the request `id`, which begins with its acknowledgment. Refused if the service refuses it.
    pub(super) async fn open(
        id: RequestId,
        filter: Filter,
        reply: impl Future<Output = Reply> + Send + 'static,
        terms: Terms,
    ) -> Result<Self, Refusal> {
        let feed = Feed::open(id, filter, reply, terms.jobs).await?;
        let keep_alive = KeepAlive::new(terms.keep_alive);
        Ok(Self { feed, pieces: Pieces::default(), keep_alive, _place: terms.place })
    }

    /// The next bytes; `None` after the last.
    pub(super) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(piece) = self.pieces.pop() {
                self.keep_alive.reset();
                return Poll::Ready(Some(piece));
            }
            match self.feed.poll_next(context) {
                Poll::Ready(Some(message)) => sse::push(&mut self.pieces, message),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Ready(Some(ready!(self.keep_alive.poll(context)))),
            }
        }
    }

    /// Whether all bytes were taken.
    pub(super) fn is_over(&self) -> bool {
        self.feed.is_over() && self.pieces.is_empty()
    }
}
