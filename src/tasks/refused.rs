//! What a client without Tasks is told where a tool is for clients with Tasks only (SEP-2663, -32021).

use crate::policy::Pattern;
use crate::protocol::{Caller, ClientSession, RpcError, TASKS_EXTENSION};

/// -32021, with the rule that refuses, and what the client or the operator can do.
pub(super) fn needs_tasks(tool: &str, rule: Option<&Pattern>, caller: &Caller) -> RpcError {
    let rule = match rule {
        Some(pattern) => format!("[[tool]] match = \"{}\"", pattern.to_string().escape_debug()),
        None => "[defaults]".to_owned(),
    };
    let client = match caller.session {
        ClientSession::Stateless => {
            format!("the client can declare the extension {TASKS_EXTENSION} in _meta of this very request")
        }
        ClientSession::Legacy(_) => {
            format!(
                "the client can speak MCP 2026-07-28 with the extension {TASKS_EXTENSION}, which its revision lacks"
            )
        }
    };
    let text = format!(
        "the tool \"{}\" is only for clients with Tasks here ({rule}: mode = \"task\", fallback = \"refuse\"): {client}, \
         or the operator can set fallback = \"wait\" or \"handle\", or mode = \"auto\", for the tool",
        tool.escape_debug()
    );
    let plain = RpcError::tasks_not_declared();
    RpcError::with_data(plain.code(), text, plain.raw().member("data").as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Credentials, Json, Method, Params, Principal};

    #[test]
    fn the_error_names_the_rule_and_what_this_client_can_do() {
        let params = Params::read(&Method::CallTool, Some(Json::parse("{\"name\":\"x\"}".into()).unwrap())).unwrap();
        let modern = Caller::of_modern(&params, Principal::Named("ann".into()), Credentials::default());
        let legacy = Caller { session: ClientSession::Legacy(1), ..modern.clone() };
        let rule = Pattern::new("exp*t");
        let cases = [
            (&modern, Some(&rule), ["[[tool]] match = \"exp*t\"", "declare the extension"]),
            (&legacy, Some(&rule), ["[[tool]] match = \"exp*t\"", "speak MCP 2026-07-28"]),
            (&legacy, None, ["[defaults]", "fallback = \"wait\" or \"handle\""]),
        ];
        for (caller, rule, parts) in cases {
            let error = needs_tasks("export", rule, caller);
            for part in parts {
                assert!(error.message().contains(part), "{part} in {error}");
            }
            assert!(error.raw().member("data").unwrap().member("requiredCapabilities").is_some());
        }
    }
}
