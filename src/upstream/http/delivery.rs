//! What comes of a message that is no call: whether the server has it, and when it may be sent again.

use std::time::Duration;

use http::StatusCode;

use crate::protocol::Failure;

/// The waits before a message is sent again, each twice as long as the one before.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

/// Messages of a session or connection that are sent again at a time.
pub(super) const REPEATS: usize = 64;
/// For how long an answer is sent again.
pub(super) const ANSWER: Duration = Duration::from_mins(1);
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A wait that a server asks for is believed up to this.
const LONGEST_ASKED: Duration = Duration::from_secs(30);

impl Backoff {
    pub(super) const fn new() -> Self {
        Self(FIRST_WAIT)
    }

    /// The next wait; `asked` is what the server named.
    pub(super) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(LONGEST_WAIT);
        asked.map_or(wait, |asked| asked.min(LONGEST_ASKED).max(wait))
    }
}

/// Whether a status is about the moment, and not about the message.
pub(super) fn is_for_now(status: StatusCode) -> bool {
    matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS)
        || (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED)
}

/// Whether a status says that the message was kept from the server.
pub(super) fn is_before_the_server(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::PROXY_AUTHENTICATION_REQUIRED
            | StatusCode::PAYLOAD_TOO_LARGE
    )
}

/// How the call must end whose server cannot be told what it asked.
pub(super) fn unanswered(how: &str) -> Failure {
    Failure::outcome_unknown(&format!(
        "the answer to what the server asked in its course could not be sent to it: {how}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_a_server_may_ask_for_longer_ones() {
        let mut backoff = Backoff::new();
        let waits: Vec<_> = (0..7).map(|_| backoff.next(None).as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 5000, 5000]);
        for (asked, wait) in [(1, 5), (7, 7), (3600, 30)] {
            assert_eq!(backoff.next(Some(Duration::from_secs(asked))), Duration::from_secs(wait));
        }
    }
}
