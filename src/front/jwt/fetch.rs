//! Gets a key set: from a file, or from where the issuer publishes it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HeaderValue};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jsonwebtoken::jwk::Jwk;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use url::Url;

use crate::config::KeySource;

/// Gets a key set.
pub(super) enum Fetcher {
    /// From a file.
    File(Box<Path>),
    /// Over HTTP.
    Url(Url, Box<Result<HttpClient, FetchError>>),
}

/// A key set as it is written. Members that are no keys are passed over (RFC 7517, 5).
#[derive(Deserialize)]
struct Written {
    keys: Vec<Value>,
}

type HttpClient = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

/// Why there is no key set.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub(in crate::front) enum FetchError {
    /// The file cannot be read.
    File(Arc<std::io::Error>),
    /// The system's root certificates cannot be read.
    Roots(Arc<std::io::Error>),
    /// The issuer does not answer, or not in time; the text says why.
    Connection(String),
    /// It answers with this status.
    Status(StatusCode),
    /// What it sends is no key set.
    NotAKeySet(Arc<serde_json::Error>),
    /// It was asked a moment ago.
    TooSoon,
}

/// Bytes of a key set.
const LARGEST: usize = 256 << 10;
/// How long the issuer may take.
const PATIENCE: Duration = Duration::from_secs(5);

impl Fetcher {
    /// Gets keys from there.
    pub(super) fn new(source: KeySource) -> Self {
        match source {
            KeySource::File(path) => Self::File(path.into()),
            KeySource::Url(url) => Self::Url(url, Box::new(client())),
        }
    }

    /// The key set as it is now.
    pub(super) async fn fetch(&self) -> Result<Vec<Jwk>, FetchError> {
        let text = match self {
            Self::File(path) => read(path).await?,
            Self::Url(url, client) => {
                let client = client.as_ref().as_ref().map_err(Clone::clone)?;
                tokio::time::timeout(PATIENCE, get(client, url)).await.unwrap_or_else(|_| {
                    Err(FetchError::Connection(format!("no answer within {} s", PATIENCE.as_secs())))
                })?
            }
        };
        let written: Written =
            serde_json::from_slice(&text).map_err(|error| FetchError::NotAKeySet(Arc::new(error)))?;
        Ok(written.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect())
    }
}

fn client() -> Result<HttpClient, FetchError> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    let tls = HttpsConnectorBuilder::new().with_native_roots().map_err(|error| FetchError::Roots(Arc::new(error)))?;
    Ok(Client::builder(TokioExecutor::new()).build(tls.https_or_http().enable_all_versions().wrap_connector(http)))
}

async fn read(path: &Path) -> Result<Bytes, FetchError> {
    let failed = |error| FetchError::File(Arc::new(error));
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let mut text = Vec::new();
    file.take(LARGEST as u64).read_to_end(&mut text).await.map_err(failed)?;
    Ok(text.into())
}

async fn get(client: &HttpClient, url: &Url) -> Result<Bytes, FetchError> {
    let lost = |why: &dyn fmt::Display| FetchError::Connection(why.to_string());
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = url.as_str().parse().map_err(|error: http::uri::InvalidUri| lost(&error))?;
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/jwk-set+json, application/json"));
    let response = client.request(request).await.map_err(|error| lost(&innermost(&error)))?;
    // A redirect is not followed: it could lead from https to anywhere.
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), LARGEST).collect().await;
    Ok(body.map_err(|error| FetchError::Connection(error.to_string()))?.to_bytes())
}

/// The innermost cause, for a person.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().map(ToString::to_string).unwrap_or_default()
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Url(url, _) => f.debug_tuple("Url").field(&url.host_str()).finish(),
        }
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(_) => f.write_str("the file of the key set cannot be read"),
            Self::Roots(_) => f.write_str("the system's root certificates cannot be read"),
            Self::Connection(why) => write!(f, "the key set cannot be fetched: {why}"),
            Self::Status(status) => write!(f, "the key set cannot be fetched: status {status}"),
            Self::NotAKeySet(_) => f.write_str("what was fetched is no JSON Web Key Set"),
            Self::TooSoon => f.write_str("the key set was asked for a moment ago"),
        }
    }
}

impl std::error::Error for FetchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(source) | Self::Roots(source) => Some(&**source),
            Self::NotAKeySet(source) => Some(&**source),
            Self::Connection(_) | Self::Status(_) | Self::TooSoon => None,
        }
    }
}
