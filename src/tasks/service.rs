//! Routes calls: tasks methods are answered here, tool calls are run, all else goes through.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tower_service::Service;

use super::{advert, handle};
use crate::config::{Fallback, Mode, ToolPolicy};
use crate::policy::Policies;
use crate::protocol::error::code;
use crate::protocol::{Call, Method, Outcome, Reply, RpcError, TaskSupport};
use crate::runner::{Linger, Plan, Promotion, Runner};

/// An MCP service with tasks.
#[derive(Clone, Debug)]
pub struct TasksService<S> {
    inner: S,
    runner: Runner,
    policies: Policies,
    server: Arc<str>,
    linger: Linger,
}

impl<S> TasksService<S> {
    pub(super) fn new(inner: S, runner: Runner, policies: Policies, server: Arc<str>, linger: Linger) -> Self {
        Self { inner, runner, policies, server, linger }
    }

    fn plan(&self, tool: &str, policy: &ToolPolicy, promotion: Promotion) -> Plan {
        Plan {
            server: Arc::clone(&self.server),
            tool: tool.to_owned(),
            promotion,
            timeout: policy.timeout,
            queue_timeout: policy.queue_timeout,
            keep: policy.keep,
            max_running: policy.max_running,
            linger: self.linger,
        }
    }
}

impl<S> Service<Call> for TasksService<S>
where
    S: Service<Call, Response = Reply, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Reply;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Reply, Infallible>>;

    /// Always ready: `tasks/get` must be answered while the inner service is busy.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        match call.method {
            Method::GetTask | Method::UpdateTask | Method::CancelTask => {
                let runner = self.runner.clone();
                async move { Ok(Reply::ready(handle::answer(&runner, &call).await)) }.boxed()
            }
            Method::CallTool => std::future::ready(Ok(self.call_tool(call))).boxed(),
            Method::Discover => {
                let inner = self.inner.clone();
                async move { Ok(Reply::ready(discover(inner, call).await)) }.boxed()
            }
            _ => std::future::ready(Ok(self.pass_on(call))).boxed(),
        }
    }
}

impl<S> TasksService<S>
where
    S: Service<Call, Response = Reply, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    /// Any other call is held until the server answers, but no longer than a tool would be.
    fn pass_on(&self, call: Call) -> Reply {
        let plan = self.plan(call.method.name(), self.policies.defaults(), Promotion::Never);
        self.runner.run(self.inner.clone(), call, Plan { max_running: None, ..plan })
    }

    fn call_tool(&self, call: Call) -> Reply {
        let Some(tool) = call.params.name() else {
            return Reply::ready(Outcome::Error(RpcError::new(
                code::INVALID_PARAMS,
                "Invalid params: tools/call needs the name of a tool (params.name, a string)",
            )));
        };
        let policy = self.policies.of(tool);
        let promotion = match (policy.mode, call.caller.tasks) {
            (Mode::Sync, _) | (Mode::Auto, TaskSupport::Undeclared) => Promotion::Never,
            (Mode::Auto, TaskSupport::Declared) => Promotion::After(policy.after),
            (Mode::Task, TaskSupport::Declared) => Promotion::AtOnce,
            (Mode::Task, TaskSupport::Undeclared) => match policy.fallback {
                Fallback::Wait => Promotion::Never,
                Fallback::Refuse => return Reply::ready(Outcome::Error(RpcError::tasks_not_declared())),
            },
        };
        let plan = self.plan(tool, policy, promotion);
        self.runner.run(self.inner.clone(), call, plan)
    }
}

/// Asks the server what it is (`server/discover`), and adds that it has tasks.
pub async fn discover<S>(inner: S, call: Call) -> Outcome
where
    S: Service<Call, Response = Reply, Error = Infallible>,
{
    let Ok(reply) = tower::ServiceExt::oneshot(inner, call).await;
    match reply.outcome().await {
        Outcome::Result(result) => match advert::with_tasks(&result) {
            Ok(with_tasks) => Outcome::Result(with_tasks),
            Err(error) => {
                tracing::warn!(%error, "the server describes itself in a way that cannot be read");
                Outcome::Result(result)
            }
        },
        other => other,
    }
}
