//! kill -9 at random moments (field case 72): whatever a client saw is there, and nothing runs twice.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::seq::IteratorRandom;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::client::{Answer, Client};
use crate::process::{Ground, Proxy};
use crate::scripted::worked;
use crate::upstream::Upstream;
use crate::{bounded, eventually};

/// How many rounds; another number comes from the environment.
const ROUNDS: &str = "RAINCHECK_KILL_ROUNDS";

/// The hard limit of the tool that is forgotten soon; its outcome is kept no longer.
const FADES_AFTER: Duration = Duration::from_millis(200);

/// Callers at the same time.
const CALLERS: usize = 4;

/// What was seen of a task, by anybody.
#[derive(Clone, Debug)]
struct Task {
    n: u64,
    bytes: usize,
    kind: Kind,
    seen: Seen,
    is_cancelled: bool,
    round: usize,
    made: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It runs at once.
    Runs,
    /// It runs and never ends, so that others wait.
    Blocks,
    /// It waits behind such a run.
    Waits,
    /// It runs, and is forgotten soon.
    Fades,
}

#[derive(Clone, Debug)]
enum Seen {
    Open,
    /// Everything that must not change any more.
    Ended(String),
    /// It was forgotten.
    Gone,
}

/// What is known over all rounds.
#[derive(Default)]
struct Book {
    tasks: Mutex<BTreeMap<String, Task>>,
    sent: Mutex<HashSet<u64>>,
    next: AtomicU64,
}

/// One round, from its start to the kill.
struct Round {
    book: Arc<Book>,
    number: usize,
    replies: AtomicUsize,
    replied: Notify,
}

/// How the tasks of all rounds ended.
#[derive(Debug, Default)]
struct Tally {
    completed: usize,
    unknown: usize,
    /// Of the completed: sent by another process than the one that took the call.
    sent_later: usize,
    cancelled: usize,
    /// Forgotten when their time was over.
    purged: usize,
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_a_client_saw_is_lost_when_the_proxy_is_killed_at_any_moment() {
    let rounds = std::env::var(ROUNDS).ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(30);
    let upstream = Upstream::stdio().await;
    let rest = "[[tool]]\nmatch = \"*\"\nmode = \"task\"\n[[tool]]\nmatch = \"queued\"\nmode = \"task\"\nmax_running = 1\n\
                [[tool]]\nmatch = \"fading\"\nmode = \"task\"\ntimeout = \"200ms\"\nkeep = \"1ms\"\n[[tool]]\nmatch = \"auto\"\nafter = \"10ms\"";
    let ground = Ground::durable(&upstream, rest);
    let book = Arc::new(Book::default());
    for number in 0..rounds {
        if number % 5 == 4 {
            // Some end while the proxy starts, and settles what the one before left.
            let (mut proxy, _ready) = ground.spawn();
            tokio::time::sleep(Duration::from_millis(rand::random_range(0..150))).await;
            proxy.kill();
        }
        let proxy = ground.start().await;
        check(&book, &proxy.client(), number, 20).await;
        run_and_kill(proxy, &upstream, &book, number).await;
    }
    let proxy = ground.start().await;
    check(&book, &proxy.client(), rounds, usize::MAX).await;
    assert_eq!(proxy.stop().await, Some(0));
    eventually("no server is left", || upstream.processes() == 0).await;

    let tally = weigh(&book, &upstream.ledger());
    println!("{rounds} rounds: {} calls sent, {tally:?}", book.sent.lock().unwrap().len());
    assert!(tally.completed > rounds && tally.unknown > rounds && tally.sent_later > rounds / 2, "{tally:?}");
    assert!(tally.purged > rounds / 2, "{tally:?}");
}

/// Calls, polls and cancels, until the proxy is killed.
async fn run_and_kill(mut proxy: Proxy, upstream: &Upstream, book: &Arc<Book>, number: usize) {
    let round =
        Arc::new(Round { book: Arc::clone(book), number, replies: AtomicUsize::new(0), replied: Notify::new() });
    // This one is never answered, so those behind it wait. What the last process left in the line comes first.
    round.call(&proxy.client(), "queued", Kind::Blocks, None, 0).await.unwrap();
    let _never_answered = upstream.run().await;
    let mut callers = Vec::new();
    for _ in 0..CALLERS {
        let (round, client) = (Arc::clone(&round), proxy.client());
        callers.push(tokio::spawn(async move { while round.act(&client).await.is_ok() {} }));
    }
    let enough = rand::random_range(1..60);
    bounded(async {
        while round.replies.load(Ordering::SeqCst) < enough {
            round.replied.notified().await;
        }
    })
    .await;
    // Not always right behind a reply.
    tokio::time::sleep(Duration::from_micros(rand::random_range(0..3000))).await;
    if number % 3 == 2 {
        // Some are killed while they end what runs.
        proxy.terminate();
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..60))).await;
    }
    proxy.kill();
    // What was on its way to them counts as seen.
    for caller in callers {
        bounded(caller).await.unwrap();
    }
}

impl Round {
    /// Does something; an error when the proxy is gone.
    async fn act(&self, client: &Client) -> Result<(), String> {
        let action = rand::random_range(0..10);
        let ms = [0, 0, 2, 20, 5000][rand::random_range(0..5)];
        let bytes = [10, 1000, 5000, 100_000][rand::random_range(0..4)];
        match action {
            0..3 => self.call(client, "work", Kind::Runs, Some(ms), bytes).await?,
            3 => self.call(client, "fading", Kind::Fades, Some(ms), bytes).await?,
            4 => self.call(client, "auto", Kind::Runs, Some(ms), bytes).await?,
            5 => self.call(client, "queued", Kind::Waits, Some(0), bytes).await?,
            6..9 => self.poll(client).await?,
            _ => self.cancel(client).await?,
        }
        self.replies.fetch_add(1, Ordering::SeqCst);
        self.replied.notify_one();
        Ok(())
    }

    async fn call(&self, client: &Client, tool: &str, kind: Kind, ms: Option<u64>, bytes: usize) -> Result<(), String> {
        let n = self.book.next.fetch_add(1, Ordering::SeqCst);
        self.book.sent.lock().unwrap().insert(n);
        let arguments = json!({ "n": n, "ms": ms, "bytes": bytes });
        let text = client.text("tools/call", &format!(r#""name":"{tool}","arguments":{arguments}"#));
        let made = Instant::now();
        let answer = client.try_send("tools/call", tool, text).await?;
        if answer.value()["error"]["data"]["reason"] == "stopping" {
            // It is being drained.
            return Err(answer.message);
        }
        let result = answer.result();
        if result["resultType"] == "task" {
            let task = Task { n, bytes, kind, seen: Seen::Open, is_cancelled: false, round: self.number, made };
            self.book.tasks.lock().unwrap().insert(answer.task_id(), task);
        } else {
            assert_eq!(tool, "auto");
            assert!(answer.raw_result().ends_with(&worked(n, bytes)[1..]), "{}", answer.message);
        }
        Ok(())
    }

    async fn poll(&self, client: &Client) -> Result<(), String> {
        let Some((id, _)) = self.book.pick(self.number) else { return Ok(()) };
        let text = client.text("tasks/get", &format!(r#""taskId":"{id}""#));
        let answer = client.try_send("tasks/get", &id, text).await?;
        self.book.saw(&id, &answer);
        Ok(())
    }

    async fn cancel(&self, client: &Client) -> Result<(), String> {
        let Some((id, task)) = self.book.pick(self.number) else { return Ok(()) };
        if task.kind == Kind::Blocks {
            return Ok(());
        }
        self.book.tasks.lock().unwrap().get_mut(&id).unwrap().is_cancelled = true;
        let text = client.text("tasks/cancel", &format!(r#""taskId":"{id}""#));
        let answer = client.try_send("tasks/cancel", &id, text).await?;
        if task.may_be_gone(&answer) {
            return Ok(());
        }
        assert_eq!(answer.result(), json!({ "resultType": "complete" }));
        Ok(())
    }
}

impl Task {
    /// Whether the answer says that there is no such task, and that may be so.
    fn may_be_gone(&self, answer: &Answer) -> bool {
        let is_gone = answer.value()["error"]["code"] == -32602;
        assert!(!is_gone || self.kind == Kind::Fades && self.made.elapsed() > FADES_AFTER, "lost: {self:?}");
        is_gone
    }
}

impl Book {
    /// Any task of the round.
    fn pick(&self, round: usize) -> Option<(String, Task)> {
        let tasks = self.tasks.lock().unwrap();
        let of_round = tasks.iter().filter(|(_, task)| task.round == round);
        of_round.choose(&mut rand::rng()).map(|(id, task)| (id.clone(), task.clone()))
    }

    /// Compares what is seen of a task with what was seen before, and remembers it.
    fn saw(&self, id: &str, answer: &Answer) {
        let mut tasks = self.tasks.lock().unwrap();
        let task = tasks.get_mut(id).unwrap();
        if task.may_be_gone(answer) {
            task.seen = Seen::Gone;
            return;
        }
        let status = answer.result()["status"].as_str().unwrap().to_owned();
        let lasting = lasting(answer);
        match &task.seen {
            // The two polls may have come in another order than they were answered.
            Seen::Ended(_) if status == "working" => {}
            Seen::Ended(before) => assert_eq!(before, &lasting, "an end that changed: {task:?}"),
            Seen::Open if status != "working" => task.seen = Seen::Ended(lasting),
            // The two polls may have come in another order here too; at the end it must stay gone.
            Seen::Open | Seen::Gone => {}
        }
    }
}

/// What must stay as it is once a task has ended.
fn lasting(answer: &Answer) -> String {
    let mut members: BTreeMap<String, &RawValue> = serde_json::from_str(answer.raw_result()).unwrap();
    members.remove("pollIntervalMs");
    serde_json::to_string(&members).unwrap()
}

/// Reads every task of the round before and some older ones, after a restart: all are there and have ended.
async fn check(book: &Book, client: &Client, round: usize, older: usize) {
    let (last, rest): (Vec<_>, Vec<_>) =
        book.tasks.lock().unwrap().clone().into_iter().partition(|(_, task)| task.round + 1 >= round);
    let amount = older.min(rest.len());
    let some = rest.into_iter().choose_multiple(&mut rand::rng(), amount);
    for (id, task) in last.into_iter().chain(some) {
        let answer = settled(client, &id, &task).await;
        book.saw(&id, &answer);
        if task.may_be_gone(&answer) {
            continue;
        }
        let shown = answer.result();
        ended_rightly(&task, &answer, &shown);
    }
}

/// Looks at a task until it has ended or is gone.
async fn settled(client: &Client, id: &str, task: &Task) -> Answer {
    let looked = async {
        loop {
            let answer = client.get(id).await;
            if task.may_be_gone(&answer) || answer.result()["status"] != "working" {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    };
    bounded(looked).await
}

/// Whether a task may have ended in this way.
fn ended_rightly(task: &Task, answer: &Answer, shown: &Value) {
    match shown["status"].as_str().unwrap() {
        "completed" => {
            assert_ne!(task.kind, Kind::Blocks, "{shown}");
            assert!(answer.outcome().ends_with(&worked(task.n, task.bytes)[1..]), "changed: {task:?}");
        }
        "cancelled" => assert!(task.is_cancelled, "{task:?}: {shown}"),
        "failed" => {
            let error = &shown["error"];
            match (task.kind, error["data"]["reason"].as_str().unwrap()) {
                (Kind::Fades, "timeout") => {}
                // A process may be killed right after it has sent what waited.
                (_, "outcome_unknown") => {
                    assert_eq!(error["data"], json!({ "reason": "outcome_unknown" }));
                    assert_eq!(shown["_meta"], json!({ "dev.raincheck/reason": "outcome_unknown" }));
                }
                _ => panic!("{task:?}: {shown}"),
            }
        }
        other => panic!("{other}: {shown}"),
    }
}

/// Compares the ledger with what was sent and what became of it.
fn weigh(book: &Book, ledger: &[String]) -> Tally {
    let mut runs: HashMap<u64, usize> = HashMap::new();
    for line in ledger {
        *runs.entry(line.split(' ').nth(1).unwrap().parse().unwrap()).or_default() += 1;
    }
    let sent = book.sent.lock().unwrap();
    for (n, count) in &runs {
        assert_eq!(*count, 1, "call {n} ran {count} times");
        assert!(sent.contains(n), "call {n} was never sent");
    }
    let mut tally = Tally::default();
    for (id, task) in book.tasks.lock().unwrap().iter() {
        let text = match &task.seen {
            Seen::Open => panic!("{id} was not looked at: {task:?}"),
            Seen::Gone => {
                tally.purged += 1;
                continue;
            }
            Seen::Ended(text) => text,
        };
        let shown: Value = serde_json::from_str(text).unwrap();
        let ran = runs.contains_key(&task.n);
        match shown["status"].as_str().unwrap() {
            "completed" => {
                assert!(ran, "completed without a run: {task:?}");
                tally.completed += 1;
                tally.sent_later += usize::from(task.kind == Kind::Waits);
            }
            "failed" => tally.unknown += 1,
            _ => {
                assert!(task.kind != Kind::Waits || !ran, "it ran, though it was cancelled in the queue: {task:?}");
                tally.cancelled += 1;
            }
        }
    }
    tally
}
