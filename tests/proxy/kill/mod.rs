//! kill -9 at random moments (field case 72): whatever a client saw is there, and nothing runs twice.

mod book;
mod hits;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rand::seq::IteratorRandom;
use serde_json::json;
use tokio::sync::Notify;

use crate::client::{Answer, Client};
use crate::process::{Ground, Proxy};
use crate::scripted::worked;
use crate::upstream::Upstream;
use crate::{bounded, eventually};
use book::{Book, Kind, Seen, Task, Told};
use hits::{Hits, Moment};

/// How many rounds; another number comes from the environment.
const ROUNDS: &str = "RAINCHECK_KILL_ROUNDS";

/// Rounds after which each moment must have been hit.
const MANY: usize = 200;

/// Callers at the same time.
const CALLERS: usize = 4;

/// One round, from its start to the kill.
struct Round {
    book: Arc<Book>,
    number: usize,
    replies: AtomicUsize,
    refusals: AtomicUsize,
    replied: Notify,
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_a_client_saw_is_lost_when_the_proxy_is_killed_at_any_moment() {
    let rounds = std::env::var(ROUNDS).ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(30);
    let upstream = Upstream::stdio().await;
    let rest = "[[tool]]\nmatch = \"*\"\nmode = \"task\"\n[[tool]]\nmatch = \"queued\"\nmode = \"task\"\nmax_running = 1\n\
                [[tool]]\nmatch = \"fading\"\nmode = \"task\"\ntimeout = \"200ms\"\nkeep = \"1ms\"\n[[tool]]\nmatch = \"auto\"\nafter = \"10ms\"\n\
                [[tool]]\nmatch = \"again\"\nmode = \"task\"\non_lost = \"rerun\"";
    let ground =
        Ground::durable(&upstream, rest).env("RUST_LOG", "info,raincheck::runner=trace,raincheck::store=trace");
    let book = Arc::new(Book::default());
    let mut hits = Hits::default();
    for number in 0..rounds {
        if number % 5 == 4 {
            // Some end while the proxy starts, and settles what the one before left.
            let (mut proxy, _ready) = ground.spawn();
            tokio::time::sleep(Duration::from_millis(rand::random_range(0..150))).await;
            proxy.kill();
            hits.count(&proxy.last_log().await, false);
        }
        let proxy = ground.start().await;
        check(&book, &proxy.client(), number, 20).await;
        run_and_kill(proxy, &upstream, &book, number, &mut hits).await;
    }
    let proxy = ground.start().await;
    check(&book, &proxy.client(), rounds, usize::MAX).await;
    assert_eq!(proxy.stop().await, Some(0));
    eventually("no server is left", || upstream.processes() == 0).await;

    let ledger = book.weigh(&upstream.ledger());
    println!("{rounds} rounds, killed in the middle of {hits:?}: {ledger:?}");
    assert!(ledger.completed > rounds && ledger.unknown > rounds && ledger.sent_later > rounds / 2, "{ledger:?}");
    assert!(ledger.purged > rounds / 2 && ledger.again > 0, "{ledger:?}");
    assert!(rounds < MANY || hits.has_all(), "not every moment was hit: {hits:?}");
}

/// Calls, polls and cancels, until the proxy is killed.
async fn run_and_kill(mut proxy: Proxy, upstream: &Upstream, book: &Arc<Book>, number: usize, hits: &mut Hits) {
    let round = Arc::new(Round {
        book: Arc::clone(book),
        number,
        replies: AtomicUsize::new(0),
        refusals: AtomicUsize::new(0),
        replied: Notify::new(),
    });
    // This one is never answered, so those behind it wait. What the last process left in the line comes first.
    round.call(&proxy.client(), "queued", Kind::Blocks, None, 0).await.unwrap();
    // The server has it, so that it is lost with the proxy. One that was not sent yet would be by the next process.
    let mut never_answered = vec![upstream.run().await];
    while !never_answered.iter().any(|run| run.request.contains(r#""ms":null"#)) {
        never_answered.push(upstream.run().await);
    }
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
    match number % 3 {
        // Not always right behind a reply.
        0 => tokio::time::sleep(Duration::from_micros(rand::random_range(0..3000))).await,
        // While something is written.
        1 => {
            let moment = Moment::any();
            proxy.says_anew(|line| moment.is_in(line)).await;
            tokio::time::sleep(Duration::from_micros(rand::random_range(0..300))).await;
        }
        // While it ends what runs.
        _ => {
            proxy.terminate();
            tokio::time::sleep(Duration::from_millis(rand::random_range(0..60))).await;
        }
    }
    let was_alive = proxy.is_alive();
    proxy.kill();
    // What was on its way to them counts as seen.
    for caller in callers {
        bounded(caller).await.unwrap();
    }
    if was_alive {
        hits.count(&proxy.last_log().await, round.refusals.load(Ordering::SeqCst) > 0);
    }
}

impl Round {
    /// Does something; an error when the proxy is gone.
    async fn act(&self, client: &Client) -> Result<(), String> {
        let action = rand::random_range(0..11);
        let ms = [0, 0, 2, 20, 5000][rand::random_range(0..5)];
        let bytes = [10, 1000, 5000, 100_000][rand::random_range(0..4)];
        match action {
            0..3 => self.call(client, "work", Kind::Runs, Some(ms), bytes).await?,
            3 => self.call(client, "fading", Kind::Fades, Some(ms), bytes).await?,
            4 => self.call(client, "auto", Kind::Runs, Some(ms), bytes).await?,
            5 => self.call(client, "queued", Kind::Waits, Some(0), bytes).await?,
            6 => self.call(client, "again", Kind::RunsAgain, Some(ms.min(100)), bytes).await?,
            7..10 => self.poll(client).await?,
            _ => self.cancel(client).await?,
        }
        self.replies.fetch_add(1, Ordering::SeqCst);
        self.replied.notify_one();
        Ok(())
    }

    async fn call(&self, client: &Client, tool: &str, kind: Kind, ms: Option<u64>, bytes: usize) -> Result<(), String> {
        let n = self.book.call(kind);
        let arguments = json!({ "n": n, "ms": ms, "bytes": bytes });
        let text = client.text("tools/call", &format!(r#""name":"{tool}","arguments":{arguments}"#));
        let made = Instant::now();
        let answer = client.try_send("tools/call", tool, text).await?;
        if answer.value()["error"]["data"]["reason"] == "stopping" {
            // It is being drained.
            self.book.told(n, Told::Refused);
            self.refusals.fetch_add(1, Ordering::SeqCst);
            return Err(answer.message);
        }
        let result = answer.result();
        if result["resultType"] == "task" {
            let task = Task { n, bytes, kind, seen: Seen::Open, is_cancelled: false, round: self.number, made };
            self.book.tasks.lock().unwrap().insert(answer.task_id(), task);
            self.book.told(n, Told::Handle(answer.task_id()));
        } else {
            assert_eq!(tool, "auto");
            assert!(answer.raw_result().ends_with(&worked(n, bytes)[1..]), "{}", answer.message);
            self.book.told(n, Told::Result);
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
        task.ended_rightly(&answer, &shown);
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
