//! Looking at a server before the first call: whether MCP is spoken at its address.
//!
//! A GET of the event stream that belongs to no call changes nothing at a server, nor does `server/discover`, which is for
//! those only that may speak 2026-07-28: who does not know these says so. Only who answers like no server of MCP is asked to
//! shake hands, which is what a first call would do, and the session that may come of it is ended: servers exist that can
//! shake hands only once.

use std::sync::Arc;

use http::StatusCode;
use http::header::HeaderMap;

use super::super::answer::{Answer, Refusal};
use super::super::client::Taken;
use super::{HANDSHAKE_ID, HttpConnect, JSON_FIRST, PROBE, Refused, endpoint, handshake, sse};
use crate::config::UpstreamEra;
use crate::protocol::{Caller, Credentials, Failure, Method, Params, Principal, Reason};
use crate::upstream::http::endpoint::{Endpoint, EndpointError};
use crate::upstream::sessions::{Audience, Connect as _, Distinction, Hearer, Opening, Session as _};
use crate::upstream::wire::ServerEra;
use crate::upstream::{Callers, Look, Setup};

/// What the first answer shows.
enum First {
    /// Of a server of MCP, or of one that has something else to do.
    Known(Look),
    /// Of something else, as far as can be told: what it was, and what may help whoever set it up.
    Strange(String, String),
}

/// Looks at the server of `setup`.
pub(in crate::upstream::http) async fn look(
    setup: &Setup,
    endpoint: Result<Endpoint, EndpointError>,
    callers: Callers,
) -> Look {
    let endpoint = match endpoint {
        Ok(endpoint) => endpoint,
        Err(error) => return Look::Odd(error.to_string()),
    };
    let connect = HttpConnect::new(setup, Arc::new(endpoint));
    let look = connect.look(callers).await;
    // What of it goes on: the end of a session that nobody wants.
    let _ = tokio::time::timeout(PROBE, setup.jobs.idle()).await;
    look
}

impl HttpConnect {
    async fn look(&self, callers: Callers) -> Look {
        let first = if self.is_sse() {
            return self.look_for_events(callers).await;
        } else if self.0.tried == UpstreamEra::Legacy {
            self.get_once(callers).await
        } else {
            self.discover_once(callers).await
        };
        let (what, hint) = match first {
            First::Known(look) => return look,
            First::Strange(what, hint) => (what, hint),
        };
        if self.0.tried == UpstreamEra::Modern {
            return Look::Odd(format!("{} answered {what}{hint}", self.0.endpoint.shown()));
        }
        match self.shake_hands().await {
            Ok(()) => Look::Fine,
            Err(failure) if failure.reason == Reason::Unauthorized => self.unauthorized(callers, &failure),
            Err(failure) => Look::Odd(format!("{}{hint}", failure.how())),
        }
    }

    async fn discover_once(&self, callers: Callers) -> First {
        let mut headers = HeaderMap::new();
        endpoint::mirror_method(&mut headers, &Method::Discover);
        let forwarded = HeaderMap::new();
        let asked = self.ask(&forwarded, JSON_FIRST, headers, handshake::discover(HANDSHAKE_ID));
        match tokio::time::timeout(PROBE, asked).await {
            Err(_) => First::Known(Look::Unknown),
            Ok(Ok(_)) => First::Known(Look::Fine),
            Ok(Err(Refused::By(refusal))) => self.of_refusal(&refusal, callers),
            Ok(Err(Refused::Unreachable(failure))) => First::Known(Look::Odd(failure.how().to_owned())),
            Ok(Err(Refused::NoAnswer(failure))) => {
                First::Strange(format!("no request of MCP: {}", failure.how()), self.hint(""))
            }
        }
    }

    /// Few servers open the stream without a session, but each has its own way to refuse it.
    async fn get_once(&self, callers: Callers) -> First {
        let forwarded = HeaderMap::new();
        let sent = self.0.endpoint.send(|| self.0.endpoint.get(&forwarded));
        let Ok(sent) = tokio::time::timeout(PROBE, sent).await else { return First::Known(Look::Unknown) };
        let response = match sent {
            Ok(response) => response,
            Err(error) if error.taken == Taken::Never => {
                return First::Known(Look::Odd(format!("{error}: {}", error.why())));
            }
            Err(error) => return First::Strange(error.why(), self.hint("")),
        };
        self.end_stray(response.headers());
        match Answer::read(response, self.0.limits).await {
            Ok(Answer::Events(_)) => First::Known(Look::Fine),
            Ok(Answer::Refused(refusal)) if refusal.status == StatusCode::METHOD_NOT_ALLOWED => {
                First::Known(Look::Fine)
            }
            Ok(Answer::Refused(refusal)) => self.of_refusal(&refusal, callers),
            Ok(Answer::Messages(_) | Answer::Nothing(_)) | Err(_) => {
                First::Strange("no request of MCP".to_owned(), self.hint(""))
            }
        }
    }

    async fn look_for_events(&self, callers: Callers) -> Look {
        let forwarded = HeaderMap::new();
        let found = sse::look(&self.0.server, &self.0.endpoint, &forwarded, self.0.limits);
        let Ok(found) = tokio::time::timeout(self.0.patience, found).await else { return Look::Unknown };
        match found {
            sse::Found::Stream(..) => Look::Fine,
            sse::Found::Nothing(nothing) if nothing.failure.reason == Reason::Unauthorized => {
                self.unauthorized(callers, &nothing.failure)
            }
            sse::Found::Nothing(nothing) => {
                Look::Odd(format!("GET {}: {}; is the url right?", self.0.endpoint.shown(), nothing.why))
            }
        }
    }

    /// What a refusal of the first request says. Servers of MCP refuse what they do not know, or what comes without a
    /// session, in many ways.
    fn of_refusal(&self, refusal: &Refusal, callers: Callers) -> First {
        let said = refusal.error.as_ref().map(|(_, error)| format!(": {error}")).unwrap_or_default();
        let what = format!("with status {refusal}{said}");
        let at = self.0.endpoint.shown();
        match refusal.status.as_u16() {
            status @ (401 | 403) => {
                First::Known(self.of_credentials(callers, status == 401, &format!("{at} answered {what}")))
            }
            429 => First::Known(Look::Unknown),
            502..=504 | 520..=530 if refusal.error.is_none() => {
                First::Known(Look::Odd(format!("{at} answered {what}: the gateway there does not reach the server")))
            }
            300..=399 => First::Strange(what, self.moved_to(refusal)),
            404 | 405 | 410 | 501 => First::Strange(what, self.hint("path of the ")),
            421 => First::Strange(what, self.hint("")),
            _ if refusal.error.is_some() || !refusal.is_page() => First::Known(Look::Fine),
            _ => First::Strange(what, self.hint("")),
        }
    }

    fn unauthorized(&self, callers: Callers, failure: &Failure) -> Look {
        self.of_credentials(callers, true, &format!("{}: {}", self.0.endpoint.shown(), failure.message))
    }

    /// That callers who log in themselves are wanted to is as it should be.
    fn of_credentials(&self, callers: Callers, wanted: bool, why: &str) -> Look {
        if callers == Callers::LogIn && self.0.endpoint.lets_callers_log_in() {
            return Look::Unknown;
        }
        let do_what = match callers {
            Callers::LogIn => "see its headers, or let those of the callers through with forward",
            Callers::Nameless => "set the headers that it wants (headers, headers_env or headers_file)",
        };
        let hint = if wanted { format!("; {do_what}") } else { format!("; is the url right? If it is, {do_what}") };
        Look::Odd(format!("{why}{hint}"))
    }

    fn moved_to(&self, refusal: &Refusal) -> String {
        match &refusal.location {
            Some(there) => format!("; it says that it is at {there}: if so, write that as its url"),
            None => self.hint(""),
        }
    }

    fn hint(&self, part: &str) -> String {
        let uri = self.0.endpoint.uri();
        let usual = if uri.path() == "/mcp" { "" } else { " Most servers are at /mcp." };
        format!("; is the {part}url right?{usual}")
    }

    /// Opens a session as the first call would, and ends it.
    async fn shake_hands(&self) -> Result<(), Failure> {
        let Ok(params) = Params::read(&Method::Discover, None) else { return Ok(()) };
        let caller = Caller::of_modern(&params, Principal::Local, Credentials::default());
        let hearer = Hearer::Audience(Audience::One(Principal::Local, Distinction::default()));
        match self.connect(&Opening { caller, hearer }).await {
            Ok(session) => {
                session.close().await;
                Ok(())
            }
            // What was found is no session, and all the same a server of MCP.
            Err(_) if self.is_sse() || self.known() == Some(ServerEra::Modern) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}
