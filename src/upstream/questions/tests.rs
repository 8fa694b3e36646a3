use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::call::Verdict;
use super::*;
use crate::config::{Limits, Offer, ServerConfig, Transport};
use crate::jobs::Jobs;
use crate::protocol::message::RequestId;
use crate::protocol::{
    Abilities, Answer, Ask, Call, Caller, ClientSession, Credentials, Event, Json, Message, Method, Outcome, Params,
    Principal, Reply, ReplySender, Rope, TaskSupport,
};
use crate::task::MOST_QUESTIONS;
use crate::upstream::handshake::{LastSeen, ServerInfo};
use crate::upstream::incoming::{Peer, take_in};
use crate::upstream::pending::Pending;
use crate::upstream::sessions::{Attached, Audience, Hearer};
use crate::upstream::wire::ServerEra;
use crate::upstream::{Setup, Shared};

/// One session, and what went back to the server.
struct Bench {
    floor: Floor,
    answers: mpsc::UnboundedReceiver<Value>,
    way: mpsc::UnboundedSender<Value>,
}

/// A call that runs.
struct Running {
    seat: Seat,
    reply: Reply,
    sender: ReplySender,
}

fn of(value: &Value) -> Json {
    Json::from_value(value)
}

fn read(rope: Rope) -> Value {
    rope.into_json().read().unwrap()
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::of(Hearer::Audience(Audience::Everybody), change)
    }

    fn of(hearer: Hearer, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let transport = Transport::Stdio { command: vec!["x".to_owned()], env: [].into(), cwd: None, hide: Vec::new() };
        let mut config = ServerConfig::new("mock", transport);
        change(&mut config);
        let (last_seen, shared, limits) = (LastSeen::default(), Shared::default(), Arc::new(Limits::default()));
        let setup = Setup { config: Arc::new(config), limits, jobs: Jobs::new(), last_seen, shared };
        let (way, answers) = mpsc::unbounded_channel();
        Self { floor: Floor::new(&setup, hearer), answers, way }
    }

    fn call(&self, id: u64, who: &str, tool: &str, abilities: &Value) -> Running {
        self.request(id, who, "tools/call", &json!({ "name": tool }), abilities, ClientSession::Stateless)
    }

    fn request(
        &self,
        id: u64,
        who: &str,
        method: &str,
        params: &Value,
        abilities: &Value,
        session: ClientSession,
    ) -> Running {
        let method = Method::of(method);
        let params = Params::read(&method, Some(of(params))).unwrap();
        let caller = Caller {
            principal: Principal::Named(who.into()),
            session,
            abilities: Abilities::of(of(abilities)),
            tasks: TaskSupport::Undeclared,
            progress_token: None,
            key: None,
            credentials: Credentials::default(),
        };
        let call = Call { method, params, caller, arrived: tokio::time::Instant::now() };
        let (sender, reply) = Reply::channel();
        Running { seat: self.floor.enter(id, &call, sender.events()), reply, sender }
    }

    /// The server asks. What it is told at once, if anything.
    fn ask(&self, id: &Value, method: &str, params: &Value, origin: Origin) -> Option<Value> {
        let id = RequestId::read(of(id)).unwrap();
        let way = self.way.clone();
        let request = Request { id, method: method.to_owned(), params: Some(of(params)) };
        let told = self.floor.request(request, origin, move |rope, _| async move {
            way.send(read(rope)).unwrap();
            Ok(())
        });
        told.map(read)
    }

    fn elicit(&self, id: &Value, origin: Origin) -> Option<Value> {
        self.ask(id, "elicitation/create", &json!({ "message": "who?" }), origin)
    }

    async fn answer(&mut self) -> Value {
        timeout(Duration::from_secs(10), self.answers.recv()).await.expect("no answer comes").unwrap()
    }
}

impl Running {
    async fn asked(&mut self) -> Ask {
        match timeout(Duration::from_secs(10), self.reply.next()).await.expect("no question comes") {
            Some(Event::Ask(ask)) => ask,
            other => panic!("{other:?}"),
        }
    }
}

async fn heard(reply: &mut Reply) -> Option<Event> {
    timeout(Duration::from_secs(10), reply.next()).await.expect("nothing comes")
}

fn forms() -> Value {
    json!({ "elicitation": {} })
}

#[tokio::test]
async fn a_question_on_the_stream_of_a_call_goes_to_that_call_and_its_answer_to_the_servers_id() {
    let mut bench = Bench::new();
    let mut one = bench.call(7, "ann", "asks", &forms());
    let _two = bench.call(8, "ann", "other", &forms());
    assert!(bench.elicit(&json!("a\u{7}"), Origin::Call(7)).is_none());
    let ask = one.asked().await;
    assert_eq!(ask.question().params.as_str(), r#"{"message":"who?"}"#);
    ask.answer(Answer::Result(of(&json!({ "action": "accept" }))));
    assert_eq!(bench.answer().await, json!({ "jsonrpc": "2.0", "id": "a\u{7}", "result": { "action": "accept" } }));
}

#[tokio::test]
async fn what_names_no_call_goes_to_the_youngest_but_first_to_a_tool_that_is_known_to_ask() {
    let mut bench = Bench::new();
    let mut asker = bench.call(1, "ann", "asks", &forms());
    // Alone, so it must be the one.
    assert!(bench.elicit(&json!(1), Origin::Channel).is_none());
    drop(asker.asked().await);
    assert_eq!(bench.answer().await["error"]["code"], -32603);
    let _plain = bench.call(2, "ann", "plain", &forms());
    assert!(bench.elicit(&json!(2), Origin::Channel).is_none());
    drop(asker.asked().await);
    bench.answer().await;
    drop(asker);
    let _older = bench.call(3, "ann", "plain", &forms());
    let mut youngest = bench.call(4, "ann", "plain", &forms());
    assert!(bench.elicit(&json!(3), Origin::Session).is_none());
    youngest.asked().await;
}

/// A tool waits for its answer before it asks again, so the second question is hardly that of the first one's call.
#[tokio::test]
async fn what_names_no_call_goes_to_one_that_has_not_asked_before_it_goes_to_one_that_waits_for_an_answer() {
    let mut bench = Bench::new();
    let mut older = bench.call(1, "ann", "plain", &forms());
    let mut younger = bench.call(2, "ann", "plain", &forms());
    assert!(bench.elicit(&json!(1), Origin::Channel).is_none());
    let first = younger.asked().await;
    assert!(bench.elicit(&json!(2), Origin::Channel).is_none());
    let second = older.asked().await;
    // Both wait: then the youngest again.
    assert!(bench.elicit(&json!(3), Origin::Channel).is_none());
    let _third = younger.asked().await;
    second.answer(Answer::Result(of(&json!({}))));
    assert_eq!(bench.answer().await["id"], 2);
    assert!(bench.elicit(&json!(4), Origin::Channel).is_none());
    older.asked().await;
    assert!(!first.is_withdrawn());
}

/// Two that come one after the other must not change places on their way.
#[tokio::test]
async fn questions_are_put_in_the_order_in_which_they_come() {
    let bench = Bench::new();
    let mut call = bench.call(1, "ann", "asks", &forms());
    for id in 0..4 {
        assert!(bench.elicit(&json!(id), Origin::Call(1)).is_none());
        let asked = futures_util::FutureExt::now_or_never(call.reply.next());
        assert!(matches!(asked, Some(Some(Event::Ask(_)))), "question {id} is still on its way: {asked:?}");
    }
}

/// Whoever waits for the answer has not looked yet when the server says the next thing.
#[tokio::test]
async fn a_call_that_has_its_answer_is_not_asked() {
    let bench = Bench::new();
    let pending = Pending::default();
    let (sender, reply) = Reply::channel();
    let ticket = pending.add(sender).unwrap();
    assert!(pending.send(ticket.id));
    let other = bench.call(ticket.id, "ann", "asks", &forms());
    let era = ServerEra::Legacy;
    let peer = Peer { server: "s", era, shared: false, pending: &pending, floor: &bench.floor };
    let take = |message: Value| {
        let message = Message::parse(&message.to_string().into(), 128).unwrap();
        take_in(message, &peer, |_| async { Ok(()) }).map(read)
    };
    assert!(take(json!({ "jsonrpc": "2.0", "id": ticket.id, "result": {} })).is_none());
    let question = json!({ "jsonrpc": "2.0", "id": 9, "method": "elicitation/create", "params": {} });
    assert_eq!(take(question).expect("it was put to the call")["error"]["code"], -32603);
    assert!(matches!(reply.outcome().await, Outcome::Result(_)));
    drop(other);
}

#[tokio::test]
async fn a_tie_to_a_task_of_the_servers_own_stays_behind() {
    let bench = Bench::new();
    let mut call = bench.call(1, "ann", "asks", &forms());
    for (meta, left) in [
        (r#"{"io.modelcontextprotocol/related-task":{"taskId":"theirs"}}"#, r#"{"n":1.50}"#),
        (
            r#"{"x":1.0,"io.modelcontextprotocol/related-task":{"taskId":"theirs"},"y":2}"#,
            r#"{"n":1.50,"_meta":{"x":1.0,"y":2}}"#,
        ),
    ] {
        let params = Json::parse(format!(r#"{{"n":1.50,"_meta":{meta}}}"#).into()).unwrap();
        let request =
            Request { id: RequestId::from_number(1), method: "elicitation/create".to_owned(), params: Some(params) };
        assert!(bench.floor.request(request, Origin::Call(1), |_, _| async { Ok(()) }).is_none());
        assert_eq!(call.asked().await.question().params.as_str(), left);
    }
}

#[tokio::test]
async fn a_question_moves_on_when_its_call_ends_and_is_refused_when_there_is_no_other() {
    let mut bench = Bench::new();
    let mut older = bench.call(1, "ann", "plain", &forms());
    let mut younger = bench.call(2, "ann", "plain", &forms());
    assert!(bench.elicit(&json!(9), Origin::Channel).is_none());
    let first = younger.asked().await;
    drop(younger);
    timeout(Duration::from_secs(10), first.withdrawn()).await.unwrap();
    let second = older.asked().await;
    assert!(!second.is_withdrawn());
    older.seat.cancelled();
    timeout(Duration::from_secs(10), second.withdrawn()).await.unwrap();
    let told = bench.answer().await;
    assert_eq!(told["id"], 9);
    assert!(told["error"]["message"].as_str().unwrap().contains("has ended"), "{told}");
}

#[tokio::test]
async fn a_caller_that_leaves_does_not_answer_for_the_call_that_really_asked() {
    let mut bench = Bench::new();
    let mut older = bench.call(1, "ann", "plain", &forms());
    let younger = bench.call(2, "ann", "plain", &forms());
    assert!(bench.elicit(&json!(9), Origin::Channel).is_none());
    let (reply, _sender, _seat) = (younger.reply, younger.sender, younger.seat);
    drop(reply);
    older.asked().await.answer(Answer::Result(of(&json!({ "action": "decline" }))));
    assert_eq!(bench.answer().await["result"]["action"], "decline");
}

#[tokio::test]
async fn a_question_on_the_stream_of_a_call_ends_with_it() {
    let mut bench = Bench::new();
    let mut one = bench.call(1, "ann", "asks", &forms());
    let _two = bench.call(2, "ann", "other", &forms());
    assert!(bench.elicit(&json!(1), Origin::Call(1)).is_none());
    let ask = one.asked().await;
    drop(one);
    timeout(Duration::from_secs(10), ask.withdrawn()).await.unwrap();
    assert!(bench.answer().await["error"]["message"].as_str().unwrap().contains("has ended"));
    assert!(bench.elicit(&json!(2), Origin::Call(1)).unwrap()["error"].is_object());
}

#[tokio::test]
async fn a_question_that_the_server_withdraws_disappears_and_is_not_answered() {
    let mut bench = Bench::new();
    let mut call = bench.call(1, "ann", "asks", &forms());
    assert!(bench.elicit(&json!("x"), Origin::Call(1)).is_none());
    let ask = call.asked().await;
    bench.floor.withdraw(&of(&json!({ "requestId": "y" })));
    assert!(!ask.is_withdrawn());
    bench.floor.withdraw(&of(&json!({ "requestId": "x", "reason": "late" })));
    timeout(Duration::from_secs(10), ask.withdrawn()).await.unwrap();
    ask.answer(Answer::Result(of(&json!({}))));
    // The next answer is that of the next question.
    assert!(bench.elicit(&json!("z"), Origin::Call(1)).is_none());
    call.asked().await.answer(Answer::Result(of(&json!({}))));
    assert_eq!(bench.answer().await["id"], "z");
}

#[tokio::test]
async fn only_what_the_client_declared_is_asked_and_the_rest_refused_with_what_to_declare() {
    let bench = Bench::new();
    let cases = [
        ("elicitation/create", json!({}), json!({}), Some((-32601, "elicitation"))),
        ("elicitation/create", json!({ "mode": "url" }), forms(), Some((-32602, "elicitation.url"))),
        ("elicitation/create", json!({ "mode": "url" }), json!({ "elicitation": { "url": {} } }), None),
        ("sampling/createMessage", json!({}), forms(), Some((-32601, "sampling"))),
        ("roots/list", json!({}), json!({ "roots": {} }), None),
        ("roots/list", json!({}), json!({ "sampling": {} }), Some((-32601, "roots"))),
        ("made/up", json!({}), json!({ "roots": {} }), Some((-32601, "made/up"))),
    ];
    for (method, params, abilities, refused) in cases {
        let _call = bench.call(1, "ann", "t", &abilities);
        let told = bench.ask(&json!(5), method, &params, Origin::Call(1));
        match (told, refused) {
            (None, None) => {}
            (Some(told), Some((code, word))) => {
                assert_eq!((&told["id"], &told["error"]["code"]), (&json!(5), &json!(code)), "{method}");
                assert!(told["error"]["message"].as_str().unwrap().contains(word), "{told}");
            }
            (told, _) => panic!("{method} {params} {abilities}: {told:?}"),
        }
    }
    assert_eq!(bench.ask(&json!(0), "ping", &json!({}), Origin::Channel).unwrap()["result"], json!({}));
}

#[tokio::test]
async fn what_was_offered_but_not_declared_ends_the_call_with_what_it_requires() {
    let bench = Bench::with(|config| config.offer = vec![Offer::Sampling]);
    let call = bench.call(1, "ann", "t", &forms());
    assert_eq!(bench.elicit(&json!(1), Origin::Call(1)), None);
    let told = bench.ask(&json!(2), "sampling/createMessage", &json!({}), Origin::Call(1)).unwrap();
    assert_eq!(told["error"]["code"], -32601);
    let error = timeout(Duration::from_secs(10), call.seat.fate().verdict()).await.unwrap();
    let Verdict::Unaskable(error) = error else { panic!("{error:?}") };
    assert_eq!(error.code(), -32021);
    let error: Value = error.raw().read().unwrap();
    assert_eq!(error["data"]["requiredCapabilities"], json!({ "sampling": {} }));
}

#[tokio::test]
async fn a_call_that_may_not_be_the_one_that_asks_does_not_end_for_what_its_client_cannot_be_asked() {
    let bench = Bench::with(|config| config.offer = vec![Offer::Elicitation]);
    let asks = bench.call(1, "ann", "asks", &json!({}));
    let other = bench.call(2, "ann", "other", &json!({}));
    let told = bench.ask(&json!("q"), "elicitation/create", &json!({ "message": "?" }), Origin::Channel).unwrap();
    assert_eq!(told["error"]["code"], -32601);
    for call in [&asks, &other] {
        assert!(call.seat.fate().is_running());
    }
    drop(other);
    bench.ask(&json!("q"), "elicitation/create", &json!({ "message": "?" }), Origin::Channel).unwrap();
    assert_eq!(asks.seat.fate().unaskable().map(|error| error.code()), Some(-32021));
}

/// A retry of a call that is answered in rounds may declare less than the call did.
#[tokio::test]
async fn what_is_not_declared_any_more_is_refused_and_ends_the_call_where_it_was_offered() {
    for offer in [vec![], vec![Offer::Elicitation]] {
        let is_offered = !offer.is_empty();
        let mut bench = Bench::with(|config| config.offer = offer);
        let mut call = bench.call(1, "ann", "t", &forms());
        assert_eq!(bench.elicit(&json!(1), Origin::Call(1)), None);
        call.asked().await.is_undeclared();
        let told = bench.answer().await;
        assert_eq!(told["error"]["code"], -32601);
        assert!(told["error"]["message"].as_str().unwrap().contains("did not declare"), "{told}");
        let fate = call.seat.fate();
        let code = match futures_util::FutureExt::now_or_never(fate.verdict()) {
            Some(Verdict::Unaskable(error)) => Some(error.code()),
            None => None,
            Some(other) => panic!("{other:?}"),
        };
        assert_eq!(code, is_offered.then_some(-32021));
    }
}

#[tokio::test]
async fn only_requests_that_know_input_requests_can_ask_a_modern_client() {
    let bench = Bench::with(|config| config.offer = vec![Offer::Roots]);
    let list = bench.request(1, "ann", "tools/list", &json!({}), &forms(), ClientSession::Stateless);
    let told = bench.elicit(&json!(1), Origin::Call(1)).unwrap();
    assert!(told["error"]["message"].as_str().unwrap().contains("only tools/call"), "{told}");
    assert!(bench.elicit(&json!(1), Origin::Channel).unwrap()["error"].is_object());
    assert!(bench.ask(&json!(1), "roots/list", &json!({}), Origin::Call(1)).unwrap()["error"].is_object());
    drop(list);
    let mut legacy = bench.request(2, "ann", "tools/list", &json!({}), &forms(), ClientSession::Legacy(1));
    assert!(bench.elicit(&json!(1), Origin::Call(2)).is_none());
    legacy.asked().await;
}

#[tokio::test]
async fn questions_and_their_parameters_are_bounded() {
    let bench = Bench::new();
    let mut call = bench.call(1, "ann", "t", &forms());
    for id in 0..MOST_QUESTIONS {
        assert!(bench.elicit(&json!(id), Origin::Call(1)).is_none());
    }
    let told = bench.elicit(&json!(99), Origin::Call(1)).unwrap();
    assert!(told["error"]["message"].as_str().unwrap().contains("32 questions"), "{told}");
    call.asked().await.answer(Answer::Result(of(&json!({}))));
    let mut bench = bench;
    bench.answer().await;
    assert!(bench.elicit(&json!(99), Origin::Call(1)).is_none());
    let long = json!({ "message": "x".repeat(256 << 10) });
    let told = bench.ask(&json!(1), "elicitation/create", &long, Origin::Call(1)).unwrap();
    assert_eq!(told["error"]["code"], -32602);
    assert!(told["error"]["message"].as_str().unwrap().contains("262144 bytes"), "{told}");
    let told = bench.ask(&json!(1), "elicitation/create", &json!([]), Origin::Call(1)).unwrap();
    assert_eq!(told["error"]["code"], -32602);
}

#[tokio::test]
async fn a_session_of_several_principals_refuses_what_names_no_call_unless_it_is_serial() {
    for serial in [false, true] {
        let bench = Bench::with(|config| (config.share, config.serial) = (true, serial));
        drop(bench.call(1, "ann", "t", &forms()));
        let mut bo = bench.call(2, "bo", "t", &forms());
        let told = bench.elicit(&json!(1), Origin::Channel);
        if serial {
            assert_eq!(told, None);
            bo.asked().await;
        } else {
            let text = told.unwrap()["error"]["message"].as_str().unwrap().to_owned();
            assert!(text.contains("share = false") && text.contains("serial = true"), "{text}");
            assert!(bench.elicit(&json!(1), Origin::Call(2)).is_none());
            bo.asked().await;
        }
    }
}

#[tokio::test]
async fn a_legacy_client_is_asked_on_its_own_listen_stream_and_over_one_channel_in_its_call() {
    let (sender, mut outside) = Reply::channel();
    let client = Client::new(sender.events(), Abilities::of(of(&forms())));
    let attached = Attached { params: Json::empty_object(), client: client.clone() };
    let mut bench = Bench::of(Hearer::Client(attached), |_| {});
    bench.floor.notification("notifications/too/early".to_owned(), None);
    let said = Outcome::Result(of(&json!({ "protocolVersion": "2025-06-18" })));
    bench.floor.opened(&ServerInfo::of_initialize(said).unwrap());
    let Some(Event::Attached(result)) = heard(&mut outside).await else { panic!() };
    assert_eq!(result.as_str(), r#"{"protocolVersion":"2025-06-18"}"#);
    // Nothing runs.
    assert!(bench.elicit(&json!(1), Origin::Channel).is_none());
    let Some(Event::Ask(ask)) = heard(&mut outside).await else { panic!() };
    ask.answer(Answer::Result(of(&json!({}))));
    assert_eq!(bench.answer().await["id"], 1);
    let mut call = bench.request(1, "ann", "tools/call", &json!({}), &forms(), ClientSession::Legacy(1));
    assert!(bench.elicit(&json!(2), Origin::Channel).is_none());
    drop(call.asked().await);
    assert!(bench.elicit(&json!(3), Origin::Session).is_none());
    let Some(Event::Ask(ask)) = heard(&mut outside).await else { panic!() };
    bench.floor.notification("notifications/tools/list_changed".to_owned(), None);
    let Some(Event::Notification(said)) = heard(&mut outside).await else { panic!() };
    assert_eq!((said.method.as_str(), said.params), ("notifications/tools/list_changed", None));
    client.detach();
    timeout(Duration::from_secs(10), ask.withdrawn()).await.unwrap();
}

#[tokio::test]
async fn a_key_that_the_server_wants_is_taken_from_its_meta() {
    let bench = Bench::new();
    let mut call = bench.call(1, "ann", "t", &forms());
    let cases = [
        (json!({ "legacy-fixture/inputKey": "user_name" }), Some("user_name")),
        (json!({ "dev.raincheck/inputKey": "" }), None),
        (json!({ "dev.raincheck/inputKey": 7 }), None),
        (json!({ "a/inputKey": "x".repeat(129) }), None),
        (json!({ "inputKey": "x" }), None),
    ];
    for (meta, key) in cases {
        assert!(bench.ask(&json!(1), "elicitation/create", &json!({ "_meta": meta }), Origin::Call(1)).is_none());
        assert_eq!(call.asked().await.question().key.as_deref(), key, "{meta}");
    }
}

#[tokio::test]
async fn the_roots_that_a_session_begins_with_are_of_no_call() {
    let roots = |bench: &Bench, id: u64, origin| bench.ask(&json!(id), "roots/list", &json!({}), origin);
    let said = json!({ "protocolVersion": "2025-06-18" });
    let opened = || ServerInfo::of_initialize(Outcome::Result(of(&said))).unwrap();
    let able = json!({ "roots": {}, "elicitation": {} });
    for origin in [Origin::Channel, Origin::Session] {
        let bench = Bench::new();
        bench.floor.opened(&opened());
        let mut call = bench.call(1, "ann", "t", &able);
        // What a tool asks right after the start is its own.
        assert!(bench.elicit(&json!(1), origin).is_none());
        assert!(!call.asked().await.is_of_session());
        assert!(roots(&bench, 2, origin).is_none());
        assert!(call.asked().await.is_of_session());
        // A session begins once.
        assert!(roots(&bench, 3, origin).is_none());
        assert!(!call.asked().await.is_of_session());
    }
    let bench = Bench::new();
    bench.floor.opened(&opened());
    let mut call = bench.call(1, "ann", "t", &able);
    assert!(roots(&bench, 1, Origin::Call(1)).is_none());
    assert!(!call.asked().await.is_of_session(), "it came on the stream of the call");
}
