//! The session of a legacy client on this connection: opened by its `initialize`, opened again when the server is
//! lost.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::outbox::Outbox;
use crate::front::legacy::{self, Calls, Opened, Outflow, Outgoing, QuestionIds, SameId, Seed, Session};
use crate::jobs::Jobs;
use crate::protocol::{Credentials, Params, Principal, RequestId, Rope};
use crate::share::Places;

/// Opens sessions, one after the other.
pub(super) struct Sessions {
    calls: Calls,
    server: String,
    places: Places,
    outbox: Outbox,
    /// All sessions are on one connection.
    question_ids: QuestionIds,
    jobs: Jobs,
}

/// The session of the client.
#[derive(Debug, Default)]
pub(super) enum Legacy {
    /// It has sent no `initialize`, or that failed.
    #[default]
    None,
    /// The server is being started or asked.
    Opening(oneshot::Receiver<Live>),
    /// It is there.
    Live(Live),
}

/// The session that a message is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found<'a> {
    /// This one.
    Live(&'a Session),
    /// There is none.
    None,
    /// It was lost, and another could not be opened, which the request was told.
    Refused,
}

/// An open session.
#[derive(Debug)]
pub(super) struct Live {
    session: Session,
    /// What the client said in `initialize`, to open another.
    params: Params,
    /// Cancelled when the session upstream is lost.
    lost: CancellationToken,
    /// Cancelled when the session is not wanted any more.
    close: CancellationToken,
}

/// What becomes of the answer to `initialize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The client has asked: it gets it.
    Asked,
    /// The client has a session that was lost, and asks something else: it gets no more than an error.
    Again,
}

/// Numbers of sessions.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Sessions {
    pub(super) fn new(calls: Calls, server: String, places: Places, outbox: Outbox, jobs: Jobs) -> Self {
        Self { calls, server, places, outbox, question_ids: QuestionIds::default(), jobs }
    }

    /// Ends all sessions.
    pub(super) async fn close(&self) {
        self.jobs.stop();
        self.jobs.idle().await;
    }

    /// Opens a session for an `initialize`. `until_open` is dropped when that is done.
    pub(super) fn initialize<T: Send + 'static>(&self, id: RequestId, params: Params, until_open: T) -> Legacy {
        self.open(id, params, Purpose::Asked, until_open)
    }

    fn open<T: Send + 'static>(&self, id: RequestId, params: Params, purpose: Purpose, until_open: T) -> Legacy {
        let seed = Seed {
            calls: self.calls.clone(),
            server: self.server.clone(),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            principal: Principal::Local,
            same_id: SameId::Refused,
            question_ids: self.question_ids.clone(),
            places: self.places.clone(),
        };
        let (opened, opening) = oneshot::channel();
        let (outbox, jobs) = (self.outbox.clone(), self.jobs.clone());
        self.jobs.spawn("legacy session", async move {
            let live = async {
                let found = legacy::open(seed, &id, params.clone(), Credentials::default()).await;
                let Opened { session, own, answer } = match found {
                    Ok(found) => found,
                    Err(error) => return outbox.tell(error.answer).await,
                };
                if purpose == Purpose::Asked {
                    outbox.tell(answer).await;
                }
                let (lost, close) = (CancellationToken::new(), CancellationToken::new());
                let is_over = lost.clone().drop_guard();
                let live = Live { session, params, lost, close: close.clone() };
                if opened.send(live).is_err() {
                    return;
                }
                drop(until_open);
                tokio::select! {
                    _ = pump(own, &outbox) => tracing::info!("the session with the server is lost"),
                    () = close.cancelled() => {}
                }
                drop(is_over);
            };
            tokio::select! {
                () = live => {}
                () = jobs.stopping() => {}
            }
        });
        Legacy::Opening(opening)
    }

    /// The session, once it is open. One that was lost is opened again for the request `id`.
    pub(super) async fn find<'a>(&self, legacy: &'a mut Legacy, id: Option<&RequestId>) -> Found<'a> {
        legacy.opened().await;
        if let (Legacy::Live(live), Some(id)) = (&mut *legacy, id)
            && live.lost.is_cancelled()
        {
            let mut again = self.open(id.clone(), live.params.clone(), Purpose::Again, ());
            again.opened().await;
            match again {
                Legacy::Live(new) => *live = new,
                // The next request tries again.
                Legacy::None | Legacy::Opening(_) => return Found::Refused,
            }
        }
        match legacy {
            Legacy::Live(live) => Found::Live(&live.session),
            Legacy::None | Legacy::Opening(_) => Found::None,
        }
    }
}

impl Legacy {
    /// Nothing more comes from the client.
    pub(super) fn hang_up(&self) {
        if let Self::Live(live) = self {
            live.session.hang_up();
        }
    }

    /// Waits until the session is open or could not be opened.
    async fn opened(&mut self) {
        if let Self::Opening(opening) = self {
            *self = opening.await.map_or(Self::None, Self::Live);
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.close.cancel();
    }
}

/// Sends what comes out of a session or a request, until there is no more; the answer, if there was one.
pub(super) async fn pump(mut outflow: Outflow, outbox: &Outbox) -> Option<Rope> {
    let mut answer = None;
    while let Some(outgoing) = outflow.next().await {
        match outgoing {
            Outgoing::Notice(notice) => outbox.offer(notice),
            Outgoing::Message(message) => outbox.send(message).await,
            Outgoing::Answer(text) | Outgoing::Challenge(text, _) => answer = Some(text),
            Outgoing::Cancelled | Outgoing::Pause => {}
        }
    }
    answer
}
