//! Runs that another process began on a session of its own (2025-11-25, resumability): their anchors, and how they are
//! found again.

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::HeaderValue;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::connect::HttpConnect;
use super::endpoint::{Endpoint, JSON_FIRST};
use super::exchange::Exchange;
use super::run::{Leave, Runner};
use super::session::{HttpSession, OwnHeaders, Parts};
use crate::jobs::Jobs;
use crate::protocol::{Anchor, Call, Failure, Outcome, ReplySender};
use crate::shared_map::SharedMap;
use crate::upstream::Setup;
use crate::upstream::questions::Floor;
use crate::upstream::sessions::{Hearer, Session};

/// Where a run is: the words of an anchor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// The id of the session, if the server gave it one.
    session: Option<String>,
    /// The revision.
    version: String,
    /// The id of the request.
    request: u64,
    /// The id of the last event that was taken.
    event: String,
}

/// When it is time to tell where a run is.
#[derive(Debug, Default)]
pub(super) struct Anchors {
    told: Option<(Instant, String)>,
}

/// The least time between two anchors of one run.
const EVERY: Duration = Duration::from_secs(1);

/// Sessions of another process that are in use here.
#[derive(Debug, Default)]
pub(super) struct OldSessions(SharedMap<String, Weak<OldSession>>);

/// A session of another process. The server is told of its end when the last run on it is over here.
#[derive(Debug)]
struct OldSession {
    session: HttpSession,
    jobs: Jobs,
}

impl Place {
    /// The place of the request `request` behind the event `event`; `None` if that cannot be said in a header.
    pub(super) fn new(session: Option<&HeaderValue>, version: &HeaderValue, request: u64, event: &str) -> Option<Self> {
        let session = session.map(|id| id.to_str().map(str::to_owned)).transpose().ok()?;
        HeaderValue::from_str(event).ok()?;
        Some(Self { session, version: version.to_str().ok()?.to_owned(), request, event: event.to_owned() })
    }

    /// The anchor that says so.
    pub(super) fn anchor(&self) -> Option<Anchor> {
        serde_json::to_vec(self).ok().map(Anchor::new)
    }

    fn of(anchor: &Anchor) -> Option<Self> {
        serde_json::from_slice(anchor.bytes()).ok()
    }
}

impl Anchors {
    /// Whether it is time to tell that the run is behind `event`.
    pub(super) fn is_due(&self, event: &str) -> bool {
        self.told.as_ref().is_none_or(|(at, before)| before != event && at.elapsed() >= EVERY)
    }

    /// It was told.
    pub(super) fn told(&mut self, event: &str) {
        self.told = Some((Instant::now(), event.to_owned()));
    }
}

impl OldSessions {
    /// The session of that place: for whoever finds runs on it, the same one.
    fn get(&self, place: &Place, open: impl FnOnce() -> Option<HttpSession>, jobs: &Jobs) -> Option<Arc<OldSession>> {
        let make = || open().map(|session| Arc::new(OldSession { session, jobs: jobs.clone() }));
        let Some(id) = &place.session else { return make() };
        self.0.retain(|_, known| known.strong_count() > 0);
        self.0.update_or_insert(id.clone(), Weak::new, |known| {
            known.upgrade().or_else(|| make().inspect(|made| *known = Arc::downgrade(made)))
        })
    }
}

impl Drop for OldSession {
    fn drop(&mut self) {
        let session = self.session.clone();
        self.jobs.spawn("close an old session", async move { session.close().await });
    }
}

impl Runner {
    /// Listens on for the answer to a call that another process sent. Nothing is sent but the request for the rest of the
    /// stream, and a cancel if that is wanted. Credentials of a caller are none left.
    pub(super) async fn resume(&self, call: Call, anchor: &Anchor, mut sender: ReplySender) {
        let inner = &self.0;
        let closing = inner.closing.clone();
        let Some(place) = Place::of(anchor) else {
            return sender.done(unknown("where the run was cannot be read"));
        };
        let open = || {
            let hearer = Hearer::Audience(inner.sessions.audience(&call.caller));
            old_session(&inner.setup, &inner.connect, &inner.endpoint, hearer, &place)
        };
        let Some(old) = inner.old_sessions.get(&place, open, &inner.setup.jobs) else {
            return sender.done(unknown("where the run was cannot be read"));
        };
        let none = http::HeaderMap::new();
        let (mut in_flight, elsewhere) = old.session.begin_as(place.request, &none, &call, sender.events());
        // It can be found again once more, for as long as it is not over.
        in_flight.anchored();
        let (session, request) = (old.session.clone(), place.request);
        let exchange = Exchange::resumed(session, &inner.server, &call, request, &none, elsewhere, place.event);
        let leave = Leave::Tell { in_flight, forwarded: &none };
        let ended = tokio::select! {
            ended = self.drive(exchange, leave, &mut sender) => ended,
            // The sender's end makes the outcome unknown.
            () = closing.cancelled() => return,
        };
        sender.done(ended.outcome());
    }
}

fn old_session(
    setup: &Setup,
    connect: &HttpConnect,
    endpoint: &Arc<Endpoint>,
    hearer: Hearer,
    place: &Place,
) -> Option<HttpSession> {
    let id = place.session.as_deref().map(HeaderValue::from_str).transpose().ok()?;
    Some(HttpSession::new(Parts {
        endpoint: Arc::clone(endpoint),
        limits: connect.limits(),
        id,
        version: HeaderValue::from_str(&place.version).ok()?,
        accept: JSON_FIRST,
        forwarded: OwnHeaders::None,
        floor: Floor::new(setup, hearer),
        jobs: setup.jobs.clone(),
    }))
}

fn unknown(how: &str) -> Outcome {
    Outcome::Failed(Failure::outcome_unknown(&format!("Raincheck was restarted during the run, and {how}")))
}
