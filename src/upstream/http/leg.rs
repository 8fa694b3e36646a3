//! The way of a call that takes a server over HTTP more than one request.

use super::run::Runner;
use super::session::HttpSession;
use crate::protocol::{Call, EventSender, Reply};
use crate::upstream::drive::Leg;
use crate::upstream::questions::Floor;

/// One way to a server: one session of it, or none where it knows none.
#[derive(Clone, Debug)]
pub(super) struct HttpLeg {
    pub(super) runner: Runner,
    pub(super) session: Option<HttpSession>,
}

impl Leg for HttpLeg {
    fn send(&self, call: Call) -> Reply {
        self.request(call, None)
    }

    fn send_as_task(&self, call: Call, later: EventSender) -> Reply {
        self.request(call, Some(later))
    }

    fn floor(&self) -> Option<&Floor> {
        self.session.as_ref().map(HttpSession::floor)
    }

    /// A server over HTTP may be back before the next try.
    async fn over(&self) {
        std::future::pending::<()>().await;
    }
}

impl HttpLeg {
    fn request(&self, call: Call, later: Option<EventSender>) -> Reply {
        let (sender, reply) = Reply::channel();
        let leg = self.clone();
        self.runner.jobs().spawn("request over HTTP", leg.runner.request(leg.session, call, sender, later));
        reply
    }
}
