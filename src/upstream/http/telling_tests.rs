//! To a server that is not there: nothing of what it is told comes to it. Its address has no port, so no socket opens.

use serde_json::json;

use super::*;
use crate::config::{Limits, ServerConfig, Transport};
use crate::jobs::Jobs;
use crate::protocol::message::RequestId;
use crate::protocol::{
    Abilities, Answer, Call, Caller, Credentials, Event, Method, Params, Principal, Reason, Reply, ReplySender,
};
use crate::upstream::handshake::LastSeen;
use crate::upstream::http::answer::ReadLimits;
use crate::upstream::http::endpoint::{Endpoint, JSON_FIRST};
use crate::upstream::http::session::{InFlight, OwnHeaders, Parts};
use crate::upstream::questions::{Floor, Verdict};
use crate::upstream::sessions::{Audience, Hearer, Session as _};
use crate::upstream::{Setup, Shared};

/// A call on a session, which can be asked.
struct Bench {
    session: HttpSession,
    call: InFlight,
    reply: Reply,
    _sender: ReplySender,
    jobs: Jobs,
}

impl Bench {
    fn new() -> Self {
        let url: url::Url = "http://127.0.0.1:0/mcp".parse().unwrap();
        let none = HeaderMap::new();
        let transport = Transport::Http { url: url.clone(), headers: none.clone(), forward: Vec::new() };
        let (last_seen, shared, limits) = (LastSeen::default(), Shared::default(), Arc::new(Limits::default()));
        let config = Arc::new(ServerConfig::new("gone", transport));
        let setup = Setup { config, limits, jobs: Jobs::new(), last_seen, shared };
        let session = HttpSession::new(Parts {
            endpoint: Arc::new(Endpoint::new(&url, &none, &[], Duration::from_secs(1)).unwrap()),
            limits: ReadLimits { message: 1 << 20, depth: 64 },
            id: None,
            version: "2025-11-25".parse().unwrap(),
            accept: JSON_FIRST,
            forwarded: OwnHeaders::None,
            floor: Floor::new(&setup, Hearer::Audience(Audience::Everybody)),
            jobs: setup.jobs.clone(),
        });
        let params = Params::read(&Method::CallTool, Some(Json::from_value(&json!({ "name": "t" })))).unwrap();
        let mut caller = Caller::of_modern(&params, Principal::Local, Credentials::default());
        caller.abilities = Abilities::of(Json::from_value(&json!({ "elicitation": {} })));
        let call = Call { method: Method::CallTool, params, caller, arrived: Instant::now() };
        let (sender, reply) = Reply::channel();
        let (call, _) = session.begin(&none, &call, sender.events());
        Self { session, call, reply, _sender: sender, jobs: setup.jobs }
    }

    /// The server asks, and somebody answers.
    async fn answer(&mut self) {
        let id = RequestId::read(Json::from_value(&json!("q"))).unwrap();
        let params = Some(Json::from_value(&json!({ "message": "sure?" })));
        let asked = Asked { id, method: "elicitation/create".to_owned(), params };
        self.session.asked(&HeaderMap::new(), asked, Origin::Call(self.call.id)).await;
        let Some(Event::Ask(ask)) = self.reply.next().await else { panic!("no question") };
        ask.answer(Answer::Result(Json::from_value(&json!({ "action": "accept" }))));
    }

    async fn repeats(&self) {
        while self.session.life().repeats.of.is_empty() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_sent_for_a_minute_ends_its_call() {
    let mut bench = Bench::new();
    let begun = Instant::now();
    bench.answer().await;
    let Verdict::Untold(failure) = bench.call.fate().verdict().await else { panic!("it can be asked") };
    assert_eq!(failure.reason, Reason::OutcomeUnknown);
    assert!(failure.message.contains("could not be sent"), "{}", failure.message);
    let took = begun.elapsed().as_secs();
    assert!((50..=70).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_wants_any_more_is_not_sent_again_and_ends_nothing() {
    for end in ["withdrawn", "over", "closed"] {
        let mut bench = Bench::new();
        let fate = bench.call.fate();
        bench.answer().await;
        bench.repeats().await;
        assert!(bench.session.is_answering(bench.call.id), "a place behind the question would be told");
        match end {
            "withdrawn" => {
                let params = Json::from_value(&json!({ "requestId": "q" }));
                bench.session.said("notifications/cancelled".to_owned(), Some(params));
            }
            "over" => drop(bench.call),
            _ => bench.session.close().await,
        }
        let began = Instant::now();
        bench.jobs.idle().await;
        assert!(began.elapsed() < Duration::from_secs(5), "{end}");
        assert!(bench.session.life().repeats.of.is_empty(), "{end}");
        assert!(futures_util::FutureExt::now_or_never(fate.verdict()).is_none(), "{end}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_sent_again_until_its_limit_or_its_answer() {
    for is_answered in [false, true] {
        let mut bench = Bench::new();
        let began = Instant::now();
        bench.call.cancelled();
        bench.session.cancel(HeaderMap::new(), bench.call.id, StopCause::Caller, Duration::from_secs(20));
        bench.repeats().await;
        if is_answered {
            bench.call.answered();
        } else {
            // The call is given up, and its server works on.
            drop(bench.call);
        }
        bench.jobs.idle().await;
        let took = began.elapsed().as_secs();
        assert!(if is_answered { took < 5 } else { (14..=25).contains(&took) }, "{took} s");
    }
}

#[tokio::test]
async fn what_is_sent_again_is_bounded() {
    let bench = Bench::new();
    let about = About::Cancel { call: 1 };
    let mut places: Vec<_> = std::iter::from_fn(|| bench.session.repeating(&about)).take(REPEATS + 1).collect();
    assert_eq!(places.len(), REPEATS);
    places.pop();
    assert!(bench.session.repeating(&about).is_some());
}
