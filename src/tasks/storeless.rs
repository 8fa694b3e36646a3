//! A server while its store is waited for: what needs none is answered all the same.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tower::ServiceExt;
use tower_service::Service;

use super::companion::Companions;
use super::legacy;
use crate::config::ServerConfig;
use crate::jobs::Jobs;
use crate::policy::Policies;
use crate::protocol::{Call, McpService, Method, Reply, TaskSupport};

/// Answers as a [`TasksService`](super::TasksService) would what needs no store: lists, and the beginning of a session.
#[derive(Clone, Debug)]
pub struct Storeless<S> {
    inner: S,
    policies: Policies,
    companions: Companions,
    jobs: Jobs,
}

impl<S> Storeless<S> {
    /// The server that `config` names, with `policies` for its tools. Lists are followed in `jobs`.
    pub fn new(inner: S, config: &ServerConfig, policies: Policies, jobs: &Jobs) -> Self {
        let companions = Companions::new(config.companion_tools.clone(), policies.clone());
        Self { inner, policies, companions, jobs: jobs.clone() }
    }

    /// Whether the call needs no store.
    pub fn answers(&self, call: &Call) -> bool {
        match call.method {
            Method::ListTools
            | Method::ListPrompts
            | Method::ListResources
            | Method::ListResourceTemplates
            | Method::Notify(_) => true,
            // Tasks of 2025-11-25 belong to a session from its beginning.
            Method::Attach => !legacy::offers_any(&self.policies),
            _ => false,
        }
    }
}

impl<S: McpService> Service<Call> for Storeless<S> {
    type Response = Reply;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let this = self.clone();
        if call.method != Method::ListTools {
            return this.inner.oneshot(call).boxed();
        }
        async move {
            let tells_support = call.caller.tasks == TaskSupport::Augmenting;
            let mut reply = this.inner.clone().oneshot(call.clone()).await?;
            if this.companions.are_offered() {
                let (companions, inner) = (this.companions, this.inner);
                reply = Reply::driven(&this.jobs, "list tools", |sender| companions.relay(inner, call, reply, sender));
            }
            if !tells_support {
                return Ok(reply);
            }
            let policies = this.policies;
            Ok(reply.changed(move |event| legacy::with_support(event, &policies)))
        }
        .boxed()
    }
}
