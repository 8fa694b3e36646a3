//! Fills a store, and measures the disk alone.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use raincheck::clock::SystemClock;
use raincheck::config::{Durability, StoreConfig};
use raincheck::jobs::Jobs;
use raincheck::protocol::{Json, Principal};
use raincheck::store::{Ending, Store};
use raincheck::task::{Expiry, State, Task, TaskId};

/// How many times a second the disk takes 4 KiB and `fdatasync`, one after the other.
pub fn fdatasync_rate(folder: &Path) -> f64 {
    let mut file = File::create(folder.join("alone")).unwrap();
    let (block, started) = ([0x5a_u8; 4096], Instant::now());
    let mut done = 0_u32;
    while started.elapsed() < Duration::from_secs(2) {
        file.write_all(&block).unwrap();
        file.sync_data().unwrap();
        done += 1;
    }
    f64::from(done) / started.elapsed().as_secs_f64()
}

/// A store with that many ended tasks of the local user; their ids.
pub fn fill(path: &Path, tasks: usize) -> Arc<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = StoreConfig {
            path: path.to_owned(),
            // Only the filling: Raincheck itself opens it again with what its config says.
            durability: Durability::Process,
            cache_bytes: 32 << 20,
            min_free_bytes: Some(0),
            max_tasks: 1_000_000,
        };
        let store = Store::open(&config, Arc::new(SystemClock), &Jobs::new()).unwrap().store;
        let owner = store.owner(&Principal::Local);
        let mut ids = Vec::with_capacity(tasks);
        for _ in 0..tasks.div_ceil(128) {
            let batch = (0..128.min(tasks - ids.len())).map(|_| {
                let (store, now) = (store.clone(), store.clock().now());
                let id = TaskId::generate(now);
                let keep = Duration::from_hours(24);
                let expiry = Expiry::Limited { ttl: keep, keep };
                let task = Task {
                    state: State::Running { started: now },
                    ..Task::queued(id, owner, "bench".to_owned(), "echo".to_owned(), now, expiry)
                };
                let text = "x".repeat(700);
                let result = Json::from_value(&serde_json::json!({ "content": [{ "type": "text", "text": text }] }));
                tokio::spawn(async move {
                    store.create(task).await.unwrap();
                    store.settle(&id, Ending::Completed(result)).await.unwrap();
                    id.to_string()
                })
            });
            for job in batch.collect::<Vec<_>>() {
                ids.push(job.await.unwrap());
            }
        }
        store.close().await;
        // As a proxy leaves it, which makes each commit durable: not what filling costs is measured, but a start.
        for file in std::fs::read_dir(path).unwrap() {
            std::fs::File::open(file.unwrap().path()).unwrap().sync_all().unwrap();
        }
        Arc::new(ids)
    })
}
