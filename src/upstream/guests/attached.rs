//! What a modern server says, in the shape of the legacy revisions.

use crate::protocol::Json;
use crate::protocol::rope::ObjectWriter;
use crate::upstream::handshake::{LEGACY, OFFERED, ServerInfo};

/// The result of `initialize` that a legacy server would give in the place of this modern one. `params` are those of
/// the client.
pub(super) fn result(server: &ServerInfo, params: &Json) -> Json {
    let asked = params.member("protocolVersion").and_then(|version| version.read::<String>().ok());
    let version = asked.filter(|version| LEGACY.contains(&version.as_str()));
    let mut capabilities = ObjectWriter::new();
    // The capabilities of both eras are alike but for these.
    let ours = |name: &str| !matches!(name, "tasks" | "extensions");
    if capabilities.members_of(&server.capabilities, ours).is_err() {
        capabilities = ObjectWriter::new();
    }
    let mut result = ObjectWriter::new();
    result.string("protocolVersion", version.as_deref().unwrap_or(OFFERED));
    result.raw("capabilities", &capabilities.finish_json());
    match &server.identity {
        Some(identity) => result.raw("serverInfo", identity),
        None => result.raw("serverInfo", &Json::from_value(&serde_json::json!({ "name": "server", "version": "0" }))),
    };
    if let Some(instructions) = &server.instructions {
        result.raw("instructions", instructions);
    }
    result.finish_json()
}
