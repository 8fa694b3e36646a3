//! Routes calls: tasks methods are answered here, tool calls are run, all else goes through.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tower::ServiceExt;
use tower_service::Service;

use super::forwards::Forwards;
use super::layer::StrangeStates;
use super::{advert, handle, listen, refused};
use crate::config::{AskPolicy, Fallback, Mode, ToolPolicy};
use crate::policy::Policies;
use crate::protocol::error::code;
use crate::protocol::{Abilities, Call, Caller, ClientSession, Method, Outcome, Reply, RpcError, TaskSupport};
use crate::runner::{
    Carries, Linger, Plan, Promotion, Questions, Runner, Way, What, is_request_state, strange_request_state,
};
use crate::store::Committed;
use crate::task::Task;

/// What the `requestState` of a call is.
enum State {
    /// There is none, or one for the service.
    None,
    Ours(String),
    Refused(RpcError),
}

/// An MCP service with tasks.
#[derive(Clone, Debug)]
pub struct TasksService<S> {
    inner: S,
    runner: Runner,
    policies: Policies,
    server: Arc<str>,
    linger: Linger,
    strange_states: StrangeStates,
    forwards: Forwards,
}

impl<S> TasksService<S> {
    pub(super) fn new(
        inner: S,
        runner: Runner,
        policies: Policies,
        server: Arc<str>,
        linger: Linger,
        strange_states: StrangeStates,
        forwards: Forwards,
    ) -> Self {
        Self { inner, runner, policies, server, linger, strange_states, forwards }
    }

    fn plan(&self, what: What, policy: &Arc<ToolPolicy>, way: Way, carries: Carries) -> Plan {
        Plan { server: Arc::clone(&self.server), what, way, policy: Arc::clone(policy), linger: self.linger, carries }
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
            // They last as long as the client wants, and a notification is no run.
            Method::Attach | Method::Notify(_) | Method::Resume(_) => self.inner.clone().oneshot(call).boxed(),
            Method::Listen => listen::listen(&self.runner, self.inner.clone(), call),
            Method::ListTools
            | Method::GetPrompt
            | Method::ListPrompts
            | Method::ReadResource
            | Method::ListResources
            | Method::ListResourceTemplates
            | Method::Complete
            | Method::Other(_) => std::future::ready(Ok(self.pass_on(call))).boxed(),
        }
    }
}

impl<S> TasksService<S>
where
    S: Service<Call, Response = Reply, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    /// Goes on with tasks of this server that an earlier process left open. To be called before clients can come.
    /// Returns at once.
    pub fn recover(&self, left: Vec<Committed<Task>>) {
        let planned = left.into_iter().map(|task| {
            let promotion = Promotion::AtOnce;
            let way = Way { promotion, questions: Questions::Promote, abilities: Abilities::none() };
            let policy = self.policies.of(&task.tool);
            let plan = self.plan(What::Tool(task.tool.clone()), policy, way, Carries::Nothing);
            (task, plan)
        });
        self.runner.recover(&self.inner, planned.collect());
    }

    /// Any other call is held until the server answers, but no longer than a tool would be.
    fn pass_on(&self, call: Call) -> Reply {
        let questions = match (&call.caller.session, &call.method) {
            (ClientSession::Legacy(_), _) => Questions::PassOn,
            // Only these may be answered with questions (2026-07-28, multi round-trip requests).
            (ClientSession::Stateless, Method::GetPrompt | Method::ReadResource) => Questions::RoundTrip,
            (ClientSession::Stateless, _) => Questions::Refuse,
        };
        let way = Way { promotion: Promotion::Never, questions, abilities: call.caller.abilities.clone() };
        if questions == Questions::RoundTrip {
            match self.state(&call) {
                State::None => {}
                State::Ours(state) => return self.runner.resume(&self.server, &state, call, way),
                State::Refused(error) => return Reply::ready(Outcome::Error(error)),
            }
        }
        let what = What::Other(call.method.name().to_owned());
        let carries = self.forwards.carries(&call.caller.credentials);
        let plan = self.plan(what, self.policies.defaults(), way, carries);
        self.runner.run(self.inner.clone(), call, plan)
    }

    fn call_tool(&self, call: Call) -> Reply {
        let Some(tool) = call.params.name() else {
            return Reply::ready(Outcome::Error(RpcError::new(
                code::INVALID_PARAMS,
                "Invalid params: tools/call needs the name of a tool (params.name, a string)",
            )));
        };
        let policy = self.policies.of(tool);
        let Some(way) = way(policy, &call.caller) else {
            let error = refused::needs_tasks(tool, self.policies.pattern_of(tool), &call.caller);
            return Reply::ready(Outcome::Error(error));
        };
        if call.caller.session == ClientSession::Stateless {
            match self.state(&call) {
                State::None => {}
                State::Ours(state) => return self.runner.resume(&self.server, &state, call, way),
                State::Refused(error) => return Reply::ready(Outcome::Error(error)),
            }
        }
        let carries = self.forwards.carries(&call.caller.credentials);
        let plan = self.plan(What::Tool(tool.to_owned()), policy, way, carries);
        self.runner.run(self.inner.clone(), call, plan)
    }
}

impl<S> TasksService<S> {
    /// What the `requestState` of a call is.
    fn state(&self, call: &Call) -> State {
        let Some(state) = call.params.request_state() else { return State::None };
        match (state.read::<String>(), self.strange_states) {
            (Ok(state), _) if is_request_state(&state) => State::Ours(state),
            (_, StrangeStates::PassOn) => State::None,
            (_, StrangeStates::Refuse) => State::Refused(strange_request_state()),
        }
    }
}

/// How a call of a tool goes on; `None` if this client cannot have what the tool needs.
fn way(policy: &ToolPolicy, caller: &Caller) -> Option<Way> {
    let promotion = match (policy.mode, caller.tasks) {
        (Mode::Sync, _) | (Mode::Auto, TaskSupport::Undeclared) => Promotion::Never,
        (Mode::Auto, TaskSupport::Declared) => Promotion::After(policy.after),
        (Mode::Task, TaskSupport::Declared) => Promotion::AtOnce,
        (Mode::Task, TaskSupport::Undeclared) => match policy.fallback {
            Fallback::Wait | Fallback::Handle | Fallback::LegacyTasks => Promotion::Never,
            Fallback::Refuse => return None,
        },
    };
    let abilities = caller.abilities.clone();
    if let ClientSession::Legacy(_) = caller.session {
        return Some(Way { promotion: Promotion::Never, questions: Questions::PassOn, abilities });
    }
    Some(match (promotion, policy.ask) {
        (Promotion::Never, _) => Way { promotion, questions: Questions::RoundTrip, abilities },
        (Promotion::After(_) | Promotion::AtOnce, AskPolicy::Task) => {
            Way { promotion, questions: Questions::Promote, abilities }
        }
        (then @ (Promotion::After(_) | Promotion::AtOnce), AskPolicy::First) => {
            // The first question gets its chance before there is a task.
            let promotion = Promotion::After(policy.after);
            Way { promotion, questions: Questions::First { then }, abilities }
        }
    })
}

/// Asks the server what it is (`server/discover`), and adds that it has tasks.
pub async fn discover<S>(inner: S, call: Call) -> Outcome
where
    S: Service<Call, Response = Reply, Error = Infallible>,
{
    let Ok(reply) = inner.oneshot(call).await;
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
