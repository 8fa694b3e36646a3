use tokio::sync::mpsc;

use super::*;
use crate::front::legacy::Outgoing;
use crate::protocol::{Ask, Asking, Notification, Progress, Question, QuestionKind, ReplySender};

/// A call that reached the server.
struct Asked {
    call: Call,
    sender: ReplySender,
}

struct World {
    asked: mpsc::UnboundedReceiver<Asked>,
    session: Session,
    own: Outflow,
    attached: Asked,
    answer: String,
}

fn json(text: &str) -> Json {
    Json::parse(bytes::Bytes::from(text.to_owned())).unwrap()
}

fn text(rope: Rope) -> String {
    String::from_utf8(rope.into_bytes().to_vec()).unwrap()
}

fn message(text: &str) -> Message {
    Message::parse(&bytes::Bytes::from(text.to_owned()), 64).unwrap()
}

fn seed(same_id: SameId, places: usize) -> (Seed, mpsc::UnboundedReceiver<Asked>) {
    let (calls, asked) = mpsc::unbounded_channel();
    let calls: Calls = Arc::new(move |call| {
        let (sender, reply) = Reply::channel();
        let _ = calls.send(Asked { call, sender });
        std::future::ready(reply).boxed()
    });
    let places = Places::new(places);
    (
        Seed {
            calls,
            server: "s".to_owned(),
            number: 7,
            principal: Principal::Local,
            same_id,
            question_ids: QuestionIds::default(),
            places,
        },
        asked,
    )
}

const INITIALIZE: &str = r#"{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"c"}}"#;
const INITIALIZED: &str = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"tasks":{}},"zzz":1.0}"#;

async fn world_with(initialized: &str, same_id: SameId, places: usize) -> World {
    world_of(INITIALIZE, initialized, same_id, places).await
}

async fn world_of(initialize: &str, initialized: &str, same_id: SameId, places: usize) -> World {
    let (seed, mut asked) = seed(same_id, places);
    let id = RequestId::from_number(0);
    let params = Params::read(&Method::Attach, Some(json(initialize))).unwrap();
    let answering = async {
        let attached = asked.recv().await.unwrap();
        attached.sender.event(Event::Attached(json(initialized)));
        attached
    };
    let (opened, attached) = tokio::join!(open(seed, &id, params, Credentials::default()), answering);
    let Opened { session, own, answer } = opened.unwrap();
    World { asked, session, own, attached, answer: text(answer) }
}

async fn world() -> World {
    let world = world_with(INITIALIZED, SameId::Refused, 8).await;
    world.take(READY);
    world
}

const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

impl World {
    fn take(&self, text: &str) -> Taken {
        self.session.take(message(text), Credentials::default())
    }

    fn request(&self, text: &str) -> Box<Outflow> {
        let Taken::Runs(outflow) = self.take(text) else { panic!("{text}") };
        outflow
    }

    /// Sends a request and lets it reach the server.
    async fn asking(&mut self, text: &str) -> (Box<Outflow>, Asked) {
        let mut outflow = self.request(text);
        assert!(outflow.next().now_or_never().is_none());
        (outflow, self.asked.recv().await.unwrap())
    }
}

async fn notice(outflow: &mut Outflow) -> String {
    let Some(Outgoing::Notice(notice)) = outflow.next().await else { panic!() };
    text(notice)
}

async fn must(outflow: &mut Outflow) -> String {
    let Some(Outgoing::Message(message)) = outflow.next().await else { panic!() };
    text(message)
}

async fn answer(outflow: &mut Outflow) -> String {
    let Some(Outgoing::Answer(answer)) = outflow.next().await else { panic!() };
    assert!(outflow.next().await.is_none());
    text(answer)
}

fn roots() -> (Ask, Asking) {
    Ask::new(Question { kind: QuestionKind::Roots, params: json("{}"), key: None })
}

const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1e2,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p\u0031"}}}"#;

#[tokio::test]
async fn initialize_opens_one_session_upstream_and_is_answered_as_the_server_did() {
    let World { attached, answer, session, .. } = world().await;
    assert_eq!(attached.call.method, Method::Attach);
    assert_eq!(attached.call.params.raw().as_str(), INITIALIZE);
    assert_eq!(attached.call.caller.session, ClientSession::Legacy(7));
    assert_eq!(attached.call.caller.abilities.raw().as_str(), r#"{"roots":{}}"#);
    assert_eq!(session.revision(), Revision::V2025_06_18);
    let result = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"zzz":1.0}"#;
    assert_eq!(answer, format!(r#"{{"jsonrpc":"2.0","id":0,"result":{result}}}"#));
}

#[tokio::test]
async fn a_session_that_cannot_be_opened_is_the_error_of_initialize() {
    let (seed, mut asked) = seed(SameId::Refused, 8);
    let id = RequestId::from_number(0);
    let params = Params::read(&Method::Attach, Some(json(INITIALIZE))).unwrap();
    let failing = async {
        let Asked { sender, .. } = asked.recv().await.unwrap();
        sender.done(Outcome::Failed(Failure::new(Reason::NotStarted, "no such program", Retry::Yes)));
    };
    let (opened, ()) = tokio::join!(open(seed, &id, params, Credentials::default()), failing);
    let error = text(opened.unwrap_err().answer);
    assert!(error.contains("-31002") && error.contains("no such program") && error.contains(r#""id":0"#), "{error}");
}

#[tokio::test]
async fn a_request_gets_progress_logs_and_its_answer_under_its_own_token_and_id() {
    let mut world = world().await;
    let (mut outflow, Asked { call, sender }) = world.asking(CALL).await;
    assert_eq!((call.caller.session, call.caller.tasks), (ClientSession::Legacy(7), TaskSupport::Undeclared));
    assert!(world.session.is_busy());
    sender.event(Event::Progress(Progress { progress: json("1.0"), total: None, message: None }));
    sender.event(Event::Log(json(r#"{"level":"debug","data": 1}"#)));
    let method = "notifications/tools/list_changed".to_owned();
    sender.event(Event::Notification(Notification { method, params: None }));
    sender.done(Outcome::Result(json(r#"{"content": [], "resultType":"x"}"#)));
    let progress = notice(&mut outflow).await;
    assert!(progress.contains(r#""params":{"progressToken":"p\u0031","progress":1.0}"#), "{progress}");
    assert!(notice(&mut outflow).await.contains(r#""params":{"level":"debug","data": 1}"#));
    assert!(notice(&mut outflow).await.ends_with(r#""method":"notifications/tools/list_changed"}"#));
    let expected = r#"{"jsonrpc":"2.0","id":1e2,"result":{"content": [], "resultType":"x"}}"#;
    assert_eq!(answer(&mut outflow).await, expected);
    assert!(!world.session.is_busy());
}

#[tokio::test]
async fn a_question_goes_out_under_an_id_of_ours_and_its_answer_goes_back() {
    let mut world = world().await;
    let (mut outflow, Asked { sender, .. }) = world.asking(CALL).await;
    let ((first, mut of_call), (second, mut of_session)) = (roots(), roots());
    sender.event(Event::Ask(first));
    world.attached.sender.event(Event::Ask(second));
    assert_eq!(must(&mut outflow).await, r#"{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{}}"#);
    assert_eq!(must(&mut world.own).await, r#"{"jsonrpc":"2.0","id":2,"method":"roots/list","params":{}}"#);
    assert!(matches!(world.take(r#"{"jsonrpc":"2.0","id":2,"result":{"roots": []}}"#), Taken::Done));
    assert_eq!(of_session.answer().await, Answer::Result(json(r#"{"roots": []}"#)));
    assert!(matches!(world.take(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#), Taken::Done));
    assert!(matches!(of_call.answer().await, Answer::Error(error) if error.code() == -1));
    assert!(matches!(world.take(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), Taken::Done));
    assert!(matches!(world.take(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#), Taken::Refused(_)));
    assert!(matches!(world.take(r#"{"jsonrpc":"2.0","id":3,"result":{}}"#), Taken::Refused(_)));
    assert!(
        matches!(world.take(r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"no"}}"#), Taken::Refused(error) if error.code() == -32600)
    );
}

#[tokio::test]
async fn a_question_that_the_server_withdraws_or_leaves_behind_is_cancelled() {
    let mut world = world().await;
    let (mut outflow, Asked { sender, .. }) = world.asking(CALL).await;
    let ((first, withdrawn), (second, mut left)) = (roots(), roots());
    sender.event(Event::Ask(first));
    sender.event(Event::Ask(second));
    assert!(must(&mut outflow).await.contains(r#""id":1"#) && must(&mut outflow).await.contains(r#""id":2"#));
    drop(withdrawn);
    let cancelled = must(&mut outflow).await;
    assert!(cancelled.contains("notifications/cancelled") && cancelled.contains(r#""requestId":1"#), "{cancelled}");
    sender.done(Outcome::Result(json("{}")));
    assert!(must(&mut outflow).await.contains(r#""requestId":2"#));
    assert!(answer(&mut outflow).await.contains("result"));
    assert!(matches!(left.answer().await, Answer::Error(_)));
}

#[tokio::test]
async fn a_request_that_the_client_cancels_is_cancelled_upstream_and_has_no_answer() {
    let mut world = world().await;
    let (mut outflow, Asked { sender, .. }) = world.asking(CALL).await;
    let (ask, mut asking) = roots();
    sender.event(Event::Ask(ask));
    must(&mut outflow).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1e2}}"#;
    assert!(matches!(world.take(cancel), Taken::Done));
    assert!(matches!(outflow.next().await, Some(Outgoing::Cancelled)));
    assert!(matches!(asking.answer().await, Answer::Error(_)));
    assert!(!world.session.is_busy());
    assert!(outflow.next().now_or_never().is_none());
    sender.cancelled().await;
    assert!(!sender.is_abandoned());
    sender.event(Event::Log(json("{}")));
    sender.done(Outcome::Result(json("{}")));
    assert!(outflow.next().await.is_none());
}

#[tokio::test]
async fn a_cancel_that_comes_before_the_server_was_asked_reaches_it_too() {
    let (mut seed, mut asked) = seed(SameId::Refused, 8);
    let (gate, opened) = tokio::sync::watch::channel(false);
    let calls = Arc::clone(&seed.calls);
    seed.calls = Arc::new(move |call| {
        let (calls, mut opened, is_attach) = (Arc::clone(&calls), opened.clone(), call.method == Method::Attach);
        async move {
            if !is_attach {
                let _ = opened.wait_for(|opened| *opened).await;
            }
            calls(call).await
        }
        .boxed()
    });
    let id = RequestId::from_number(0);
    let params = Params::read(&Method::Attach, Some(json(INITIALIZE))).unwrap();
    let opening = open(seed, &id, params, Credentials::default());
    let answering = async {
        let attached = asked.recv().await.unwrap();
        attached.sender.event(Event::Attached(json(INITIALIZED)));
        attached
    };
    let (opened, _attached) = tokio::join!(opening, answering);
    let Opened { session, own: _own, .. } = opened.unwrap();
    let Taken::Runs(mut outflow) = session.take(message(CALL), Credentials::default()) else { panic!() };
    assert!(outflow.next().now_or_never().is_none());
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1e2}}"#;
    session.take(message(cancel), Credentials::default());
    assert!(matches!(outflow.next().await, Some(Outgoing::Cancelled)));
    gate.send(true).unwrap();
    assert!(outflow.next().now_or_never().is_none());
    asked.recv().await.unwrap().sender.cancelled().await;
}

#[tokio::test]
async fn tasks_that_are_ours_are_offered_whatever_the_server_behind_speaks() {
    let offering = INITIALIZED.replace("\"zzz\"", "\"dev.raincheck/tasks\":{\"cancel\":{}},\"zzz\"");
    for (requested, initialized, expected) in [
        ("2025-11-25", offering.as_str(), r#""protocolVersion":"2025-11-25""#),
        ("2025-06-18", offering.as_str(), r#""protocolVersion":"2025-06-18""#),
        ("2025-11-25", INITIALIZED, r#""protocolVersion":"2025-06-18""#),
    ] {
        let initialize = INITIALIZE.replace("2025-06-18", requested);
        let world = world_of(&initialize, initialized, SameId::Refused, 8).await;
        let offers = requested == "2025-11-25" && initialized != INITIALIZED;
        assert!(world.answer.contains(expected), "{}", world.answer);
        assert_eq!(world.answer.contains(r#""tasks":{"cancel":{}}"#), offers, "{}", world.answer);
    }
}

#[tokio::test]
async fn an_id_in_flight_is_refused_on_one_stream_and_runs_over_http() {
    let mut world = world().await;
    let (_first, _sender) = world.asking(CALL).await;
    let mut second = world.request(CALL);
    assert!(answer(&mut second).await.contains("-32600"));
    assert!(world.asked.try_recv().is_err());
    let mut world = world_with(INITIALIZED, SameId::Runs, 8).await;
    let (mut first, Asked { sender, .. }) = world.asking(CALL).await;
    let (mut second, Asked { sender: other, .. }) = world.asking(CALL).await;
    other.done(Outcome::Result(json(r#"{"n":2}"#)));
    sender.done(Outcome::Result(json(r#"{"n":1}"#)));
    assert!(answer(&mut first).await.contains(r#""n":1"#) && answer(&mut second).await.contains(r#""n":2"#));
}

#[tokio::test]
async fn notifications_of_the_client_reach_the_server_but_for_those_that_end_here() {
    let mut world = world().await;
    assert!(matches!(world.take(READY), Taken::Done));
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{"a": 1}}"#;
    let Taken::Passes(passing) = world.take(changed) else { panic!() };
    let ((), call) = tokio::join!(passing, async {
        let Asked { call, sender } = world.asked.recv().await.unwrap();
        sender.done(Outcome::Result(json("{}")));
        call
    });
    assert_eq!(call.method, Method::Notify("notifications/roots/list_changed".to_owned()));
    assert_eq!(call.params.raw().as_str(), r#"{"a": 1}"#);
    assert!(matches!(world.take(r#"{"jsonrpc":"2.0","method":"tools/call"}"#), Taken::Refused(_)));
    assert!(matches!(
        world.take(r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"_meta":{"a":1,"a":2}}}"#),
        Taken::Refused(_)
    ));
}

#[tokio::test]
async fn what_a_legacy_client_cannot_ask_for_never_reaches_the_server() {
    let mut world = world().await;
    let methods = ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update", "server/discover"];
    for method in methods.into_iter().chain(["subscriptions/listen"]) {
        let mut refused = world.request(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#));
        assert!(answer(&mut refused).await.contains("-32601"), "{method}");
    }
    let mut again = world.request(r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#);
    assert!(answer(&mut again).await.contains("-32600"));
    let mut twice = world.request(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1,"a":2}}"#);
    assert!(answer(&mut twice).await.contains("-32600"));
    assert!(world.asked.try_recv().is_err());
    let (_ping, Asked { call, .. }) = world.asking(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    assert_eq!(call.method, Method::Other("ping".to_owned()));
}

#[tokio::test]
async fn calls_over_the_limit_are_refused_and_a_place_is_free_again_afterwards() {
    let mut world = world_with(INITIALIZED, SameId::Runs, 1).await;
    let (first, _asked) = world.asking(CALL).await;
    assert!(answer(&mut world.request(CALL)).await.contains("limits.queue allow 1"));
    drop(first);
    world.asking(CALL).await;
}

#[tokio::test]
async fn a_session_settles_on_a_revision_of_its_own_era() {
    let initialized = r#"{"protocolVersion":"2026-07-28","capabilities":{"tools":{}}}"#;
    let world = world_with(initialized, SameId::Refused, 8).await;
    assert!(world.answer.contains(r#""protocolVersion":"2025-06-18""#), "{}", world.answer);
}

#[tokio::test]
async fn the_sessions_own_stream_ends_with_the_session_upstream_and_the_other_way_round() {
    let mut world = world().await;
    let method = "notifications/resources/updated".to_owned();
    let params = Some(json(r#"{"uri": "a"}"#));
    world.attached.sender.event(Event::Notification(Notification { method, params }));
    assert!(notice(&mut world.own).await.ends_with(r#""params":{"uri": "a"}}"#));
    world.attached.sender.done(Outcome::Failed(Failure::outcome_unknown("it exited")));
    assert!(world.own.next().await.is_none());
    let mut world = self::world().await;
    drop(world.own);
    world.attached.sender.abandoned().await;
}

#[tokio::test]
async fn what_belongs_to_no_request_waits_until_the_client_is_ready() {
    for ready in [READY, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#] {
        let mut world = world_with(INITIALIZED, SameId::Refused, 8).await;
        let (ask, _asking) = roots();
        world.attached.sender.event(Event::Ask(ask));
        assert!(world.own.next().now_or_never().is_none());
        let ping = world.request(r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#);
        assert!(world.own.next().now_or_never().is_none());
        let (question, _taken) =
            tokio::join!(must(&mut world.own), async { world.session.take(message(ready), Credentials::default()) });
        assert!(question.contains("roots/list"), "{question}");
        drop(ping);
    }
    let mut world = world_with(INITIALIZED, SameId::Refused, 8).await;
    world.attached.sender.event(Event::Ask(roots().0));
    world.attached.sender.done(Outcome::Failed(Failure::outcome_unknown("it exited")));
    assert!(world.own.next().await.is_none());
}

#[tokio::test]
async fn only_sessions_of_2025_11_25_that_are_told_of_tasks_may_ask_for_them_and_that_needs_no_place() {
    let offer = r#","dev.raincheck/tasks":{"list":{}}}"#;
    for (revision, offer, has_tasks) in
        [("2025-11-25", offer, true), ("2025-06-18", offer, false), ("2025-11-25", "}", false)]
    {
        let initialized = format!(r#"{{"protocolVersion":"{revision}","capabilities":{{"tasks":{{"x":1}}}}{offer}"#);
        let mut world = world_with(&initialized, SameId::Runs, 0).await;
        assert_eq!(world.answer.contains(r#""tasks":{"list":{}}"#), has_tasks, "{}", world.answer);
        assert!(!world.answer.contains("dev.raincheck") && !world.answer.contains(r#""x":1"#), "{}", world.answer);
        for method in ["tasks/get", "tasks/cancel", "tasks/list"] {
            let request =
                message(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"taskId":"t"}}}}"#));
            let Taken::Runs(mut outflow) = world.session.take(request, Credentials::default()) else { panic!() };
            if has_tasks {
                let asked = world.asked.recv().await.unwrap();
                assert_eq!((asked.call.method.name(), asked.call.caller.tasks), (method, TaskSupport::Augmenting));
            } else {
                let Some(Outgoing::Answer(answer)) = outflow.next().await else { panic!() };
                assert!(text(answer).contains("-32601"), "{method}");
            }
        }
        let tools = r#"{"tools":[{"name":"t","execution":{"taskSupport":"optional"}}]}"#;
        let request = Request { id: RequestId::from_number(2), method: Method::ListTools, token: None, flight: None };
        let shown = super::super::outflow::answer(&request, Outcome::Result(json(tools)), world.session.0.tasks);
        assert_eq!(text(shown).contains("optional"), has_tasks);
    }
}
