//! Taking the stream of an answer up again, behind the last event that came (2025-11-25, resumability).

use std::time::Duration;

use http::StatusCode;
use http::header::HeaderValue;

use super::answer::{self, Media};
use super::events::EventStream;
use super::exchange::{Exchange, Link, State, Stream};
use crate::protocol::Failure;

/// How far the stream of an answer was read, and how it went since.
#[derive(Debug, Default)]
pub(super) struct Resume {
    /// Of the last event.
    pub(super) last_id: Option<String>,
    /// The wait that the server asks for.
    pub(super) retry: Option<Duration>,
    /// Attempts since the last event.
    pub(super) failures: u32,
    /// How often a resumed stream was silent since the last event.
    pub(super) silences: u32,
}

/// How long a resumed stream may be silent before it is asked for again; it doubles, up to [`LONGEST_WAIT`]. The official SDKs
/// keep what comes behind a reconnect for the next one.
const SILENCE: Duration = Duration::from_secs(15);

/// Attempts to resume a stream without any event in between, beside the one at the time that the server named.
const ATTEMPTS: u32 = 6;
/// The wait before the first of them; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// A wait that a server asks for is believed within these bounds: a server that says "at once" each time and closes
/// again would be asked without a pause.
const LEAST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_mins(5);

impl Resume {
    /// How long to wait before the next attempt; `None` if there is to be none.
    ///
    /// A server that is down cannot mean the wait that it named when it was not: that is the least one, and the time for
    /// all attempts is never shorter than without it.
    fn wait(&self) -> Option<Duration> {
        let Some(retry) = self.retry else { return backoff(self.failures) };
        let retry = retry.clamp(LEAST_WAIT, LONGEST_WAIT);
        let Some(failures) = self.failures.checked_sub(1) else { return Some(retry) };
        backoff(failures).map(|backoff| backoff.max(retry))
    }

    /// How long a server may say nothing.
    pub(super) fn patience(&self) -> Duration {
        SILENCE.saturating_mul(2_u32.saturating_pow(self.silences)).min(LONGEST_WAIT)
    }
}

/// The wait after so many attempts that failed.
fn backoff(failures: u32) -> Option<Duration> {
    (failures < ATTEMPTS).then(|| FIRST_WAIT * 2_u32.saturating_pow(failures))
}

impl Exchange<'_> {
    /// Goes on behind the last event, if the server gave it an id (2025-11-25, resumability).
    pub(super) async fn resume(&mut self, how: String) {
        let Link::Session(session) = &self.link else { return self.lost(Failure::outcome_unknown(&how)) };
        let session = session.clone();
        session.doubt();
        let last_id = self.resume.last_id.as_deref().and_then(|id| HeaderValue::from_str(id).ok());
        if last_id.is_none() {
            return self.lost(Failure::outcome_unknown(&how));
        }
        let Some(wait) = self.resume.wait() else {
            let tried = self.resume.failures;
            let attempts = format!("{how}, and the stream could not be taken up again in {tried} attempts");
            return self.lost(Failure::outcome_unknown(&attempts));
        };
        tokio::time::sleep(wait).await;
        self.resume.failures += 1;
        let asked = tokio::time::timeout(self.resume.patience(), session.get(self.forwarded, last_id)).await;
        let response = match asked {
            Ok(Ok(response)) => response,
            // Its response comes with the first event at some servers, and never at others.
            Err(_) => return self.was_silent(),
            Ok(Err(error)) => {
                tracing::debug!(server = self.server, %error, why = error.why(), "a stream could not be resumed yet");
                self.state = State::Broken(how);
                return;
            }
        };
        let status = response.status();
        if status.is_success() && Media::of(response.headers()) == Media::Events {
            session.worked();
            if self.resume.retry.is_some() {
                // A server that names a wait and closes again wants to be polled; the call's own limit ends that.
                self.resume.failures = 0;
            }
            let stream = EventStream::new(response.into_body(), self.limits().message);
            let stream = stream.behind(self.resume.last_id.as_deref());
            self.state = State::Reading(Box::new(stream), Stream::Resumed);
        } else if status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT) {
            // A conflict: the server has not seen yet that the stream before was left.
            let asked = answer::retry_after(response.headers());
            self.resume.retry = asked.or(self.resume.retry);
            self.state = State::Broken(how);
        } else {
            self.lost(Failure::outcome_unknown(&format!("{how}, and the server does not resume it (status {status})")));
        }
    }

    /// The server was asked for the rest, and said nothing.
    pub(super) fn was_silent(&mut self) {
        (self.resume.silences, self.resume.failures) = (self.resume.silences.saturating_add(1), 0);
        self.state = State::Broken("the stream of the answer was silent".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The waits of attempts that all fail.
    fn waits(retry: Option<u64>) -> Vec<Duration> {
        let retry = retry.map(Duration::from_millis);
        (0..99).map_while(|failures| Resume { retry, failures, ..Resume::default() }.wait()).collect()
    }

    #[test]
    fn a_wait_that_a_server_names_never_makes_the_time_for_all_attempts_shorter() {
        let unnamed = waits(None);
        assert_eq!((unnamed.len(), unnamed.iter().sum()), (6, Duration::from_millis(15_750)));
        for (retry, first) in [(0, 100), (100, 100), (1_000, 1_000), (20_000, 20_000), (u64::MAX, 300_000)] {
            let named = waits(Some(retry));
            assert_eq!((named[0], named.len()), (Duration::from_millis(first), 7), "{retry}");
            assert!(named[1..].iter().zip(&unnamed).all(|(named, unnamed)| named >= unnamed), "{named:?}");
            assert!(named.iter().all(|wait| *wait >= named[0]), "sooner than the server wants: {named:?}");
        }
    }
}
