//! Getting to know a server: `initialize` of the legacy revisions, `server/discover` of 2026-07-28, and
//! what a client of ours is told about it.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use super::questions;
use super::sessions::Opening;
use super::wire::{self, ServerEra};
use crate::config::Offer;
use crate::protocol::message::{self, RequestId};
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Abilities, Json, JsonError, MODERN, Outcome, QuestionKind, Rope, TASKS_EXTENSION, meta_key};

/// The revision that we ask for.
pub(super) const OFFERED: &str = "2025-11-25";

/// The revisions of `initialize` that we speak.
pub(super) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// What a server says of itself.
#[derive(Clone, Debug)]
pub(super) struct ServerInfo {
    /// Which kind of revision it speaks.
    pub(super) era: ServerEra,
    /// The revision.
    pub(super) protocol_version: String,
    /// Its capabilities, as it spelled them; `{}` if it sent none.
    pub(super) capabilities: Json,
    /// Its name and version, as it spelled them.
    pub(super) identity: Option<Json>,
    /// What it says of its use, a string.
    pub(super) instructions: Option<Json>,
    /// Its whole answer, word for word.
    pub(super) said: Json,
}

/// Why a server could not be got to know.
#[derive(Debug)]
#[non_exhaustive]
pub(super) enum HandshakeError {
    /// It answered with an error, or not in time.
    Refused(Box<Outcome>),
    /// It speaks none of our revisions.
    Version(String),
    /// Its answer is not what the revision says.
    Malformed(&'static str),
    /// Its answer is not readable.
    Json(JsonError),
}

/// What the last handshake with a server said, for all who ask.
#[derive(Clone, Debug, Default)]
pub(super) struct LastSeen(Arc<RwLock<Option<Arc<ServerInfo>>>>);

/// The `initialize` request (2025-11-25, lifecycle, initialization): in the words of the legacy client that gets the
/// session, or with what the modern client can be asked and what the config offers beside that.
pub(super) fn initialize(id: u64, opening: &Opening, offer: &[Offer]) -> Rope {
    let params = if let Some(attached) = opening.attached() {
        initialize_params_of(&attached.params)
    } else {
        let mut params = ObjectWriter::new();
        params
            .string("protocolVersion", OFFERED)
            .rope("capabilities", capabilities(&opening.caller.abilities, offer))
            .raw("clientInfo", &wire::client_info());
        params.finish()
    };
    message::request(&RequestId::from_number(id), "initialize", Some(params))
}

/// What a modern client can be asked, as it spelled it, and what is offered beside that.
fn capabilities(abilities: &Abilities, offer: &[Offer]) -> Rope {
    let mut capabilities = ObjectWriter::new();
    let declared = abilities.questions();
    for (kind, settings) in &declared {
        capabilities.raw(kind.capability(), settings);
    }
    let kinds = [QuestionKind::Elicitation, QuestionKind::Sampling, QuestionKind::Roots];
    for kind in kinds.into_iter().filter(|kind| offer.iter().any(|offer| questions::kind_of(*offer) == *kind)) {
        if declared.iter().all(|(known, _)| *known != kind) {
            capabilities.raw(kind.capability(), &Json::empty_object());
        }
    }
    capabilities.finish()
}

/// The parameters of a legacy client, but for a revision that we do not speak with servers (clients exist that ask
/// `initialize` for 2026-07-28), and for the tasks of 2025-11-25 that the client could run: we pass none on.
fn initialize_params_of(params: &Json) -> Rope {
    let asked = params.member("protocolVersion").and_then(|version| version.read::<String>().ok());
    let version = asked.filter(|version| LEGACY.contains(&version.as_str()));
    let mut writer = ObjectWriter::new();
    writer.string("protocolVersion", version.as_deref().unwrap_or(OFFERED));
    // The text was read as an object without repeated names when the call came in.
    if let Ok(members) = params.members() {
        for (name, raw) in members.iter().filter(|(name, _)| *name != "protocolVersion") {
            let value = Json::of(params.bytes(), raw);
            let mut capabilities = ObjectWriter::new();
            if name == "capabilities" && capabilities.members_of(&value, |name| name != "tasks").is_ok() {
                writer.raw(name, &capabilities.finish_json());
            } else {
                writer.raw(name, &value);
            }
        }
    }
    writer.finish()
}

/// The notification that ends the handshake.
pub(super) fn initialized() -> Rope {
    message::notification("notifications/initialized", None)
}

/// The `server/discover` request (2026-07-28, server, discovery).
pub(super) fn discover(id: u64) -> Rope {
    wire::own_request("server/discover", ServerEra::Modern, id)
}

impl ServerInfo {
    /// Reads the answer to `initialize`.
    pub(super) fn of_initialize(answer: Outcome) -> Result<Self, HandshakeError> {
        let result = object(answer)?;
        let members = result.members().map_err(HandshakeError::Json)?;
        let part = |name: &str| members.get(name).map(|raw| Json::of(result.bytes(), raw));
        let version = part("protocolVersion").and_then(|version| version.read::<String>().ok());
        let version = version.ok_or(HandshakeError::Malformed("it names no protocolVersion"))?;
        if !LEGACY.contains(&version.as_str()) {
            return Err(HandshakeError::Version(version));
        }
        Ok(Self {
            era: ServerEra::Legacy,
            protocol_version: version,
            capabilities: part("capabilities").filter(Json::is_object).unwrap_or_else(empty),
            identity: part("serverInfo").filter(Json::is_object),
            instructions: part("instructions").filter(is_string),
            said: result.clone(),
        })
    }

    /// Reads the answer to `server/discover`.
    pub(super) fn of_discover(answer: Outcome) -> Result<Self, HandshakeError> {
        let result = object(answer)?;
        let members = result.members().map_err(HandshakeError::Json)?;
        let part = |name: &str| members.get(name).map(|raw| Json::of(result.bytes(), raw));
        let versions = part("supportedVersions").and_then(|versions| versions.read::<Vec<String>>().ok());
        let versions = versions.ok_or(HandshakeError::Malformed("it names no supportedVersions"))?;
        if !versions.iter().any(|version| version == MODERN) {
            return Err(HandshakeError::Version(versions.join(", ")));
        }
        let server_info = part("_meta").and_then(|meta| meta.member(meta_key::SERVER_INFO));
        Ok(Self {
            era: ServerEra::Modern,
            protocol_version: MODERN.to_owned(),
            capabilities: part("capabilities").filter(Json::is_object).unwrap_or_else(empty),
            identity: server_info.filter(Json::is_object),
            instructions: part("instructions").filter(is_string),
            said: result.clone(),
        })
    }

    /// The `server/discover` result for our clients, without what the front adds to every result. The
    /// server's own notion of tasks is dropped from it: the tasks layer says what we do.
    pub(super) fn discover_result(&self) -> Json {
        let capabilities = without_tasks(&self.capabilities);
        discover_result(&capabilities, self.instructions.as_ref(), self.identity.as_ref())
    }
}

/// The `server/discover` result while nothing is known of the server: it is there for its tools.
pub(super) fn unknown_server() -> Json {
    let mut capabilities = ObjectWriter::new();
    capabilities.raw("tools", &empty());
    discover_result(&capabilities.finish_json(), None, None)
}

impl LastSeen {
    /// Keeps what a handshake said.
    pub(super) fn set(&self, info: ServerInfo) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(info));
    }

    /// What the last handshake said; `None` if there was none.
    pub(super) fn get(&self) -> Option<Arc<ServerInfo>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn discover_result(capabilities: &Json, instructions: Option<&Json>, server_info: Option<&Json>) -> Json {
    let mut result = ObjectWriter::new();
    result.raw("supportedVersions", &Json::from_value(&serde_json::json!([MODERN])));
    result.raw("capabilities", capabilities);
    if let Some(instructions) = instructions {
        result.raw("instructions", instructions);
    }
    if let Some(server_info) = server_info {
        let mut meta = ObjectWriter::new();
        meta.raw(meta_key::SERVER_INFO, server_info);
        result.raw("_meta", &meta.finish_json());
    }
    result.finish_json()
}

/// Capabilities without `tasks` of 2025-11-25 and the Tasks extension of 2026-07-28.
fn without_tasks(capabilities: &Json) -> Json {
    let Ok(members) = capabilities.members() else { return empty() };
    let mut writer = ObjectWriter::new();
    for (name, raw) in members.iter().filter(|(name, _)| *name != "tasks") {
        let value = Json::of(capabilities.bytes(), raw);
        let mut extensions = ObjectWriter::new();
        if name == "extensions" && extensions.members_of(&value, |name| name != TASKS_EXTENSION).is_ok() {
            writer.raw(name, &extensions.finish_json());
        } else {
            writer.raw(name, &value);
        }
    }
    writer.finish_json()
}

fn object(answer: Outcome) -> Result<Json, HandshakeError> {
    match answer {
        Outcome::Result(result) if result.is_object() => Ok(result),
        Outcome::Result(_) => Err(HandshakeError::Malformed("its result is no object")),
        other => Err(HandshakeError::Refused(Box::new(other))),
    }
}

fn empty() -> Json {
    Json::from_value(&serde_json::json!({}))
}

fn is_string(json: &Json) -> bool {
    json.bytes().starts_with(b"\"")
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(outcome) => match &**outcome {
                Outcome::Error(error) => write!(f, "it refused the handshake: {error}"),
                // No call is lost with a handshake.
                Outcome::Failed(failure) => f.write_str(failure.how()),
                _ => f.write_str("it refused the handshake"),
            },
            Self::Version(version) => {
                write!(f, "it speaks MCP revision \"{}\", which is not supported", version.escape_debug())
            }
            Self::Malformed(why) => write!(f, "its answer to the handshake is malformed: {why}"),
            Self::Json(_) => f.write_str("its answer to the handshake cannot be read"),
        }
    }
}

impl std::error::Error for HandshakeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Json(source) => Some(source),
            Self::Refused(_) | Self::Version(_) | Self::Malformed(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn answer(text: &str) -> Outcome {
        Outcome::Result(Json::parse(Bytes::from(text.to_owned())).unwrap())
    }

    #[test]
    fn every_legacy_revision_is_taken_and_no_other() {
        let of = |version: &str| ServerInfo::of_initialize(answer(&format!(r#"{{"protocolVersion":"{version}"}}"#)));
        for version in LEGACY {
            assert_eq!(of(version).unwrap().protocol_version, version);
        }
        for version in ["2026-07-28", "2024-10-07", "", "latest"] {
            assert!(matches!(of(version), Err(HandshakeError::Version(_))), "{version}");
        }
        assert!(matches!(ServerInfo::of_initialize(answer("{}")), Err(HandshakeError::Malformed(_))));
        assert!(matches!(ServerInfo::of_initialize(answer("[]")), Err(HandshakeError::Malformed(_))));
    }

    #[test]
    fn clients_are_told_what_the_server_said_but_not_of_its_own_tasks() {
        let info = ServerInfo::of_initialize(answer(
            r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"tasks":{"list":{}},
               "zzz":{"n":1.0},"extensions":{"io.modelcontextprotocol/tasks":{},"a/b":{}}},
               "serverInfo":{"name":"s","version":"1","zzz":1e2},"instructions":"be \u0041 kind"}"#,
        ))
        .unwrap();
        assert_eq!(
            info.discover_result().as_str(),
            concat!(
                r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"#,
                r#""zzz":{"n":1.0},"extensions":{"a/b":{}}},"instructions":"be \u0041 kind","#,
                r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1","zzz":1e2}}}"#
            )
        );
    }

    #[test]
    fn a_modern_server_is_known_by_the_revisions_it_lists() {
        let modern = r#"{"supportedVersions":["2025-11-25","2026-07-28"],"capabilities":{"tools":{}},
                         "_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m"}}}"#;
        let info = ServerInfo::of_discover(answer(modern)).unwrap();
        assert_eq!(info.era, ServerEra::Modern);
        assert_eq!(info.identity.unwrap().as_str(), r#"{"name":"m"}"#);
        let other = ServerInfo::of_discover(answer(r#"{"supportedVersions":["2099-01-01"]}"#));
        assert!(matches!(other, Err(HandshakeError::Version(_))));
    }

    #[test]
    fn a_server_that_was_never_seen_is_said_to_have_tools() {
        assert_eq!(unknown_server().as_str(), r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#);
    }
}
