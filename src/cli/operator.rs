//! A small client of the admin listener.

use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use clap::Args;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::timeout;

use super::client::{Wire, read_url};
use super::{exit, terminal};
use crate::config::{AdminConfig, TokenProof};

/// Where the admin listener is, and what lets one in.
#[derive(Clone, Debug, Args)]
pub(super) struct Operator {
    /// The admin listener of the proxy
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081")]
    pub(super) url: String,
    /// The variable that holds the token of [admin]
    #[arg(long, value_name = "NAME")]
    pub(super) token_env: Option<String>,
    /// The token itself, where a configuration has it.
    #[arg(skip)]
    pub(super) token: Option<Secret>,
}

/// A token that is shown nowhere.
#[derive(Clone)]
pub(super) struct Secret(pub(super) String);

/// What went wrong, for the user, and the exit code that says so.
#[derive(Debug)]
pub(super) struct Complaint {
    pub(super) text: String,
    pub(super) code: u8,
}

/// Bytes of an answer.
const LARGEST: usize = 16 << 20;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

impl Operator {
    /// Asks for what is at `path`, which begins with a slash.
    pub(super) async fn ask(&self, method: Method, path: &str) -> Result<Value, Complaint> {
        let url = read_url(&self.url).map_err(Complaint::usage)?.join(path);
        let url = url.map_err(|error| Complaint::usage(format!("\"{}\" is no URL: {error}", self.url)))?;
        let wire = Wire::to(&url)?;
        let mut request = Request::builder().method(method).uri(url.as_str());
        if let Some(value) = self.credentials().map_err(Complaint::usage)? {
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(Full::new(Bytes::new())).map_err(|error| error.to_string())?;
        let origin = url.origin().ascii_serialization();
        let answered = async {
            let response = wire.send(request).await.map_err(|error| {
                format!("no answer of {origin}: {}; is [admin] http set there?", terminal::chain(&error))
            })?;
            let status = response.status();
            let text = whole(response.into_body()).await?;
            Ok::<_, String>((status, serde_json::from_slice(&text).unwrap_or_default()))
        };
        let (status, value): (StatusCode, Value) =
            timeout(PATIENCE, answered).await.map_err(|_| format!("{origin} gives no answer"))??;
        if status.is_success() {
            return Ok(value);
        }
        let why = value.get("error").and_then(Value::as_str).unwrap_or("is that the URL of an admin listener?");
        let why = terminal::one_line(why, 300);
        let advice = if status == StatusCode::UNAUTHORIZED { "; name a variable with it by --token-env" } else { "" };
        Err(format!("{origin} answered with HTTP status {status}: {why}{advice}").into())
    }

    fn credentials(&self) -> Result<Option<HeaderValue>, String> {
        let token = match (&self.token_env, &self.token) {
            (Some(name), _) => {
                std::env::var(name).map_err(|_| format!("the variable {name} (--token-env) is not set"))?
            }
            (None, Some(Secret(token))) => token.clone(),
            (None, None) => return Ok(None),
        };
        // The value is secret, so it is not repeated.
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| "the token holds characters that it cannot".to_owned())?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

impl Secret {
    /// The token that lets one in, where the configuration has more of it than its digest.
    pub(super) fn of(admin: &AdminConfig) -> Option<Self> {
        match &admin.token {
            Some(TokenProof::Plain(token)) => Some(Self(token.clone())),
            Some(TokenProof::Sha256(_)) | None => None,
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Complaint {
    /// About the command line.
    pub(super) fn usage(text: String) -> Self {
        Self { text, code: exit::USAGE }
    }

    /// Says it, and gives the exit code.
    pub(super) fn say(self) -> u8 {
        terminal::complain(&self.text);
        self.code
    }
}

impl From<String> for Complaint {
    fn from(text: String) -> Self {
        Self { text, code: exit::FAILURE }
    }
}

async fn whole(mut body: Incoming) -> Result<Bytes, String> {
    let mut text = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the answer broke off: {error}"))?;
        let Ok(data) = frame.into_data() else { continue };
        if text.len() + data.len() > LARGEST {
            return Err(format!("the answer is larger than {LARGEST} bytes"));
        }
        text.extend_from_slice(&data);
    }
    Ok(text.freeze())
}
