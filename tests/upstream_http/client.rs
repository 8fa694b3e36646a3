//! Calls through an upstream, and what comes out of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use raincheck::config::{Limits, ServerConfig, Transport};
use raincheck::jobs::Jobs;
use raincheck::protocol::{
    Call, Caller, Credentials, Event, Failure, Json, Method, Outcome, Params, Principal, Reply, RpcError, WaitsFor,
};
use raincheck::upstream::Upstream;
use tokio::time::Instant;
use tower_service::Service;

use crate::http_server::{PATIENCE, Server};

/// An upstream over HTTP.
pub(crate) struct Client {
    pub(crate) upstream: Upstream,
    pub(crate) jobs: Jobs,
}

/// Everything that came out of a call.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) progress: Vec<String>,
    pub(crate) logs: usize,
    pub(crate) outcome: Outcome,
}

pub(crate) fn config(server: &Server) -> ServerConfig {
    let transport = Transport::Http {
        url: server.url().parse().unwrap(),
        headers: HeaderMap::new(),
        forward: vec![HeaderName::from_static("authorization")],
    };
    let connect_timeout = Duration::from_secs(5);
    ServerConfig { connect_timeout, max_sessions: 8, ..ServerConfig::new("scripted", transport) }
}

/// A client of `server`, with the usual settings.
pub(crate) fn client(server: &Server) -> Client {
    client_with(config(server), &Limits::default())
}

pub(crate) fn client_with(config: ServerConfig, limits: &Limits) -> Client {
    let jobs = Jobs::new();
    Client { upstream: Upstream::new(Arc::new(config), limits, &jobs), jobs }
}

pub(crate) fn caller(principal: Principal, token: Option<&str>) -> Caller {
    let mut headers = HeaderMap::new();
    if let Some(token) = token {
        headers.insert("authorization", HeaderValue::from_str(token).unwrap());
    }
    let params = Params::read(&Method::CallTool, None).unwrap();
    Caller::of_modern(&params, principal, Credentials::new(headers))
}

pub(crate) fn call_of(method: &str, params: &str, caller: Caller) -> Call {
    let method = Method::of(method);
    let params = Json::parse(Bytes::from(params.to_owned())).unwrap();
    let params = Params::read(&method, Some(params)).unwrap();
    Call { method, params, caller, arrived: Instant::now() }
}

impl Client {
    pub(crate) async fn send(&self, call: Call) -> Reply {
        self.upstream.clone().call(call).await.unwrap()
    }

    /// Begins to call a tool.
    pub(crate) async fn tool(&self, name: &str) -> Reply {
        self.send(call_of("tools/call", &format!(r#"{{"name":"{name}"}}"#), caller(Principal::Local, None))).await
    }

    /// Calls a tool to its end.
    pub(crate) async fn call(&self, name: &str) -> Seen {
        all(self.tool(name).await).await
    }

    /// `tools/list` to its end.
    pub(crate) async fn list(&self) -> Seen {
        all(self.send(call_of("tools/list", "{}", caller(Principal::Local, None))).await).await
    }

    pub(crate) async fn close(&self) {
        tokio::time::timeout(PATIENCE, self.upstream.close()).await.expect("closing hangs");
    }
}

/// Everything that comes out of a call.
pub(crate) async fn all(mut reply: Reply) -> Seen {
    let read = async {
        let (mut progress, mut logs) = (Vec::new(), 0);
        while let Some(event) = reply.next().await {
            match event {
                Event::Progress(at) => progress.push(at.describe()),
                Event::Log(_) => logs += 1,
                Event::Ask(_)
                | Event::Notification(_)
                | Event::Attached(_)
                | Event::Paused
                | Event::Anchored(_)
                | Event::Waits(_)
                | Event::Began => {}
                Event::Done(outcome) => return Seen { progress, logs, outcome },
            }
        }
        panic!("a reply without an outcome");
    };
    tokio::time::timeout(PATIENCE, read).await.expect("the call hangs")
}

/// Reads what comes before a call goes to a server that is not connected to yet: that it waits for that, and that it
/// begins.
pub(crate) async fn waits_for_connection(reply: &mut Reply) {
    for begins in [false, true] {
        let said = tokio::time::timeout(PATIENCE, reply.next()).await.expect("the call hangs");
        match said {
            Some(Event::Waits(WaitsFor::Connection)) if !begins => assert!(reply.keep_back(), "it does not wait"),
            Some(Event::Began) if begins => reply.let_go(),
            said => panic!("{said:?}"),
        }
    }
}

impl Seen {
    pub(crate) fn result(&self) -> &str {
        match &self.outcome {
            Outcome::Result(result) => result.as_str(),
            other => panic!("no result: {other:?}"),
        }
    }

    pub(crate) fn failure(&self) -> &Failure {
        match &self.outcome {
            Outcome::Failed(failure) => failure,
            other => panic!("no failure: {other:?}"),
        }
    }

    pub(crate) fn error(&self) -> &RpcError {
        match &self.outcome {
            Outcome::Error(error) => error,
            other => panic!("no error: {other:?}"),
        }
    }

    pub(crate) fn says(&self, text: &str) {
        assert!(self.result().contains(&format!("{text:?}")), "{}", self.result());
    }
}
