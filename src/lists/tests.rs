use std::future::Ready as ReadyFuture;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, advance, timeout};

use super::*;
use crate::protocol::{
    Caller, ClientSession, Credentials, Event, Failure, Json, Notification, Outcome, Params, Principal, Reason,
    ReplySender, Retry, RpcError,
};

#[derive(Clone)]
struct Scripted(mpsc::UnboundedSender<(Call, ReplySender)>);

impl Service<Call> for Scripted {
    type Response = Reply;
    type Error = Infallible;
    type Future = ReadyFuture<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let (sender, reply) = Reply::channel();
        let _ = self.0.send((call, sender));
        ready(Ok(reply))
    }
}

struct Server {
    lists: Lists<Scripted>,
    asked: mpsc::UnboundedReceiver<(Call, ReplySender)>,
}

impl Server {
    fn new(share: bool) -> Self {
        let (sender, asked) = mpsc::unbounded_channel();
        Self { lists: ListsLayer::new("s", share, &Jobs::new()).layer(Scripted(sender)), asked }
    }

    async fn ask(&mut self, call: Call) -> Reply {
        let Ok(reply) = self.lists.call(call).await;
        reply
    }

    async fn asked(&mut self) -> ReplySender {
        timeout(Duration::from_secs(5), self.asked.recv()).await.unwrap().unwrap().1
    }

    /// Lists, and lets the server answer.
    async fn list(&mut self, call: Call, outcome: Outcome) -> Outcome {
        let reply = self.ask(call).await;
        self.asked().await.done(outcome);
        reply.outcome().await
    }
}

fn json(text: &str) -> Json {
    Json::parse(bytes::Bytes::from(text.to_owned())).unwrap()
}

fn call(who: &str, method: &Method, params: &str) -> Call {
    let params = Params::read(method, Some(json(params))).unwrap();
    let caller = Caller::of_modern(&params, Principal::Named(who.into()), Credentials::default());
    Call { method: method.clone(), params, caller, arrived: Instant::now() }
}

fn tools(who: &str) -> Call {
    call(who, &Method::ListTools, "{}")
}

fn good(text: &str) -> Outcome {
    Outcome::Result(json(text))
}

fn down(reason: Reason) -> Outcome {
    Outcome::Failed(Failure::new(reason, "down", Retry::Yes))
}

fn shown(outcome: Outcome) -> String {
    match outcome {
        Outcome::Result(result) => result.as_str().to_owned(),
        Outcome::Failed(failure) => failure.reason.to_string(),
        Outcome::Error(error) => error.code().to_string(),
        other => panic!("{other:?}"),
    }
}

const LIST: &str = r#"{"tools":[{"name":"a", "n":1.0}]}"#;

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_is_stood_in_for_and_one_that_refuses_is_not() {
    use Reason::{
        BadAnswer, Busy, NotStarted, OutcomeUnknown, QueueTimeout, Stopping, Timeout, TooLarge, Unauthorized,
    };
    let mut server = Server::new(false);
    assert_eq!(shown(server.list(tools("ann"), down(NotStarted)).await), "not_started");
    assert_eq!(shown(server.list(tools("ann"), good(LIST)).await), LIST);
    for reason in [OutcomeUnknown, NotStarted, Timeout, QueueTimeout, Busy, BadAnswer] {
        assert_eq!(shown(server.list(tools("ann"), down(reason)).await), LIST, "{reason}");
    }
    for reason in [Unauthorized, TooLarge, Stopping] {
        assert_eq!(shown(server.list(tools("ann"), down(reason)).await), reason.to_string());
    }
    let error = Outcome::Error(RpcError::new(-32603, "no"));
    assert_eq!(shown(server.list(tools("ann"), error).await), "-32603");
    assert_eq!(shown(server.list(tools("ann"), good("{}")).await), "{}");
    assert_eq!(shown(server.list(tools("ann"), down(NotStarted)).await), "{}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_is_waited_for_two_seconds_and_then_in_the_background() {
    let mut server = Server::new(false);
    server.list(tools("ann"), good(LIST)).await;
    let begun = Instant::now();
    let reply = server.ask(tools("ann")).await;
    let slow = server.asked().await;
    assert_eq!(shown(reply.outcome().await), LIST);
    assert_eq!(begun.elapsed().as_secs(), 2);
    // While one answer is waited for, no second is.
    let reply = server.ask(tools("ann")).await;
    let mut second = server.asked().await;
    assert_eq!(shown(reply.outcome().await), LIST);
    second.abandoned().await;
    slow.done(good(r#"{"tools":[]}"#));
    tokio::task::yield_now().await;
    assert_eq!(shown(server.list(tools("ann"), down(Reason::Busy)).await), r#"{"tools":[]}"#);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_never_seen_is_waited_for() {
    let mut server = Server::new(false);
    let reply = server.ask(tools("ann")).await;
    let slow = server.asked().await;
    advance(Duration::from_mins(10)).await;
    slow.event(Event::Log(json(r#"{"level":"info"}"#)));
    slow.done(good(LIST));
    let mut reply = reply;
    assert!(matches!(reply.next().await, Some(Event::Log(_))));
    assert_eq!(shown(reply.outcome().await), LIST);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_for_its_caller_its_page_and_its_abilities_alone() {
    let mut server = Server::new(false);
    server.list(tools("ann"), good(LIST)).await;
    let able = r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}"#;
    let mut legacy = tools("ann");
    legacy.caller.session = ClientSession::Legacy(1);
    let others = [
        tools("bob"),
        call("ann", &Method::ListPrompts, "{}"),
        call("ann", &Method::ListTools, r#"{"cursor":"2"}"#),
        call("ann", &Method::ListTools, able),
        call("ann", &Method::ListTools, r#"{"requestState":"x"}"#),
        legacy,
    ];
    for other in others {
        assert_eq!(shown(server.list(other, down(Reason::Busy)).await), "busy");
    }
    let same = call("ann", &Method::ListTools, r#"{"_meta":{"progressToken":7}}"#);
    assert_eq!(shown(server.list(same, down(Reason::Busy)).await), LIST);

    let mut server = Server::new(true);
    server.list(tools("ann"), good(LIST)).await;
    assert_eq!(shown(server.list(tools("bob"), down(Reason::Busy)).await), LIST);
}

#[tokio::test(start_paused = true)]
async fn a_change_makes_a_list_a_last_resort() {
    let mut server = Server::new(false);
    let templates = || call("ann", &Method::ListResourceTemplates, "{}");
    server.list(tools("ann"), good(r#"{"tools":[],"ttlMs":60000}"#)).await;
    server.list(templates(), good(r#"{"ttlMs":60000}"#)).await;
    server.list(tools("bob"), good(LIST)).await;
    advance(Duration::from_secs(10)).await;
    assert_eq!(shown(server.list(tools("ann"), down(Reason::Busy)).await), r#"{"tools":[],"ttlMs":50000}"#);

    let mut listening = server.ask(call("ann", &Method::Listen, "{}")).await;
    let notifier = server.asked().await;
    notifier.event(Event::Notification(Notification {
        method: "notifications/tools/list_changed".to_owned(),
        params: None,
    }));
    assert!(matches!(listening.next().await, Some(Event::Notification(_))));

    assert_eq!(shown(server.list(templates(), down(Reason::Busy)).await), r#"{"ttlMs":50000}"#);
    assert_eq!(shown(server.list(tools("ann"), down(Reason::Busy)).await), r#"{"tools":[],"ttlMs":0}"#);
    // One that is only slow is waited for.
    let reply = server.ask(tools("ann")).await;
    let slow = server.asked().await;
    advance(Duration::from_secs(30)).await;
    slow.done(good(LIST));
    assert_eq!(shown(reply.outcome().await), LIST);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_a_subscription_ends_it() {
    let mut server = Server::new(false);
    let listening = server.ask(call("ann", &Method::Listen, "{}")).await;
    let mut notifier = server.asked().await;
    drop(listening);
    timeout(Duration::from_secs(5), notifier.abandoned()).await.unwrap();
    let listing = server.ask(tools("ann")).await;
    let mut asked = server.asked().await;
    drop(listing);
    timeout(Duration::from_secs(5), asked.abandoned()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_bounded() {
    let mut server = Server::new(false);
    for at in 0..600 {
        let page = call("ann", &Method::ListTools, &format!(r#"{{"cursor":"{at}"}}"#));
        server.list(page, good(LIST)).await;
        advance(Duration::from_millis(1)).await;
    }
    let of = |at: usize| call("ann", &Method::ListTools, &format!(r#"{{"cursor":"{at}"}}"#));
    assert_eq!(shown(server.list(of(0), down(Reason::Busy)).await), "busy");
    assert_eq!(shown(server.list(of(599), down(Reason::Busy)).await), LIST);
    let large = format!(r#"{{"tools":["{}"]}}"#, "x".repeat(7 << 20));
    for at in 0..8 {
        server.list(of(1000 + at), good(&large)).await;
        advance(Duration::from_millis(1)).await;
    }
    assert_eq!(shown(server.list(of(599), down(Reason::Busy)).await), "busy");
    assert_eq!(shown(server.list(of(1000), down(Reason::Busy)).await), "busy");
    assert_eq!(shown(server.list(of(1007), down(Reason::Busy)).await), large);
}
