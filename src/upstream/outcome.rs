//! What a server's answer means, and the words of our own failures.

use std::time::Duration;

use super::wire::ServerEra;
use crate::config::the_server;
use crate::protocol::error::code;
use crate::protocol::{Failure, Json, Outcome, Reason, Retry, RpcError, reshape};

/// What a successful answer of a server of that era means. Every result of MCP is an object. `resultType` is a word of
/// 2026-07-28: an older server means something else by it, which a client would take for a round of questions or a task.
pub(super) fn of_result(result: Json, era: ServerEra) -> Outcome {
    if result.is_object() {
        Outcome::Result(match era {
            ServerEra::Legacy => reshape::without_result_type(result),
            ServerEra::Modern => result,
        })
    } else {
        Outcome::Failed(bad_answer("the server answered with a result that is no object"))
    }
}

/// What an error of a server of that era means: it is the answer, word for word, but for -32022, which is about what the
/// proxy said. To servers before 2026-07-28 that code means nothing, and may be what their tool says.
pub(super) fn of_error(server: &str, error: RpcError, era: ServerEra) -> Outcome {
    match era {
        ServerEra::Modern if error.code() == code::UNSUPPORTED_VERSION => Outcome::Failed(not_spoken(server, &error)),
        ServerEra::Modern | ServerEra::Legacy => Outcome::Error(said(error, era)),
    }
}

/// An error that a server of that era says of a call. What is the word of an older one's tool must not reach a client of
/// 2026-07-28 as one of the protocol, nor may a code that nobody may emit.
pub(super) fn said(error: RpcError, era: ServerEra) -> RpcError {
    match era {
        ServerEra::Legacy => reshape::set_aside(error),
        ServerEra::Modern => reshape::set_aside_undefined(error),
    }
}

/// The server does not speak the revision in which it was asked, and did nothing (2026-07-28, versioning). Which one that is
/// is between it and the proxy: its client would take the list in the error for that of the proxy.
pub(super) fn not_spoken(server: &str, error: &RpcError) -> Failure {
    not_started(server, &format!("it refused the revision of MCP that it was spoken to in: {error}"))
}

/// The server could not be reached or started, so nothing was sent.
pub(super) fn not_started(server: &str, why: &str) -> Failure {
    let text = format!("{} did not take the call: {why}", the_server(server));
    Failure::new(Reason::NotStarted, text, Retry::SOON).for_how(why)
}

/// The same, while it is left alone for a while.
pub(super) fn not_yet(server: &str, why: &str, wait: Duration) -> Failure {
    let millis = wait.as_millis();
    let text = format!("{} keeps failing and is tried again in {millis} ms: {why}", the_server(server));
    Failure::new(Reason::NotStarted, text, Retry::After(wait))
}

/// A call that was cancelled before its first byte went out.
pub(super) fn never_sent() -> Failure {
    Failure::new(Reason::NotStarted, "the call was cancelled before it was sent", Retry::Yes)
}

/// The session of a legacy client has ended, and the client must open another one.
pub(super) fn session_lost(server: &str) -> Failure {
    let text = format!("the session with {} has ended; initialize again", the_server(server));
    Failure::new(Reason::NotStarted, text, Retry::Yes)
}

/// All sessions are taken.
pub(super) fn too_many_sessions(server: &str, limit: usize) -> Failure {
    let server = the_server(server);
    let text = format!("{server} has {limit} sessions open, as many as max_sessions allows; try again later");
    Failure::new(Reason::Busy, text, Retry::SOON)
}

/// Those that are left are for owners who have fewer.
pub(super) fn too_many_sessions_of_owner(server: &str, limit: usize) -> Failure {
    let server = the_server(server);
    let text = format!(
        "{server} has nearly as many sessions open as max_sessions ({limit}) allows, and you have your share of them; try \
         again when some of your calls are done"
    );
    Failure::new(Reason::Busy, text, Retry::SOON)
}

/// The proxy stops, so nothing was sent.
pub(super) fn stopping() -> Failure {
    Failure::new(Reason::Stopping, "the proxy is stopping; nothing was sent", Retry::SOON)
}

/// The answer cannot be passed on; `what` says why.
pub(super) fn bad_answer(what: &str) -> Failure {
    Failure::new(Reason::BadAnswer, format!("{what}; the tool may have run"), Retry::Unknown).for_how(what)
}

/// The answer is nested deeper than a message may be.
pub(super) fn too_deep(limit: usize) -> Failure {
    let what = format!("the answer is nested deeper than {limit} levels, the most that limits.depth allows");
    Failure::new(Reason::BadAnswer, has_run(&what), Retry::No).for_how(&what)
}

/// The answer is longer than a message may be.
pub(super) fn too_large(limit: usize) -> Failure {
    let what = format!("the answer has more than {limit} bytes, the most that limits.message allows");
    Failure::new(Reason::TooLarge, has_run(&what), Retry::No).for_how(&what)
}

fn has_run(what: &str) -> String {
    format!("{what}; the tool has run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_that_knows_the_code_says_with_it_that_it_took_nothing() {
        let supported = Json::from_value(&serde_json::json!({ "supported": ["2099-01-01"] }));
        let error = || RpcError::with_data(code::UNSUPPORTED_VERSION, "too old", Some(&supported));
        let passed = |outcome| if let Outcome::Error(error) = outcome { Some(error) } else { None };
        let legacy = passed(of_error("s", error(), ServerEra::Legacy)).unwrap();
        assert_eq!((legacy.code(), legacy.message()), (-31022, "too old"), "a modern client would call again");
        assert_eq!(reshape::legacy_error(legacy), error());
        let Outcome::Failed(failure) = of_error("s", error(), ServerEra::Modern) else { panic!("passed on") };
        assert_eq!(failure.reason, Reason::NotStarted);
        assert!(failure.message.contains("too old"), "{}", failure.message);
        for (code, becomes) in
            [(-32050, -31050), (-32023, -31023), (-32099, -31099), (-32020, -32020), (-32021, -32021), (-32100, -32100)]
        {
            let said = passed(of_error("s", RpcError::new(code, "m"), ServerEra::Modern)).unwrap();
            assert_eq!(said.code(), becomes);
            assert_eq!(reshape::legacy_error(said), RpcError::new(code, "m"));
        }
        let other = RpcError::new(code::INVALID_PARAMS, "no");
        assert_eq!(passed(of_error("s", other.clone(), ServerEra::Modern)), Some(other));
    }
}
