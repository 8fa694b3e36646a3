//! What the failures of an exchange over HTTP mean for its call.

use http::StatusCode;

use super::answer::{Refusal, Unusable};
use super::client::{SendError, Taken};
use crate::config::the_server;
use crate::protocol::error::code;
use crate::protocol::{Failure, Outcome, Reason, Retry, RpcError};
use crate::upstream::outcome;
use crate::upstream::wire::ServerEra;

/// The request could not be sent, or its answer was lost.
pub(super) fn not_sent(server: &str, error: &SendError) -> Failure {
    match error.taken {
        Taken::Never | Taken::GivenBack => outcome::not_started(server, &format!("{error}: {}", error.why())),
        Taken::Unknown => Failure::outcome_unknown(&format!("{error} ({})", error.why())),
    }
}

/// The server answered with a status that is no success. An error in the body is the answer, word for
/// word, except where the status says more than it can.
pub(super) fn refused(server: &str, era: ServerEra, refusal: Refusal) -> Outcome {
    let server = the_server(server);
    let said = refusal.error.as_ref().map(|(_, error)| format!(": {error}")).unwrap_or_default();
    let status = refusal.status;
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        let text = format!("{server} refused the credentials of the call: {refusal}{said}");
        let challenge = refusal.challenge().map(Box::new);
        return Outcome::Failed(Failure { challenge, ..Failure::new(Reason::Unauthorized, text, Retry::No) });
    }
    if status == StatusCode::TOO_MANY_REQUESTS {
        let text = format!("{server} takes no more calls for now: {refusal}{said}");
        let retry = refusal.retry_after.map_or(Retry::SOON, Retry::After);
        return Outcome::Failed(Failure::new(Reason::NotStarted, text, retry));
    }
    if is_of_gateway(status) && !matches!(refusal.error, Some((Some(_), _))) {
        return Outcome::Failed(Failure::outcome_unknown(&format!("{server} answered with status {refusal}{said}")));
    }
    if let Some((_, error)) = refusal.error {
        return Outcome::Error(outcome::said(error, era));
    }
    let (retry, hint) = match status.as_u16() {
        500.. => (Retry::Unknown, "; the tool may or may not have run"),
        300..400 => (
            Retry::No,
            "; it redirects, which is followed within its origin and by 307 or 308 only: look at the url of this server",
        ),
        404 | 405 | 410 => (Retry::No, "; is the url of this server that of its MCP endpoint, with the right path?"),
        406 | 415 => (Retry::No, "; does it speak Streamable HTTP? HTTP+SSE is transport = \"sse\""),
        _ => (Retry::No, "; the log of that server, or of what stands in front of it, has to say why"),
    };
    let text = format!("{server} answered with status {refusal}{hint}");
    Outcome::Failed(Failure::new(Reason::BadAnswer, text, retry))
}

/// The error of a refusal that is about the revision of the request, whatever that was (2026-07-28, Streamable HTTP, protocol
/// version header). The status says that the request was not taken, also where the code means nothing yet.
pub(super) fn of_revision(refusal: &Refusal) -> Option<&RpcError> {
    let (_, error) = refusal.error.as_ref()?;
    (refusal.is_about_the_request() && error.code() == code::UNSUPPORTED_VERSION).then_some(error)
}

/// Whether a gateway says that it lost the server behind it, or did not want to wait for it any longer (RFC 9110, 15.6;
/// from 520 on those of a common one). That is a lost connection by another name.
pub(super) fn is_of_gateway(status: StatusCode) -> bool {
    matches!(status.as_u16(), 502..=504 | 520..=530)
}

/// A response that is no answer.
pub(super) fn unusable(fault: &Unusable) -> Failure {
    match fault {
        Unusable::TooLarge(limit) => outcome::too_large(*limit),
        Unusable::Broken(_) => Failure::outcome_unknown(&fault.to_string()),
        Unusable::Media(..) | Unusable::NotJson(..) => bad_answer(&fault.to_string()),
    }
}

/// The server answered, but not with an answer.
pub(super) fn bad_answer(what: &str) -> Failure {
    let text = format!("{what}; the tool may or may not have run");
    Failure::new(Reason::BadAnswer, text, Retry::Unknown).for_how(what)
}

/// What became of a call whose session the server has forgotten.
pub(super) const SESSION_GONE: &str = "the server no longer knows the session that the call was sent on";

/// The server does not know the session any more. That is no proof that it never took the call: some forget
/// a session while they answer.
pub(super) fn session_gone(refusal: &Refusal) -> Failure {
    let mut how = SESSION_GONE.to_owned();
    if let Some((_, error)) = &refusal.error {
        // It may have meant something else, which only its own words tell.
        let words: String = error.message().chars().take(SAID).collect();
        how = format!("{how}, or refuses it ({}: {words})", refusal.status);
    }
    Failure::outcome_unknown(&how)
}

/// Characters of a server's words that are passed on within ours.
const SAID: usize = 200;
