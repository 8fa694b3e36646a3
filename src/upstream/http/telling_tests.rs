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
    async fn answer(&mut self, origin: Origin) {
        let id = RequestId::read(Json::from_value(&json!("q"))).unwrap();
        let params = Some(Json::from_value(&json!({ "message": "sure?" })));
        let asked = Asked { id, method: "elicitation/create".to_owned(), params };
        self.session.asked(&HeaderMap::new(), asked, origin).await;
        let Some(Event::Ask(ask)) = self.reply.next().await else { panic!("no question") };
        ask.answer(Answer::Result(Json::from_value(&json!({ "action": "accept" }))));
    }

    /// On the stream of its call.
    fn own(&self) -> Origin {
        Origin::Call(self.call.id)
    }

    fn places(&self) -> usize {
        self.session.life().repeats.places.available_permits()
    }

    /// Resolves when a message was lost and is to be sent again.
    async fn repeats(&self) {
        while self.places() == REPEATS {
            tokio::task::yield_now().await;
        }
    }
}

/// How the call of a bench must end, and after how many seconds of sending its answer.
async fn untold(mut bench: Bench) -> (String, u64) {
    let begun = Instant::now();
    let origin = bench.own();
    bench.answer(origin).await;
    let Verdict::Untold(failure) = bench.call.fate().verdict().await else { panic!("it can be asked") };
    assert_eq!(failure.reason, Reason::OutcomeUnknown);
    assert!(failure.message.contains("could not be sent"), "{}", failure.message);
    (failure.message, begun.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_sent_for_a_minute_ends_its_call() {
    let (_, took) = untold(Bench::new()).await;
    assert!((50..=70).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_wants_any_more_is_not_sent_again_and_ends_nothing() {
    for (end, is_own) in [
        ("withdrawn", true),
        ("over", true),
        ("closed", true),
        ("cancelled", true),
        ("cancelled", false),
        ("over", false),
    ] {
        let mut bench = Bench::new();
        let fate = bench.call.fate();
        let origin = if is_own { bench.own() } else { Origin::Session };
        bench.answer(origin).await;
        bench.repeats().await;
        assert!(bench.session.is_answering(bench.call.id), "a place behind the question would be told");
        let mut call = Some(bench.call);
        match end {
            "withdrawn" => {
                let params = Json::from_value(&json!({ "requestId": "q" }));
                bench.session.said("notifications/cancelled".to_owned(), Some(params));
            }
            "over" => drop(call.take()),
            "cancelled" => call.as_mut().unwrap().cancelled(),
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
async fn what_the_session_asked_may_be_of_another_call_than_of_the_one_that_ends_by_itself() {
    for is_own in [true, false] {
        let mut bench = Bench::new();
        let origin = if is_own { bench.own() } else { Origin::Session };
        bench.answer(origin).await;
        bench.repeats().await;
        bench.call.answered();
        drop(bench.call);
        let began = Instant::now();
        bench.jobs.idle().await;
        let took = began.elapsed().as_secs();
        assert!(if is_own { took < 5 } else { (50..=70).contains(&took) }, "{took} s");
    }
}

#[tokio::test]
async fn an_answer_for_a_call_that_was_cancelled_meanwhile_does_not_begin_its_way() {
    let mut bench = Bench::new();
    let (session, call) = (bench.session.clone(), bench.call.id);
    let is_wanted = |origin, by| {
        let (session, id) = (session.clone(), Json::from_value(&json!("q")));
        !Answering { session, forwarded: HeaderMap::new(), origin, id }.of(by).unwanted.is_cancelled()
    };
    let origins = [Origin::Call(call), Origin::Session];
    assert!(origins.iter().all(|origin| is_wanted(*origin, Some(call))));
    bench.call.cancelled();
    assert!(!origins.iter().any(|origin| is_wanted(*origin, Some(call))));
    assert!(origins.iter().all(|origin| is_wanted(*origin, None)), "that its question is refused is told");
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

#[tokio::test(start_paused = true)]
async fn what_is_sent_again_is_bounded() {
    let bench = Bench::new();
    let telling = |is_needed| bench.session.telling(HeaderMap::new(), About::Cancel { call: 1 }, is_needed);
    let (needless, needed, until) = (telling(false), telling(true), Instant::now() + Duration::from_secs(9));
    let mut places = Vec::new();
    while let Some(place) = needless.place(until).await {
        places.push(place);
    }
    assert_eq!(places.len(), NEEDLESS);
    while let Some(place) = needed.place(until).await {
        places.push(place);
    }
    assert_eq!((places.len(), Instant::now()), (REPEATS, until));
    let until = until + Duration::from_secs(9);
    let (place, ()) = tokio::join!(needed.place(until), async { drop(places.pop()) });
    assert!(place.is_some() && Instant::now() < until, "it waits for its place");
    let _line: Vec<_> = (0..LINE).map(|_| telling(true)).collect();
    drop(place);
    places.extend(needed.place(until).await);
    assert!(needed.place(until).await.is_none() && Instant::now() < until, "the line is full");
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_which_no_place_gets_free_ends_its_call_and_says_so() {
    let bench = Bench::new();
    let places = Arc::clone(&bench.session.life().repeats.places);
    let _places = places.acquire_many(64).await.unwrap();
    let (message, took) = untold(bench).await;
    assert!(message.contains("in attempt 1; it was not sent again, since 64 other"), "{message}");
    assert!((50..=70).contains(&took), "{took} s");
}
