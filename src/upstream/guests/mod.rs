//! Legacy clients in front of a modern server, which knows no sessions: what such a client may expect of its session
//! is kept and answered here, and its requests go on as requests that stand alone.

mod attached;
mod listen;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::drive::{self, Leg, Manners};
use super::handshake::ServerInfo;
use super::outcome;
use crate::protocol::error::code;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{
    Call, ClientSession, Event, Failure, Json, JsonError, Method, Outcome, Params, ReplySender, RpcError, meta_key,
    reshape,
};
use crate::shared_map::SharedMap;

/// The legacy clients of one server. Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Guests(Arc<SharedMap<u64, Arc<Guest>>>);

/// What one client has set in its session.
#[derive(Debug)]
struct Guest {
    log_level: Mutex<Option<Json>>,
    resources: watch::Sender<BTreeSet<String>>,
}

/// A client's place, given up when this is dropped.
struct Place(Guests, u64);

/// Resources that one client may watch.
const RESOURCES: usize = 1024;

/// The levels of 2025-11-25, logging.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

impl Guests {
    /// Keeps the session of the client that `call` attaches, until it leaves.
    pub(super) async fn host<L: Leg>(&self, leg: &L, server: &ServerInfo, call: &Call, sender: &ReplySender) {
        let ClientSession::Legacy(number) = call.caller.session else { return };
        let (resources, watched) = watch::channel(BTreeSet::new());
        self.0.insert(number, Arc::new(Guest { log_level: Mutex::default(), resources }));
        let _place = Place(self.clone(), number);
        sender.event(Event::Attached(attached::result(server, call.params.raw())));
        tokio::select! {
            () = listen::listen(leg, server, call, watched, sender) => {}
            () = sender.cancelled() => {}
        }
    }

    /// A request or notification of an attached client, to its outcome in the shape of its era.
    pub(super) async fn call<L: Leg>(
        &self,
        leg: &L,
        server: &str,
        manners: Manners,
        call: &Call,
        sender: &mut ReplySender,
    ) -> Outcome {
        let guest = match call.caller.session {
            ClientSession::Legacy(number) => self.0.get(&number),
            ClientSession::Stateless => None,
        };
        let Some(guest) = guest else {
            return Outcome::Failed(outcome::not_started(server, "the client's session with it has ended"));
        };
        if let Some(answered) = guest.answer(call) {
            return answered.map_or_else(Outcome::Error, |()| Outcome::Result(Json::empty_object()));
        }
        let method = call.method.clone();
        let mut call = call.clone();
        if let Some(params) = guest.with_log_level(&call) {
            call.params = params;
        }
        match drive::modern(leg, manners, call, sender).await {
            Outcome::Result(result) => match reshape::legacy_result(&method, &result) {
                Ok(result) => Outcome::Result(result.into_json()),
                Err(error) => Outcome::Failed(unreadable(&error)),
            },
            other => other,
        }
    }
}

impl Guest {
    /// What is answered here; `None` for what goes to the server.
    fn answer(&self, call: &Call) -> Option<Result<(), RpcError>> {
        match &call.method {
            // 2026-07-28 has none that a client would send.
            Method::Notify(_) => Some(Ok(())),
            Method::GetTask | Method::UpdateTask | Method::CancelTask => {
                Some(Err(RpcError::method_not_found(call.method.name())))
            }
            Method::Other(name) => match name.as_str() {
                "ping" => Some(Ok(())),
                "logging/setLevel" => Some(self.set_level(call)),
                "resources/subscribe" => Some(self.watch(call, true)),
                "resources/unsubscribe" => Some(self.watch(call, false)),
                "tasks/result" | "tasks/list" => Some(Err(RpcError::method_not_found(name))),
                _ => None,
            },
            _ => None,
        }
    }

    fn set_level(&self, call: &Call) -> Result<(), RpcError> {
        let level = call.params.raw().member("level");
        let known = level.as_ref().and_then(|level| level.read::<String>().ok());
        if known.is_none_or(|level| !LEVELS.contains(&level.as_str())) {
            return Err(RpcError::new(code::INVALID_PARAMS, "Invalid params: level is none of the log levels"));
        }
        *self.log_level.lock().unwrap_or_else(PoisonError::into_inner) = level;
        Ok(())
    }

    fn watch(&self, call: &Call, wanted: bool) -> Result<(), RpcError> {
        let uri = call.params.raw().member("uri").and_then(|uri| uri.read::<String>().ok());
        let uri = uri.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "Invalid params: uri must be a string"))?;
        let mut full = false;
        self.resources.send_if_modified(|resources| {
            if !wanted {
                return resources.remove(&uri);
            }
            full = resources.len() >= RESOURCES && !resources.contains(&uri);
            !full && resources.insert(uri)
        });
        let text = "Invalid params: too many resources are subscribed to in this session";
        if full { Err(RpcError::new(code::INVALID_PARAMS, text)) } else { Ok(()) }
    }

    /// The parameters with the level of the session, where a modern server looks for it on each request.
    fn with_log_level(&self, call: &Call) -> Option<Params> {
        let level = self.log_level.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let mut meta = ObjectWriter::new();
        if let Some(given) = call.params.meta() {
            meta.members_of(given, |name| name != meta_key::LOG_LEVEL).ok()?;
        }
        meta.raw(meta_key::LOG_LEVEL, &level);
        let mut params = ObjectWriter::new();
        params.members_of(call.params.raw(), |name| name != "_meta").ok()?;
        params.raw("_meta", &meta.finish_json());
        Params::read(&call.method, Some(params.finish_json())).ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.remove(&self.1);
    }
}

fn unreadable(error: &JsonError) -> Failure {
    use crate::protocol::{Reason, Retry};
    Failure::new(Reason::BadAnswer, format!("the server's result cannot be read: {error}"), Retry::Unknown)
}
