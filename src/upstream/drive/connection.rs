//! Calls on a connection on which messages go both ways: driven where the server needs that.

use super::{Leg, Manners, legacy, may_be_task, modern, must_be_driven};
use crate::protocol::{Call, ClientSession, EventSender, Outcome, Reason, Reply, ReplySender};
use crate::upstream::outcome;
use crate::upstream::questions::Floor;
use crate::upstream::stdio::connection::{Connection, Handed};
use crate::upstream::wire::ServerEra;

impl Leg for Connection {
    fn send(&self, call: Call) -> Reply {
        send(self, call, None)
    }

    fn send_as_task(&self, call: Call, later: EventSender) -> Reply {
        send(self, call, Some(later))
    }

    fn floor(&self) -> Option<&Floor> {
        Some(Self::floor(self))
    }

    async fn over(&self) {
        Self::over(self).await;
    }
}

fn send(connection: &Connection, call: Call, later: Option<EventSender>) -> Reply {
    let (sender, reply) = Reply::channel();
    let connection = connection.clone();
    connection.setup().jobs.clone().spawn("request on a connection", async move {
        if let Handed::NotTaken(sender) = connection.call_as(&call, sender, later).await {
            let server = &connection.setup().config.name;
            sender.done(Outcome::Failed(outcome::not_started(server, "the connection to it has ended")));
        }
    });
    reply
}

/// Makes a call.
pub(in crate::upstream) async fn on_connection(
    connection: &Connection,
    call: &Call,
    mut sender: ReplySender,
) -> Handed {
    let setup = connection.setup();
    let (server, manners) = (&setup.config.name, Manners::of(&setup.config));
    let outcome = match (connection.era(), &call.caller.session, connection.floor().needs()) {
        (ServerEra::Modern, ClientSession::Legacy(_), _) => {
            setup.shared.guests.call(connection, server, manners, call, &mut sender).await
        }
        (ServerEra::Modern, ClientSession::Stateless, _) if must_be_driven(&call.method) => {
            modern(connection, manners, call.clone(), &mut sender).await
        }
        (ServerEra::Legacy, _, Some(needs)) if may_be_task(call, needs) => {
            legacy(connection, needs, manners, call.clone(), &mut sender).await
        }
        (ServerEra::Modern | ServerEra::Legacy, ..) => return connection.call(call, sender).await,
    };
    match outcome {
        // Nothing of it was sent, so it may go to another connection.
        Outcome::Failed(failure)
            if failure.reason == Reason::NotStarted && connection.is_over() && !sender.is_cancelled() =>
        {
            Handed::NotTaken(sender)
        }
        outcome => {
            sender.done(outcome);
            Handed::Over
        }
    }
}
