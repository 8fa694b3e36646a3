use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Semaphore;

use super::*;
use crate::config::Transport;
use crate::protocol::{Credentials, Json, Principal, Reason, TaskSupport};

/// Opens sessions when the gate lets it.
#[derive(Debug, Default)]
struct Mock {
    gate: Option<Arc<Semaphore>>,
    opened: Arc<AtomicUsize>,
    fails: bool,
}

#[derive(Clone, Debug, Default)]
struct MockSession {
    resting: Arc<AtomicBool>,
    over: CancellationToken,
    closed: CancellationToken,
}

impl Connect for Mock {
    type Session = MockSession;

    async fn connect(&self, _: &Opening) -> Result<MockSession, Failure> {
        if let Some(gate) = &self.gate {
            gate.acquire().await.unwrap().forget();
        }
        self.opened.fetch_add(1, Ordering::SeqCst);
        if self.fails { Err(outcome::not_started("mock", "no")) } else { Ok(MockSession::default()) }
    }
}

impl Session for MockSession {
    fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    fn is_resting(&self) -> bool {
        self.resting.load(Ordering::SeqCst)
    }

    async fn over(&self) {
        self.over.cancelled().await;
    }

    async fn close(&self) {
        self.closed.cancel();
    }
}

fn server(max_sessions: usize, share: bool) -> Arc<ServerConfig> {
    let transport = Transport::Stdio { command: vec!["x".to_owned()], env: [].into(), cwd: None, hide: Vec::new() };
    let session_idle = Duration::from_mins(1);
    Arc::new(ServerConfig { share, max_sessions, session_idle, ..ServerConfig::new("mock", transport) })
}

fn caller(name: &str) -> Caller {
    Caller {
        session: crate::protocol::ClientSession::Stateless,
        abilities: crate::protocol::Abilities::none(),
        principal: Principal::Named(name.into()),
        tasks: TaskSupport::Undeclared,
        progress_token: None,
        key: None,
        credentials: Credentials::default(),
    }
}

fn sessions(max_sessions: usize, share: bool, mock: Mock) -> Sessions<Mock> {
    Sessions::new(server(max_sessions, share), mock, Jobs::new())
}

#[tokio::test]
async fn calls_of_one_principal_share_a_session_and_others_get_their_own() {
    let sessions = sessions(8, false, Mock::default());
    let ann = sessions.get(&caller("ann"), Want::Call).await.unwrap();
    let again = sessions.get(&caller("ann"), Want::Call).await.unwrap();
    let bo = sessions.get(&caller("bo"), Want::Call).await.unwrap();
    ann.over.cancel();
    assert!(again.is_over());
    assert!(!bo.is_over());
}

#[tokio::test]
async fn with_share_everybody_has_the_same_session() {
    let sessions = sessions(1, true, Mock::default());
    let ann = sessions.get(&caller("ann"), Want::Call).await.unwrap();
    let bo = sessions.get(&caller("bo"), Want::Call).await.unwrap();
    ann.over.cancel();
    assert!(bo.is_over());
}

#[tokio::test]
async fn many_cold_calls_open_one_session() {
    let gate = Arc::new(Semaphore::new(0));
    let opened = Arc::new(AtomicUsize::new(0));
    let mock = Mock { gate: Some(Arc::clone(&gate)), opened: Arc::clone(&opened), fails: false };
    let sessions = sessions(8, false, mock);
    let ann = caller("ann");
    let calls = futures_util::future::join_all((0..32).map(|_| sessions.get(&ann, Want::Call)));
    let open = async {
        tokio::task::yield_now().await;
        gate.add_permits(32);
    };
    let (calls, ()) = tokio::join!(calls, open);
    assert!(calls.iter().all(Result::is_ok));
    assert_eq!(opened.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn one_session_too_many_is_refused_with_the_name_of_the_setting() {
    let sessions = sessions(1, false, Mock::default());
    let ann = sessions.get(&caller("ann"), Want::Call).await.unwrap();
    let refused = sessions.get(&caller("bo"), Want::Call).await.unwrap_err();
    assert_eq!(refused.reason, Reason::Busy);
    assert!(refused.message.contains("max_sessions"), "{}", refused.message);
    ann.over.cancel();
    ann.closed.cancelled().await;
    assert!(sessions.get(&caller("bo"), Want::Call).await.is_ok());
}

/// A caller whose clients can be asked something of its own, so that each needs a session of its own.
fn caller_who(name: &str, can: usize) -> Caller {
    let declared = format!(r#"{{"elicitation":{{"x{can}":{{}}}}}}"#);
    Caller { abilities: crate::protocol::Abilities::of(Json::parse(declared.into()).unwrap()), ..caller(name) }
}

#[tokio::test(start_paused = true)]
async fn an_owner_leaves_the_last_sessions_to_others_and_gives_up_an_idle_one_of_its_own_for_another() {
    let sessions = sessions(3, false, Mock::default());
    let get = |who: Caller| {
        let sessions = sessions.clone();
        async move { sessions.get(&who, Want::Call).await }
    };
    let bo = get(caller("bo")).await.unwrap();
    let bos = bo.clone();
    drop(bo);
    tokio::time::advance(Duration::from_secs(1)).await;
    let first = get(caller_who("ann", 1)).await.unwrap();
    let refused = get(caller_who("ann", 2)).await.unwrap_err();
    assert_eq!(refused.reason, Reason::Busy);
    assert!(refused.message.contains("your share") && refused.message.contains("max_sessions"), "{}", refused.message);
    assert!(!bos.is_over() && !bos.closed.is_cancelled(), "an idle session of somebody else makes no room for ann's");
    let anns = first.clone();
    drop(first);
    let second = get(caller_who("ann", 2)).await.unwrap();
    assert!(anns.closed.is_cancelled() && !bos.closed.is_cancelled());
    let _cy = get(caller("cy")).await.unwrap();
    assert!(!bos.closed.is_cancelled() && !second.closed.is_cancelled());
}

#[tokio::test]
async fn legacy_sessions_of_one_owner_are_no_more_than_its_share() {
    let sessions = sessions(4, false, Mock::default());
    let open = async |name: &str, number| {
        let caller = Caller { session: crate::protocol::ClientSession::Legacy(number), ..caller(name) };
        let hearer = Hearer::Audience(sessions.audience(&caller));
        sessions.attach(Opening { caller, hearer }).await
    };
    let mut held = Vec::new();
    for number in 0..3 {
        held.push(open("ann", number).await.unwrap());
    }
    assert!(open("ann", 3).await.unwrap_err().message.contains("your share"));
    held.push(open("bo", 4).await.unwrap());
    assert!(open("cy", 5).await.unwrap_err().message.contains("as many as"));
}

#[tokio::test]
async fn a_session_that_ended_is_replaced_even_before_its_end_was_noticed() {
    let sessions = sessions(1, false, Mock::default());
    let ann = sessions.get(&caller("ann"), Want::Call).await.unwrap();
    ann.over.cancel();
    assert!(!sessions.get(&caller("ann"), Want::Call).await.unwrap().is_over());
}

#[tokio::test]
async fn a_failed_connect_is_told_to_all_who_wait_and_tried_again_for_the_next() {
    let opened = Arc::new(AtomicUsize::new(0));
    let sessions = sessions(1, false, Mock { gate: None, opened: Arc::clone(&opened), fails: true });
    let ann = caller("ann");
    let both = tokio::join!(sessions.get(&ann, Want::Call), sessions.get(&ann, Want::Call));
    assert_eq!(both.0.unwrap_err().reason, Reason::NotStarted);
    assert_eq!(both.1.unwrap_err().reason, Reason::NotStarted);
    assert!(sessions.get(&ann, Want::Call).await.is_err());
    assert_eq!(opened.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_closed_when_idle_and_never_while_in_use() {
    let sessions = sessions(8, false, Mock::default());
    let ann = sessions.get(&caller("ann"), Want::Call).await.unwrap();
    let closed = ann.closed.clone();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(!closed.is_cancelled());
    drop(ann);
    tokio::time::sleep(Duration::from_secs(59)).await;
    drop(sessions.get(&caller("ann"), Want::Call).await.unwrap());
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert!(!closed.is_cancelled());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(closed.is_cancelled());
    assert_eq!(sessions.count(), 0);
}

#[tokio::test]
async fn closing_ends_every_session_and_refuses_new_ones() {
    let sessions = sessions(8, false, Mock::default());
    let ann = sessions.get(&caller("ann"), Want::Call).await.unwrap();
    sessions.close().await;
    assert!(ann.closed.is_cancelled());
    assert_eq!(sessions.get(&caller("ann"), Want::Call).await.unwrap_err().reason, Reason::Stopping);
}

#[tokio::test]
async fn an_idle_session_is_closed_to_make_room_for_another_principal() {
    let sessions = sessions(1, false, Mock::default());
    let ann = sessions.get(&caller("ann"), Want::Call).await.unwrap();
    let closed = ann.closed.clone();
    drop(ann);
    assert!(sessions.get(&caller("bo"), Want::Call).await.is_ok());
    closed.cancelled().await;
}

#[tokio::test]
async fn calls_get_to_a_serial_session_that_is_opened_for_them_in_the_order_in_which_they_came() {
    let gate = Arc::new(Semaphore::new(0));
    let mock = Mock { gate: Some(Arc::clone(&gate)), ..Mock::default() };
    let config = ServerConfig { serial: true, ..ServerConfig::clone(&server(8, false)) };
    let sessions = Sessions::new(Arc::new(config), mock, Jobs::new());
    let (ann, order) = (caller("ann"), std::sync::Mutex::new(Vec::new()));
    let calls = futures_util::future::join_all((0..32).map(|number| {
        let (sessions, ann, order) = (&sessions, &ann, &order);
        async move {
            let lease = sessions.get(ann, Want::Call).await.unwrap();
            order.lock().unwrap().push(number);
            drop(lease);
        }
    }));
    let open = async {
        tokio::task::yield_now().await;
        gate.add_permits(1);
    };
    tokio::join!(calls, open);
    assert_eq!(order.into_inner().unwrap(), (0..32).collect::<Vec<_>>());
}

/// Sessions with a server that takes one call at a time, shared by all, and how many were opened.
fn serial_sessions(count: SessionCount) -> (Sessions<Mock>, Arc<AtomicUsize>) {
    let opened = Arc::new(AtomicUsize::new(0));
    let mock = Mock { opened: Arc::clone(&opened), ..Mock::default() };
    let config = ServerConfig { serial: true, sessions: count, ..ServerConfig::clone(&server(8, true)) };
    (Sessions::new(Arc::new(config), mock, Jobs::new()), opened)
}

#[tokio::test]
async fn nobody_passes_those_who_wait_for_a_serial_session_while_a_stopped_call_has_it() {
    for count in [SessionCount::Auto, SessionCount::One] {
        let (sessions, opened) = serial_sessions(count);
        let (ann, bo) = (caller("ann"), caller("bo"));
        let stopped = sessions.get(&ann, Want::Call).await.unwrap();
        let mut first = Box::pin(sessions.get(&bo, Want::Call));
        assert!(first.as_mut().now_or_never().is_none());
        stopped.resting.store(true, Ordering::SeqCst);
        let mut call = Box::pin(sessions.get(&ann, Want::Call));
        let mut request = Box::pin(sessions.get(&bo, Want::Request));
        for _ in 0..64 {
            assert!(call.as_mut().now_or_never().is_none() && request.as_mut().now_or_never().is_none(), "{count:?}");
            tokio::task::yield_now().await;
        }
        assert!(first.as_mut().now_or_never().is_none());
        stopped.resting.store(false, Ordering::SeqCst);
        drop(stopped);
        let first = first.await.unwrap();
        assert!(call.as_mut().now_or_never().is_none());
        drop(first);
        let next = call.await.unwrap();
        assert!(request.as_mut().now_or_never().is_none());
        drop(next);
        assert!(request.await.is_ok());
        assert_eq!(opened.load(Ordering::SeqCst), 1, "{count:?}");
    }
}

#[tokio::test]
async fn another_session_does_not_take_the_place_of_a_serial_one_that_a_stopped_call_has() {
    let (sessions, opened) = serial_sessions(SessionCount::Pool);
    let get = async || sessions.get(&caller("ann"), Want::Call).await.unwrap();
    let stopped = get().await;
    stopped.resting.store(true, Ordering::SeqCst);
    let other = get().await;
    assert_eq!(opened.load(Ordering::SeqCst), 2);
    stopped.resting.store(false, Ordering::SeqCst);
    drop(stopped);
    let _again = get().await;
    drop(other);
    let _other = get().await;
    assert_eq!(opened.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn those_in_the_line_of_a_session_that_ends_get_to_the_next_one_in_their_order() {
    let (sessions, opened) = serial_sessions(SessionCount::Auto);
    let ann = caller("ann");
    let first = sessions.get(&ann, Want::Call).await.unwrap();
    let mut line = [(); 3].map(|()| Box::pin(sessions.get(&ann, Want::Call)));
    for place in &mut line {
        assert!(place.as_mut().now_or_never().is_none());
    }
    first.over.cancel();
    drop(first);
    for at in 0..line.len() {
        let lease = line[at].as_mut().await.unwrap();
        assert!(!lease.is_over(), "{at}");
        for later in &mut line[at + 1..] {
            assert!(later.as_mut().now_or_never().is_none(), "{at}");
        }
        drop(lease);
    }
    assert_eq!(opened.load(Ordering::SeqCst), 2);
}
