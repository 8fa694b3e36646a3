//! A call, and who makes it: what goes in at the front and out at the upstream.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use tokio::time::Instant;

use super::ask::Abilities;
use super::capabilities::Capabilities;
use super::credential::{Credential, Newcomer};
use super::error::{RpcError, code};
use super::json::{Json, JsonError, Members, Part};
use super::key::CallKey;
use super::method::Method;
use super::{TASKS_EXTENSION, meta_key};

/// One request on its way to a server.
#[derive(Clone, Debug)]
pub struct Call {
    /// What is asked.
    pub method: Method,
    /// With which parameters.
    pub params: Params,
    /// By whom.
    pub caller: Caller,
    /// When it arrived; thresholds count from here.
    pub arrived: Instant,
}

/// The parameters of a call. The text has been checked: an object, no repeated name in it or in `_meta`.
#[derive(Clone, Debug)]
pub struct Params {
    raw: Json,
    /// All members but `_meta`, as they were cut up once.
    others: Arc<[Member]>,
    meta: Option<Arc<Meta>>,
    name: Option<String>,
    request_state: Option<Json>,
}

/// A member of an object: its name, decoded, and its value.
type Member = (Cow<'static, str>, Json);

/// Names of members that most calls have.
const USUAL_PARAMS: [&str; 4] = ["name", "arguments", "uri", "cursor"];

/// The object `_meta` of a call, read once.
#[derive(Debug)]
struct Meta {
    raw: Json,
    /// The members under [`USUAL_META`], in that order.
    usual: [Option<Json>; USUAL_META.len()],
    /// What the client declares.
    capabilities: Capabilities,
    /// All others.
    others: Vec<Member>,
}

/// Keys of `_meta` that are looked at on every call.
const USUAL_META: [&str; 5] = [
    meta_key::PROTOCOL_VERSION,
    meta_key::CLIENT_CAPABILITIES,
    meta_key::PROGRESS_TOKEN,
    meta_key::LOG_LEVEL,
    meta_key::IDEMPOTENCY_KEY,
];

/// Who makes a call, and what this request says of the client.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who the caller was proved to be.
    pub principal: Principal,
    /// The legacy session that the request came on; modern requests stand alone.
    pub session: ClientSession,
    /// What the client can be asked: as this request says (modern), or as its session said (legacy).
    pub abilities: Abilities,
    /// Whether this request declares the Tasks extension.
    pub tasks: TaskSupport,
    /// What this request wants to be told while it runs.
    pub progress_token: Option<Json>,
    /// The key that makes this start idempotent, if the caller gave one.
    pub key: Option<CallKey>,
    /// The headers that may be passed on to the server.
    pub credentials: Credentials,
}

/// Whether a request belongs to a session of a client. The era of a request is decided by its own `_meta`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClientSession {
    /// 2026-07-28: none. The client is asked by results (MRTR) or by its tasks.
    Stateless,
    /// The session of a legacy client, under the number that the front gave it. It has exactly one session
    /// upstream, opened by [`Method::Attach`], and is asked by requests.
    Legacy(u64),
}

/// Whether a client may be given a handle. Only what the request itself declares counts (SEP-2663).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskSupport {
    /// The request declares the extension under 2026-07-28.
    Declared,
    /// The session is one of 2025-11-25 whose client was told that calls may be tasks of that revision: it takes such
    /// a handle where a call has `params.task`, and no other.
    Augmenting,
    /// It does not.
    Undeclared,
}

/// Who a caller was proved to be.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Principal {
    /// The one user of a stdio connection, or of a loopback listener without configured owners.
    Local,
    /// A caller over HTTP without credentials.
    Anonymous,
    /// The bearer of these credentials.
    Credential(Credential),
    /// All newcomers at an address. Nobody calls as this: it is where they are counted ([`Principal::sharer`]).
    Newcomers(IpAddr),
    /// A caller with a name: from a listed token, or from a header that a trusted gateway set.
    Named(Box<str>),
    /// The subject of a token that an issuer has signed: the same one however often the token is renewed.
    Subject {
        /// `iss`.
        issuer: Box<str>,
        /// `sub`, unique with that issuer.
        subject: Box<str>,
    },
    /// The owner of a task that an earlier process has made, of whom only what the record says is known.
    Recorded {
        /// Which rule made the digest.
        scheme: u8,
        /// The digest.
        digest: [u8; 32],
    },
}

/// Headers of the caller that may go to the server. Their values are secret and never shown.
#[derive(Clone, Default)]
pub struct Credentials(HeaderMap);

impl Params {
    /// Reads the parameters of a request for `method`; none at all reads as an empty object.
    pub fn read(method: &Method, raw: Option<Json>) -> Result<Self, RpcError> {
        let invalid = |what: &str, why: &dyn fmt::Display| {
            RpcError::new(code::INVALID_REQUEST, format!("Invalid request: {what}: {why}"))
        };
        let Some(raw) = raw else {
            let (raw, others) = (Json::empty_object(), Arc::default());
            return Ok(Self { raw, others, meta: None, name: None, request_state: None });
        };
        let members = raw.members().map_err(|error| invalid("params", &error))?;
        let meta = match members.get("_meta") {
            Some(value) => {
                let meta = Meta::read(Json::of(raw.bytes(), value));
                Some(Arc::new(meta.map_err(|error| invalid("params._meta", &error))?))
            }
            None => None,
        };
        let name = method.named_by().and_then(|name| members.get(name));
        let name = name.and_then(Part::string).map(Cow::into_owned);
        let request_state = members.get("requestState").map(|value| Json::of(raw.bytes(), value));
        let others = members.entries().filter(|(name, _)| *name != b"_meta");
        let others = others.map(|(name, value)| (named(name, &USUAL_PARAMS), Json::of(raw.bytes(), value))).collect();
        drop(members);
        Ok(Self { raw, others, meta, name, request_state })
    }

    /// All members but `_meta`, in their order.
    pub(crate) fn others(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.others.iter().map(|(name, value)| (name.as_ref(), value))
    }

    /// Those members of `_meta` that Raincheck has no use for on every call, in their order.
    pub(crate) fn meta_others(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.meta.iter().flat_map(|meta| &meta.others).map(|(name, value)| (name.as_ref(), value))
    }

    /// The whole object.
    pub fn raw(&self) -> &Json {
        &self.raw
    }

    /// The object `_meta`, if there is one.
    pub fn meta(&self) -> Option<&Json> {
        self.meta.as_ref().map(|meta| &meta.raw)
    }

    /// A member of `_meta`.
    pub fn meta_member(&self, key: &str) -> Option<Json> {
        self.meta.as_ref()?.member(key)
    }

    /// What the client declares in `_meta`.
    pub fn capabilities(&self) -> &Capabilities {
        self.meta.as_ref().map_or(&Capabilities::Missing, |meta| &meta.capabilities)
    }

    /// `requestState`, if this is a retry (2026-07-28, multi round-trip requests).
    pub fn request_state(&self) -> Option<&Json> {
        self.request_state.as_ref()
    }

    /// The tool, prompt, resource or task that the call names (see [`Method::named_by`]); `None` if it
    /// names none or the value is no string.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl Meta {
    fn read(raw: Json) -> Result<Self, JsonError> {
        let members = raw.members()?;
        let usual = USUAL_META.map(|key| members.get(key).map(|value| Json::of(raw.bytes(), value)));
        let others = members.entries().filter(|(name, _)| USUAL_META.iter().all(|usual| usual.as_bytes() != *name));
        let others = others.map(|(name, value)| (named(name, &[]), Json::of(raw.bytes(), value))).collect();
        drop(members);
        let [_, capabilities, ..] = &usual;
        let capabilities = Capabilities::read(capabilities.as_ref());
        Ok(Self { raw, usual, capabilities, others })
    }

    fn member(&self, key: &str) -> Option<Json> {
        match USUAL_META.iter().zip(&self.usual).find(|(usual, _)| **usual == key) {
            Some((_, value)) => value.clone(),
            None => self.raw.member(key),
        }
    }
}

/// A name, which is not copied if it is one of those.
fn named(name: &[u8], usual: &[&'static str]) -> Cow<'static, str> {
    let known = usual.iter().find(|usual| usual.as_bytes() == name);
    known.map_or_else(|| Cow::Owned(String::from_utf8_lossy(name).into_owned()), |known| Cow::Borrowed(*known))
}

impl TaskSupport {
    /// What the client capabilities of one modern request say.
    pub(super) fn among(capabilities: &Members<'_>) -> Self {
        let extensions = capabilities.get("extensions").and_then(|extensions| Members::of(extensions.bytes()).ok());
        let settings = extensions.and_then(|extensions| extensions.get(TASKS_EXTENSION));
        match settings {
            Some(settings) if settings.bytes().first() == Some(&b'{') => Self::Declared,
            _ => Self::Undeclared,
        }
    }
}

impl Caller {
    /// A caller as the `_meta` of a modern request describes it.
    pub fn of_modern(params: &Params, principal: Principal, credentials: Credentials) -> Self {
        let (abilities, tasks) = match params.capabilities() {
            Capabilities::Declared { abilities, tasks } => (abilities.clone(), *tasks),
            _ => (Abilities::none(), TaskSupport::Undeclared),
        };
        let progress_token = params.meta_member(meta_key::PROGRESS_TOKEN);
        let session = ClientSession::Stateless;
        Self { principal, session, abilities, tasks, progress_token, key: None, credentials }
    }
}

impl Principal {
    /// Who has what this one takes of what all share: itself, or while no server has taken its credentials all of those at
    /// its address together. Else whoever invents credentials would have as many shares.
    pub fn sharer(&self) -> Cow<'_, Self> {
        match self.newcomer() {
            Some(newcomer) => Cow::Owned(Self::Newcomers(newcomer.address())),
            None => Cow::Borrowed(self),
        }
    }

    /// The caller as a newcomer, if no server has taken its credentials yet.
    pub fn newcomer(&self) -> Option<&Newcomer> {
        match self {
            Self::Credential(credential) => credential.newcomer(),
            Self::Local
            | Self::Anonymous
            | Self::Newcomers(_)
            | Self::Named(_)
            | Self::Subject { .. }
            | Self::Recorded { .. } => None,
        }
    }

    /// Resolves when the caller is no newcomer any more.
    pub async fn proved(&self) {
        if let Self::Credential(credential) = self {
            credential.proved().await;
        }
    }

    /// A server has answered this caller.
    pub fn taken(&self) {
        if let Self::Credential(credential) = self {
            credential.taken();
        }
    }

    /// A server has refused the credentials of this caller.
    pub fn refused(&self) {
        if let Self::Credential(credential) = self {
            credential.refused();
        }
    }
}

/// Shows the kind and a public name, never a credential.
impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("Local"),
            Self::Anonymous => f.write_str("Anonymous"),
            Self::Credential(_) => f.write_str("Credential(..)"),
            Self::Newcomers(address) => f.debug_tuple("Newcomers").field(address).finish(),
            Self::Named(name) => f.debug_tuple("Named").field(name).finish(),
            Self::Subject { issuer, subject } => {
                f.debug_struct("Subject").field("issuer", issuer).field("subject", subject).finish()
            }
            Self::Recorded { .. } => f.write_str("Recorded(..)"),
        }
    }
}

impl Credentials {
    /// These headers.
    pub fn new(headers: HeaderMap) -> Self {
        Self(headers)
    }

    /// The headers, to be put on a request to the server.
    pub fn headers(&self) -> &HeaderMap {
        &self.0
    }
}

/// Shows the names only.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}
