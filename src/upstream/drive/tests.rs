//! The drivers against a server that a test plays.

mod rounds;

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::*;
use crate::jobs::Jobs;
use crate::protocol::error::code;
use crate::protocol::{Answer, Caller, Credentials, Json, Method, Params, Principal, RpcError, TaskSupport};
use crate::upstream::questions::Floor;

/// No wait is longer; the clock is paused.
const LONG: Duration = Duration::from_hours(1);

/// A leg whose requests come out at the other end, with the way to answer them.
#[derive(Debug)]
struct Wire(mpsc::UnboundedSender<(Call, ReplySender)>);

/// The server that a test plays.
struct Server(mpsc::UnboundedReceiver<(Call, ReplySender)>);

impl Leg for Wire {
    fn send(&self, call: Call) -> Reply {
        let (sender, reply) = Reply::channel();
        self.0.send((call, sender)).unwrap();
        reply
    }

    fn send_as_task(&self, call: Call, _: EventSender) -> Reply {
        self.send(call)
    }

    fn floor(&self) -> Option<&Floor> {
        None
    }

    async fn over(&self) {
        std::future::pending::<()>().await;
    }
}

impl Server {
    async fn take(&mut self, method: &str) -> (Call, ReplySender) {
        let taken = timeout(LONG, self.0.recv()).await.expect("no request comes").unwrap();
        assert_eq!(taken.0.method.name(), method, "{}", taken.0.params.raw().as_str());
        taken
    }

    /// Takes a request of that method and answers it with this result. Returns its parameters.
    async fn answer(&mut self, method: &str, result: &str) -> serde_json::Value {
        let (call, sender) = self.take(method).await;
        sender.done(Outcome::Result(json(result)));
        params(&call)
    }

    fn is_idle(&mut self) -> bool {
        self.0.try_recv().is_err()
    }
}

fn json(text: &str) -> Json {
    Json::parse(Bytes::from(text.to_owned())).unwrap()
}

fn params(call: &Call) -> serde_json::Value {
    call.params.raw().read().unwrap()
}

fn call_of(method: &Method, params: &str) -> Call {
    let params = Params::read(method, Some(json(params))).unwrap();
    let caller = Caller::of_modern(&params, Principal::Local, Credentials::default());
    Call { method: method.clone(), params, caller, arrived: Instant::now() }
}

const ABLE: &str = r#"{"name":"t","arguments":{"n":1.0},"inputResponses":{"theirs":{}},"requestState":"theirs",
    "_meta":{"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"sampling":{}}}}"#;

fn manners() -> Manners {
    Manners { forward: ForwardCancel::Forward, grace: Duration::from_secs(30) }
}

fn modern_call(call: Call, manners: Manners) -> (Server, Reply, JoinHandle<()>) {
    let (requests, server) = mpsc::unbounded_channel();
    let (mut sender, reply) = Reply::channel();
    let job = Jobs::new().spawn("call", async move {
        let outcome = modern(&Wire(requests), manners, call, &mut sender).await;
        sender.done(outcome);
    });
    (Server(server), reply, job)
}

fn legacy_call(needs: Needs, manners: Manners) -> (Server, Reply, JoinHandle<()>) {
    let (requests, server) = mpsc::unbounded_channel();
    let (mut sender, reply) = Reply::channel();
    let call = call_of(&Method::CallTool, ABLE);
    let job = Jobs::new().spawn("call", async move {
        let outcome = legacy(&Wire(requests), &needs, manners, call, &mut sender).await;
        sender.done(outcome);
    });
    (Server(server), reply, job)
}

fn able() -> Needs {
    Needs::of(&json(r#"{"tasks":{"requests":{"tools":{"call":{}}}}}"#))
}

async fn question(reply: &mut Reply) -> crate::protocol::Ask {
    loop {
        match timeout(LONG, reply.next()).await.expect("nothing is asked") {
            Some(Event::Ask(ask)) => return ask,
            Some(Event::Progress(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn result(reply: Reply) -> String {
    match timeout(LONG, reply.outcome()).await.expect("the call hangs") {
        Outcome::Result(result) => result.as_str().to_owned(),
        other => panic!("{other:?}"),
    }
}

async fn failure(reply: Reply) -> Failure {
    match timeout(LONG, reply.outcome()).await.expect("the call hangs") {
        Outcome::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

fn asks(key: &str, method: &str) -> String {
    format!(r#""{key}":{{"method":"{method}","params":{{"message":"{key}?"}}}}"#)
}

fn input_required(requests: &str, state: &str) -> String {
    format!(r#"{{"resultType":"input_required","inputRequests":{{{requests}}},"requestState":"{state}"}}"#)
}

#[tokio::test(start_paused = true)]
async fn rounds_of_questions_are_put_to_the_caller_and_answered_by_retries() {
    let (mut server, mut reply, _job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
    let both = [asks("who", "elicitation/create"), asks("what", "sampling/createMessage")].join(",");
    let first = server.answer("tools/call", &input_required(&both, "s-1")).await;
    assert_eq!((&first["inputResponses"], &first["requestState"]), (&().into(), &().into()), "the caller's own");
    let (one, two) = (question(&mut reply).await, question(&mut reply).await);
    assert_eq!((one.question().key.as_deref(), two.question().key.as_deref()), (Some("who"), Some("what")));
    two.answer(Answer::Result(json(r#"{"model":"m", "n":1e2}"#)));
    one.answer(Answer::Result(json(r#"{"action":"accept"}"#)));
    let (again, sender) = server.take("tools/call").await;
    let expected =
        r#""inputResponses":{"who":{"action":"accept"},"what":{"model":"m", "n":1e2}},"requestState":"s-1"}"#;
    assert!(again.params.raw().as_str().ends_with(expected), "{}", again.params.raw().as_str());
    assert_eq!(params(&again)["arguments"], params(&call_of(&Method::CallTool, ABLE))["arguments"]);
    // A round without questions, then one without a state.
    sender.done(Outcome::Result(json(r#"{"resultType":"input_required","requestState":"s-2"}"#)));
    let third = r#"{"resultType":"input_required","inputRequests":{"x":{"method":"elicitation/create"}}}"#;
    let seen = server.answer("tools/call", third).await;
    assert_eq!((&seen["inputResponses"], &seen["requestState"]), (&().into(), &"s-2".into()));
    let refused = question(&mut reply).await;
    drop(refused);
    let seen = server.answer("tools/call", r#"{"resultType":"complete","content":[]}"#).await;
    assert_eq!(seen["inputResponses"]["x"]["action"], "cancel");
    assert_eq!(seen["requestState"], serde_json::Value::Null);
    assert_eq!(result(reply).await, r#"{"resultType":"complete","content":[]}"#);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_without_end_or_what_cannot_be_asked_is_given_up() {
    for empty in ["", r#""inputRequests":{},"#] {
        let (mut server, reply, _job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
        let began = Instant::now();
        for _ in 0..8 {
            let asks = format!(r#"{{"resultType":"input_required",{empty}"requestState":"s"}}"#);
            server.answer("tools/call", &asks).await;
        }
        let failure = failure(reply).await;
        assert_eq!(failure.reason, Reason::BadAnswer);
        assert!(
            failure.message.contains("8 times in a row") && failure.message.contains("inputRequests"),
            "{failure:?}"
        );
        assert!(server.is_idle() && began.elapsed() < Duration::from_secs(10));
    }
    for odd in [
        r#"{"resultType":"input_required"}"#,
        r#"{"resultType":"input_required","inputRequests":{"a":{"method":"made/up"}}}"#,
        r#"{"resultType":"input_required","inputRequests":[]}"#,
        r#"{"resultType":"later"}"#,
    ] {
        let (mut server, reply, _job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
        server.answer("tools/call", odd).await;
        assert_eq!(failure(reply).await.reason, Reason::BadAnswer, "{odd}");
    }
    let (mut server, reply, _job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
    server.answer("tools/call", &input_required(&asks("r", "roots/list"), "s")).await;
    let Outcome::Error(error) = reply.outcome().await else { panic!() };
    assert_eq!(error.code(), code::MISSING_CAPABILITY);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_or_left_while_it_asks_is_over_and_its_question_withdrawn() {
    for leaves in [false, true] {
        let (mut server, mut reply, job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
        server.answer("tools/call", &input_required(&asks("a", "elicitation/create"), "s")).await;
        let ask = question(&mut reply).await;
        if leaves {
            drop(reply);
        } else {
            reply.cancel();
            assert_eq!(failure(reply).await.reason, Reason::OutcomeUnknown);
        }
        timeout(LONG, ask.withdrawn()).await.unwrap();
        job.await.unwrap();
        assert!(server.is_idle());
    }
}

const CREATED: &str = r#"{"resultType":"task","taskId":"theirs","status":"working","ttlMs":null,"pollIntervalMs":500}"#;

fn stands(status: &str, more: &str) -> String {
    format!(r#"{{"resultType":"complete","taskId":"theirs","status":"{status}","ttlMs":null{more}}}"#)
}

fn wants_tasks() -> RpcError {
    RpcError::tasks_not_declared()
}

#[tokio::test(start_paused = true)]
async fn the_extension_is_declared_only_to_a_server_that_demands_it_and_its_task_becomes_a_plain_result() {
    let (mut server, mut reply, _job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
    let (first, sender) = server.take("tools/call").await;
    assert_eq!(first.caller.tasks, TaskSupport::Undeclared);
    sender.done(Outcome::Error(wants_tasks()));
    let (second, sender) = server.take("tools/call").await;
    assert_eq!(second.caller.tasks, TaskSupport::Declared);
    let began = Instant::now();
    sender.done(Outcome::Result(json(CREATED)));
    for message in ["half", "half", "nearly"] {
        let seen = server
            .answer("tasks/get", &stands("working", &format!(r#","statusMessage":"{message}","pollIntervalMs":500"#)))
            .await;
        assert_eq!(seen, serde_json::json!({ "taskId": "theirs" }));
    }
    assert_eq!(began.elapsed(), Duration::from_millis(1500));
    server.answer("tasks/get", &stands("completed", r#","result":{"content":[],"n":1E2}"#)).await;
    let mut progress = Vec::new();
    while let Some(Event::Progress(at)) = reply.next().await {
        progress.push(at.describe());
        if progress.len() == 2 {
            break;
        }
    }
    assert_eq!(progress, ["1: half", "2: nearly"]);
    assert_eq!(result(reply).await, r#"{"content":[],"n":1E2}"#);
}

#[tokio::test(start_paused = true)]
async fn questions_of_a_modern_task_are_put_once_answered_by_key_and_withdrawn_with_it() {
    let (mut server, mut reply, _job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
    server.answer("tools/call", CREATED).await;
    let requests = |keys: &[&str]| {
        let all: Vec<_> = keys.iter().map(|key| asks(key, "elicitation/create")).collect();
        format!(r#","inputRequests":{{{}}}"#, all.join(","))
    };
    for _ in 0..2 {
        server.answer("tasks/get", &stands("input_required", &requests(&["a", "b"]))).await;
    }
    let (a, b) = (question(&mut reply).await, question(&mut reply).await);
    a.answer(Answer::Result(json(r#"{"action":"accept"}"#)));
    let update = server.answer("tasks/update", "{}").await;
    assert_eq!(update, serde_json::json!({ "taskId": "theirs", "inputResponses": { "a": { "action": "accept" } } }));
    // Eventually consistent: the answered key may still be shown.
    server.answer("tasks/get", &stands("input_required", &requests(&["a", "b"]))).await;
    server.answer("tasks/get", &stands("input_required", &requests(&["c"]))).await;
    timeout(LONG, b.withdrawn()).await.unwrap();
    let c = question(&mut reply).await;
    assert_eq!(c.question().key.as_deref(), Some("c"));
    server.answer("tasks/get", &stands("failed", r#","error":{"code":-7,"message":"m","z":1}"#)).await;
    let Outcome::Error(error) = reply.outcome().await else { panic!() };
    assert_eq!(error.raw().as_str(), r#"{"code":-7,"message":"m","z":1}"#);
    timeout(LONG, c.withdrawn()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_task_is_never_one_of_the_protocol() {
    let (mut server, reply, _job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
    server.answer("tools/call", CREATED).await;
    server.answer("tasks/get", &stands("failed", r#","error":{"code":-32022,"message":"m"}"#)).await;
    let Outcome::Error(error) = reply.outcome().await else { panic!() };
    assert_eq!(error.code(), -31022, "its client would call again");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_asked_after_for_a_while_is_not_given_up_and_one_that_is_gone_is_unknown() {
    let (mut server, reply, _job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
    server.answer("tools/call", CREATED).await;
    for _ in 0..5 {
        let (_, sender) = server.take("tasks/get").await;
        sender.done(unknown("the connection broke"));
    }
    server.answer("tasks/get", &stands("completed", r#","result":{}"#)).await;
    assert_eq!(result(reply).await, "{}");

    let (mut server, reply, _job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
    server.answer("tools/call", CREATED).await;
    let (_, sender) = server.take("tasks/get").await;
    sender.done(Outcome::Error(RpcError::unknown_task()));
    assert_eq!(failure(reply).await.reason, Reason::OutcomeUnknown);

    let (mut server, reply, _job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
    server.answer("tools/call", CREATED).await;
    for _ in 0..8 {
        let (_, sender) = server.take("tasks/get").await;
        sender.done(unknown("the connection broke"));
    }
    assert_eq!(failure(reply).await.reason, Reason::OutcomeUnknown);
    assert!(server.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_becomes_one_of_the_servers_task_and_its_answer_may_still_win() {
    let (mut server, reply, _job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
    server.answer("tools/call", CREATED).await;
    server.answer("tasks/get", &stands("working", "")).await;
    reply.cancel();
    assert_eq!(server.answer("tasks/cancel", "{}").await, serde_json::json!({ "taskId": "theirs" }));
    server.answer("tasks/get", &stands("completed", r#","result":{}"#)).await;
    assert_eq!(result(reply).await, "{}");

    // A server that never stops is waited for no longer than `cancel_grace`.
    let (mut server, reply, job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
    server.answer("tools/call", CREATED).await;
    reply.cancel();
    let began = Instant::now();
    server.answer("tasks/cancel", "{}").await;
    let busy = Jobs::new().spawn("server", async move {
        loop {
            server.answer("tasks/get", &stands("working", "")).await;
        }
    });
    assert_eq!(failure(reply).await.reason, Reason::OutcomeUnknown);
    assert!((30..=32).contains(&began.elapsed().as_secs()));
    job.await.unwrap();
    busy.abort();

    // A caller that leaves.
    let (mut server, reply, job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
    server.answer("tools/call", CREATED).await;
    server.answer("tasks/get", &stands("working", "")).await;
    drop(reply);
    server.answer("tasks/cancel", "{}").await;
    job.await.unwrap();
    assert!(server.is_idle());

    // Where a cancel is never forwarded.
    let never = Manners { forward: ForwardCancel::Never, ..manners() };
    let (mut server, reply, job) = modern_call(call_of(&Method::CallTool, ABLE), never);
    server.answer("tools/call", CREATED).await;
    drop(reply);
    job.await.unwrap();
    assert!(server.is_idle());
}

const TOOLS: &str = r#"{"tools":[{"name":"a","execution":{"taskSupport":"optional"}},{"name":"b"}],"nextCursor":"2"}"#;
const MORE: &str = r#"{"tools":[{"name":"t","execution":{"taskSupport":"required"}}]}"#;

fn old(status: &str, more: &str) -> String {
    format!(r#"{{"taskId":"old","status":"{status}","ttl":60000,"pollInterval":2000{more}}}"#)
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_must_be_a_task_of_2025_11_25_is_made_one_and_its_result_is_a_plain_one() {
    let needs = able();
    let (mut server, mut reply, _job) = legacy_call(needs.clone(), manners());
    assert_eq!(server.answer("tools/list", TOOLS).await, serde_json::json!({}));
    assert_eq!(server.answer("tools/list", MORE).await, serde_json::json!({ "cursor": "2" }));
    let (call, sender) = server.take("tools/call").await;
    assert_eq!(call.caller.tasks, TaskSupport::Declared);
    let began = Instant::now();
    sender.done(Outcome::Result(json(&format!(r#"{{"task":{}}}"#, old("working", r#","statusMessage":"on it""#)))));
    assert_eq!(server.answer("tasks/get", &old("working", "")).await, serde_json::json!({ "taskId": "old" }));
    server.answer("tasks/get", &old("completed", "")).await;
    assert_eq!(began.elapsed(), Duration::from_secs(4));
    let (fetched, sender) = server.take("tasks/result").await;
    assert_eq!(params(&fetched), serde_json::json!({ "taskId": "old" }));
    let tied = r#"{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"old"},"x":1}}"#;
    sender.done(Outcome::Result(json(tied)));
    assert!(matches!(reply.next().await, Some(Event::Progress(at)) if at.describe() == "1: on it"));
    assert_eq!(result(reply).await, r#"{"content":[],"_meta":{"x":1}}"#);

    // What is known of the tools stays known until they change.
    let (mut server, reply, _job) = legacy_call(needs.clone(), manners());
    let (call, sender) = server.take("tools/call").await;
    assert_eq!(call.caller.tasks, TaskSupport::Declared);
    sender.done(Outcome::Result(json(r#"{"content":[]}"#)));
    assert_eq!(result(reply).await, r#"{"content":[]}"#);
    needs.forget();
    let (mut server, reply, _job) = legacy_call(needs, manners());
    server.answer("tools/list", r#"{"tools":[{"name":"t"}]}"#).await;
    let (call, sender) = server.take("tools/call").await;
    assert_eq!(call.caller.tasks, TaskSupport::Undeclared);
    sender.done(Outcome::Result(json("{}")));
    assert_eq!(result(reply).await, "{}");
}

#[tokio::test(start_paused = true)]
async fn an_old_task_that_needs_input_asks_on_the_stream_of_its_result() {
    let (mut server, mut reply, _job) = legacy_call(able(), manners());
    server.answer("tools/list", MORE).await;
    server.answer("tools/call", &format!(r#"{{"task":{}}}"#, old("input_required", ""))).await;
    let (_, sender) = server.take("tasks/result").await;
    let question_of = |text: &str| crate::protocol::Question {
        kind: crate::protocol::QuestionKind::Elicitation,
        params: json(&format!(r#"{{"message":"{text}"}}"#)),
        key: None,
    };
    let (ask, mut asking) = crate::protocol::Ask::new(question_of("really?"));
    sender.event(Event::Ask(ask));
    question(&mut reply).await.answer(Answer::Result(json("{}")));
    assert_eq!(asking.answer().await, Answer::Result(json("{}")));
    // The stream of the result breaks; the task goes on.
    sender.done(unknown("the stream broke"));
    server.answer("tasks/get", &old("failed", "")).await;
    let (_, sender) = server.take("tasks/result").await;
    sender.done(Outcome::Error(RpcError::new(-5, "as the tool said")));
    let Outcome::Error(error) = reply.outcome().await else { panic!() };
    assert_eq!(error.message(), "as the tool said");
}

#[tokio::test(start_paused = true)]
async fn a_plain_call_that_is_refused_for_want_of_a_task_is_made_one_and_otherwise_the_first_word_stands() {
    for code in [-32601, -32600] {
        let (mut server, reply, _job) = legacy_call(able(), manners());
        server.answer("tools/list", r#"{"tools":[]}"#).await;
        let (_, sender) = server.take("tools/call").await;
        sender.done(Outcome::Error(RpcError::new(code, "Task augmentation required")));
        let (call, sender) = server.take("tools/call").await;
        assert_eq!(call.caller.tasks, TaskSupport::Declared);
        if code == -32601 {
            sender.done(Outcome::Error(RpcError::new(-1, "second word")));
            let Outcome::Error(error) = reply.outcome().await else { panic!() };
            assert_eq!(error.message(), "Task augmentation required");
        } else {
            sender.done(Outcome::Result(json(&format!(
                r#"{{"task":{}}}"#,
                old("cancelled", r#","statusMessage":"no""#)
            ))));
            assert!(failure(reply).await.message.contains("cancelled its task: no"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_the_capability_is_not_asked_for_its_tools() {
    let (mut server, reply, _job) = legacy_call(Needs::of(&json(r#"{"tasks":{"list":{}}}"#)), manners());
    let (call, sender) = server.take("tools/call").await;
    assert_eq!(call.caller.tasks, TaskSupport::Undeclared);
    sender.done(Outcome::Result(json("{}")));
    assert_eq!(result(reply).await, "{}");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_while_the_result_of_an_old_task_is_waited_for_reaches_the_server() {
    let (mut server, reply, job) = legacy_call(able(), manners());
    server.answer("tools/list", MORE).await;
    server.answer("tools/call", &format!(r#"{{"task":{}}}"#, old("input_required", ""))).await;
    let (_, sender) = server.take("tasks/result").await;
    reply.cancel();
    server.answer("tasks/cancel", &old("cancelled", "")).await;
    sender.done(Outcome::Error(RpcError::new(-32603, "cancelled")));
    assert!(matches!(reply.outcome().await, Outcome::Error(_)));
    job.await.unwrap();
}

#[tokio::test]
async fn what_is_left_running_is_left_so_although_nobody_gets_to_pass_that_on() {
    let (inner, reply) = Reply::channel();
    let (mut sender, outer) = Reply::channel();
    {
        let mut relaying = std::pin::pin!(relay(reply, &mut sender));
        assert!(futures_util::poll!(relaying.as_mut()).is_pending());
        outer.leave_running();
    }
    assert!(inner.is_abandoned() && inner.is_left_running(), "the server would be told to stop");
}
