//! A session for a call, which is not sent into a doubt.

use http::header::HeaderMap;

use super::client::{SendError, Taken};
use super::own::Health;
use super::run::Runner;
use super::session::{HttpSession, Trust};
use crate::protocol::{Call, Failure, Method, ReplySender, WaitsFor};
use crate::upstream::outcome;
use crate::upstream::sessions::Lease;

impl Runner {
    /// A session that is believed to live.
    pub(super) async fn session(
        &self,
        call: &Call,
        forwarded: &HeaderMap,
        sender: &ReplySender,
    ) -> Result<Lease<HttpSession>, Failure> {
        let mut session = self.0.sessions.get_for(call, sender).await?;
        // A call that may run once only is not sent into a doubt.
        for _ in 0..TRIES {
            if call.method != Method::CallTool || session.trust() != Trust::Doubtful {
                break;
            }
            sender.waits(WaitsFor::Connection);
            match Box::pin(checked(&session, forwarded)).await {
                Ok(Health::Known) => break,
                Ok(Health::Gone) => {}
                Err(error) if error.taken == Taken::Never => {
                    let why = format!("it cannot be reached any more: {}", error.why());
                    return Err(outcome::not_started(&self.0.server, &why));
                }
                // There is a server, but this session gets no answer out of it. The call takes the next one.
                Err(_) => session.gone(),
            }
            session = Box::pin(self.0.sessions.get_for_after(call, sender, session)).await?;
        }
        Ok(session)
    }
}

/// So many sessions are found to be gone before a call is sent on the next one as it is.
const TRIES: u32 = 3;

/// Whether the server knows the session. It is asked once more where only the connection may have been the trouble: a
/// server may keep much for a session, which is not to be given up lightly.
async fn checked(session: &HttpSession, forwarded: &HeaderMap) -> Result<Health, SendError> {
    match session.check(forwarded).await {
        Err(error) if error.taken != Taken::Never => session.check(forwarded).await,
        health => health,
    }
}
