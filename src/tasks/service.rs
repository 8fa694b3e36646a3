//! Routes calls: tasks methods are answered here, tool calls are run, all else goes through.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tower::ServiceExt;
use tower_service::Service;

use super::companion::Companions;
use super::forwards::Forwards;
use super::layer::StrangeStates;
use super::{advert, fallback, handle, legacy, listen};
use crate::config::ToolPolicy;
use crate::policy::Policies;
use crate::protocol::error::code;
use crate::protocol::{Abilities, Call, ClientSession, McpService, Method, Outcome, Reply, RpcError, TaskSupport};
use crate::runner::{
    Carries, Form, Linger, Plan, Promotion, Questions, Runner, Sends, Way, What, is_request_state,
    strange_request_state,
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
    pub(super) inner: S,
    pub(super) runner: Runner,
    pub(super) policies: Policies,
    pub(super) server: Arc<str>,
    pub(super) linger: Linger,
    pub(super) sends: Sends,
    pub(super) strange_states: StrangeStates,
    pub(super) forwards: Forwards,
    pub(super) companions: Companions,
    /// Those of legacy clients with tasks of their own revision.
    pub(super) sessions: legacy::Sessions,
}

impl<S> TasksService<S> {
    fn plan(&self, what: What, policy: &Arc<ToolPolicy>, way: Way, carries: Carries) -> Plan {
        let (server, policy) = (Arc::clone(&self.server), Arc::clone(policy));
        Plan { server, what, way, policy, linger: self.linger, sends: self.sends, carries }
    }
}

/// Bytes of the longest name of a tool of which there may be tasks: their records are small. The specification wants 128.
const LONGEST_TOOL: usize = 1024;

impl<S: McpService> Service<Call> for TasksService<S> {
    type Response = Reply;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Reply, Infallible>>;

    /// Always ready: `tasks/get` must be answered while the inner service is busy.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        match call.method {
            _ if legacy::is_ours(&call) => {
                let (runner, sessions) = (self.runner.clone(), self.sessions.clone());
                async move { Ok(legacy::answer(&runner, &sessions, call).await) }.boxed()
            }
            Method::GetTask | Method::UpdateTask | Method::CancelTask => {
                let runner = self.runner.clone();
                async move { Ok(Reply::ready(handle::answer(&runner, &call).await)) }.boxed()
            }
            Method::CallTool if self.companions.are_offered() => {
                let service = self.clone();
                async move { Ok(service.call_tool_or_companion(call).await) }.boxed()
            }
            Method::CallTool => std::future::ready(Ok(self.call_tool(call))).boxed(),
            Method::ListTools => std::future::ready(Ok(self.list_tools(call))).boxed(),
            Method::Discover => {
                let inner = self.inner.clone();
                async move { Ok(Reply::ready(discover(inner, call).await)) }.boxed()
            }
            Method::Attach if legacy::offers_any(&self.policies) => {
                let (inner, sessions) = (self.inner.clone(), self.sessions.clone());
                let (principal, session) = (call.caller.principal.clone(), call.caller.session.clone());
                let attach = async move {
                    let reply = inner.oneshot(call).await?;
                    let opened = sessions.open(&session, &reply);
                    Ok(reply.changed(move |event| {
                        // With the reply the session goes.
                        let _ = &opened;
                        legacy::offer(event, &principal)
                    }))
                };
                attach.boxed()
            }
            // They last as long as the client wants, and a notification is no run.
            Method::Attach | Method::Notify(_) | Method::Resume(_) => self.inner.clone().oneshot(call).boxed(),
            Method::Listen => listen::listen(&self.runner, self.inner.clone(), call),
            Method::GetPrompt
            | Method::ListPrompts
            | Method::ReadResource
            | Method::ListResources
            | Method::ListResourceTemplates
            | Method::Complete
            | Method::Other(_) => std::future::ready(Ok(self.pass_on(call))).boxed(),
        }
    }
}

impl<S: McpService> TasksService<S> {
    /// Goes on with tasks of this server that an earlier process left open. To be called before clients can come.
    /// Returns at once.
    pub fn recover(&self, left: Vec<Committed<Task>>) {
        let planned = left.into_iter().map(|task| {
            let promotion = Promotion::AtOnce;
            let (abilities, session) = (Abilities::none(), ClientSession::Stateless);
            let way = Way { promotion, questions: Questions::Promote, abilities, form: Form::Task, session };
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
        let (abilities, session) = (call.caller.abilities.clone(), call.caller.session.clone());
        let way = Way { promotion: Promotion::Never, questions, abilities, form: Form::Task, session };
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

    /// The tools of the server, with what is said of them and those beside them.
    fn list_tools(&self, call: Call) -> Reply {
        let tells_support = call.caller.tasks == TaskSupport::Augmenting;
        let reply = if self.companions.are_offered() {
            let first = self.pass_on(call.clone());
            self.companions.list(&self.runner, self.inner.clone(), call, first)
        } else {
            self.pass_on(call)
        };
        if !tells_support {
            return reply;
        }
        let policies = self.policies.clone();
        reply.changed(move |event| legacy::with_support(event, &policies))
    }

    /// A call of a tool of a server beside whose tools others are listed.
    async fn call_tool_or_companion(self, call: Call) -> Reply {
        let Some(tool) = call.params.name() else { return self.call_tool(call) };
        if self.companions.may_be(tool) || fallback::speaks(self.policies.of(tool)) {
            // What the others are called depends on what the server calls its own.
            self.companions.learn(self.inner.clone(), &call).await;
        }
        match self.companions.called(tool) {
            Some(companion) => companion.answer(&self.runner, call),
            None => self.call_tool(call),
        }
    }

    fn call_tool(&self, call: Call) -> Reply {
        let Some(tool) = call.params.name() else {
            return Reply::ready(Outcome::Error(RpcError::new(
                code::INVALID_PARAMS,
                "Invalid params: tools/call needs the name of a tool (params.name, a string)",
            )));
        };
        let (tool, policy) = (tool.to_owned(), self.policies.of(tool));
        let tool = tool.as_str();
        let carries = self.forwards.carries(&call.caller.credentials);
        let call = match legacy::asked(call, tool, policy, &self.runner, &self.sessions) {
            legacy::Asked::Nothing(call) => call,
            legacy::Asked::Task(call, way) => {
                let plan = self.plan(What::Tool(tool.to_owned()), policy, way, carries);
                return self.runner.run(self.inner.clone(), call, plan);
            }
            legacy::Asked::Refused(error) => return Reply::ready(Outcome::Error(error)),
        };
        let way = match fallback::way(tool, &self.policies, &call.caller, &self.companions) {
            Ok(way) => way,
            Err(refused) => return Reply::ready(refused),
        };
        if way.promotion != Promotion::Never && tool.len() > LONGEST_TOOL {
            let message =
                format!("Invalid params: the name of a tool that may become a task has {LONGEST_TOOL} bytes at most");
            return Reply::ready(Outcome::Error(RpcError::new(code::INVALID_PARAMS, message)));
        }
        if call.caller.session == ClientSession::Stateless {
            match self.state(&call) {
                State::None => {}
                State::Ours(state) => return self.runner.resume(&self.server, &state, call, way),
                State::Refused(error) => return Reply::ready(Outcome::Error(error)),
            }
        }
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

/// Asks the server what it is (`server/discover`), and adds that it has tasks.
pub async fn discover<S: McpService>(inner: S, call: Call) -> Outcome {
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
