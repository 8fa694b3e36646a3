//! What a server says of who may use it (RFC 9728), for those who log in to it through us.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{ACCEPT, HeaderMap, HeaderValue};
use http_body_util::{BodyExt, Limited};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use url::Url;

use super::endpoint::Endpoint;
use crate::protocol::Json;

/// The metadata of one server. Asked for at most as often as [`FRESH`] and [`ABSENT`] say, whoever asks.
#[derive(Debug)]
pub(super) struct Resource {
    endpoint: Arc<Endpoint>,
    /// One asks the server, the others wait for what it gets.
    turn: Semaphore,
    known: Mutex<Option<Known>>,
}

#[derive(Clone, Debug)]
struct Known {
    metadata: Option<Json>,
    at: Instant,
}

/// How long what the server said is good.
const FRESH: Duration = Duration::from_mins(1);
/// How long a server that had nothing to say is not asked again.
const ABSENT: Duration = Duration::from_secs(5);
/// How long the server may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of metadata.
const LARGEST: usize = 64 << 10;
/// Levels in it.
const DEEPEST: usize = 32;
/// Where it is, before the path of the server (RFC 9728, 3.1); some servers have it without the path only.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

impl Resource {
    /// Nothing is known yet.
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        Self { endpoint, turn: Semaphore::new(1), known: Mutex::new(None) }
    }

    /// The metadata, if the server has any and its callers log in themselves.
    pub(super) async fn metadata(&self) -> Option<Json> {
        if !self.endpoint.lets_callers_log_in() {
            return None;
        }
        let _turn = self.turn.acquire().await.ok()?;
        if let Some(known) = self.known().filter(Known::is_fresh) {
            return known.metadata;
        }
        let metadata = tokio::time::timeout(PATIENCE, self.look()).await.ok().flatten();
        let known = Known { metadata: metadata.clone(), at: Instant::now() };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        metadata
    }

    fn known(&self) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks in the places where it may be, at the server's own origin only.
    async fn look(&self) -> Option<Json> {
        let server = Url::parse(&self.endpoint.uri().to_string()).ok()?;
        let path = server.path().trim_end_matches('/');
        let usual = [format!("{WELL_KNOWN}{path}"), WELL_KNOWN.to_owned()];
        for place in usual.iter().filter_map(|path| server.join(path).ok()) {
            if let Some(metadata) = self.get(&place).await {
                return Some(metadata);
            }
        }
        None
    }

    async fn get(&self, place: &Url) -> Option<Json> {
        let mut request = self.endpoint.get(&HeaderMap::new());
        *request.uri_mut() = place.as_str().parse().ok()?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
        let response = self.endpoint.send_once(request).await.ok()?;
        if response.status() != StatusCode::OK {
            return None;
        }
        let body: Bytes = Limited::new(response.into_body(), LARGEST).collect().await.ok()?.to_bytes();
        crate::protocol::json::check_depth(&body, DEEPEST).ok()?;
        Json::parse(body).ok().filter(Json::is_object)
    }
}

impl Known {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < if self.metadata.is_some() { FRESH } else { ABSENT }
    }
}
