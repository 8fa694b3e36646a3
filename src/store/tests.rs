//! The record: what is written is read again, and nothing that is read can do harm.

use std::fs::TryLockError;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::sync::oneshot;

use super::batch::Batch;
use super::codec::{BadRecord, MAX_MESSAGE, MAX_RECORD, decode, encode, shortened};
use super::directory::try_for_a_while;
use super::engine::{Engine, EngineError, ExpiryKey, Oversized, Writes};
use super::keys::Claim;
use super::op::Op;
use super::quota::Tally;
use super::shared::{Hot, Slot};
use super::{ReadError, StoreFailed};
use crate::clock::{ManualClock, SharedClock, SystemClock, Timestamp};
use crate::config::{Cost, Durability, StoreConfig};
use crate::protocol::{Failure, Json, Question, QuestionKind, Reason, Retry};
use crate::task::{
    Asked, Canceller, Cause, Change, Charge, Expiry, KeyDigest, KeySource, OpenQuestion, Owner, State, Stored, Task,
    TaskId,
};

fn durations() -> impl Strategy<Value = Duration> {
    (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos))
}

fn timestamps() -> impl Strategy<Value = Timestamp> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>()].prop_map(Timestamp::from_millis)
}

fn stored() -> impl Strategy<Value = Stored> {
    (any::<u64>(), any::<u32>(), any::<Option<u32>>()).prop_map(|(len, checksum, file)| Stored { len, checksum, file })
}

fn failures() -> impl Strategy<Value = Failure> {
    let reasons = prop::sample::select(vec![
        Reason::OutcomeUnknown,
        Reason::NotStarted,
        Reason::Timeout,
        Reason::QueueTimeout,
        Reason::Busy,
        Reason::Unauthorized,
        Reason::BadAnswer,
        Reason::TooLarge,
        Reason::Store,
        Reason::Stopping,
        Reason::InputTimeout,
    ]);
    let retries =
        prop_oneof![Just(Retry::Yes), Just(Retry::No), Just(Retry::Unknown), durations().prop_map(Retry::After)];
    (reasons, any::<String>(), retries).prop_map(|(reason, message, retry)| Failure::new(reason, message, retry))
}

fn states() -> impl Strategy<Value = State> {
    prop_oneof![
        Just(State::Queued),
        timestamps().prop_map(|started| State::Running { started }),
        stored().prop_map(|result| State::Completed { result }),
        (any::<i64>(), any::<String>(), stored())
            .prop_map(|(code, message, error)| State::Failed { cause: Cause::Server { code, message, error } }),
        failures().prop_map(|failure| State::Failed { cause: Cause::Ours(failure) }),
        (prop::sample::select(vec![Canceller::Owner, Canceller::Operator]), any::<bool>())
            .prop_map(|(by, sent)| State::Cancelled { by, sent }),
        (timestamps(), timestamps(), prop::collection::vec(questions(), 1..5))
            .prop_map(|(started, since, questions)| State::InputRequired { started, since, questions }),
    ]
}

/// As they are read from a record, which has their texts beside it.
fn questions() -> impl Strategy<Value = OpenQuestion> {
    let kinds = prop::sample::select(vec![QuestionKind::Elicitation, QuestionKind::Sampling, QuestionKind::Roots]);
    (any::<u32>(), any::<String>(), kinds).prop_map(|(number, key, kind)| OpenQuestion {
        number,
        key,
        kind,
        params: Json::null(),
    })
}

fn asked() -> impl Strategy<Value = Asked> {
    (any::<u32>(), prop::collection::vec(any::<u64>(), 0..4)).prop_map(|(count, hinted)| Asked { count, hinted })
}

fn tasks() -> impl Strategy<Value = Task> {
    let expiries = prop_oneof![
        Just(Expiry::Never),
        (durations(), durations()).prop_map(|(ttl, keep)| Expiry::Limited { ttl, keep })
    ];
    let owners = (any::<u8>(), any::<[u8; 32]>()).prop_map(|(scheme, digest)| Owner::from_parts(scheme, digest));
    let keys = proptest::option::of(any::<[u8; 32]>()).prop_map(|key| key.map(KeyDigest::from_bytes));
    let charges = any::<[u64; 3]>().prop_map(|costs| {
        let [price, per_minute, total] = costs.map(Cost::from_millionths);
        Charge { price, per_minute, total }
    });
    let more = (keys, any::<u32>(), prop_oneof![Just(Charge::default()), charges]);
    let names = (any::<String>(), any::<String>());
    (owners, names, timestamps(), timestamps(), expiries, more, asked(), states()).prop_map(
        |(owner, (server, tool), created, updated, expiry, (key, reruns, charge), asked, state)| {
            let id = TaskId::generate(created);
            Task { id, owner, server, tool, created, updated, expiry, key, reruns, charge, asked, state }
        },
    )
}

proptest! {
    #[test]
    fn a_record_reads_back_as_the_task_it_was_made_of(task in tasks()) {
        prop_assert_eq!(decode(task.id, &encode(&task)), Ok(task));
    }

    #[test]
    fn any_bytes_read_as_a_task_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(TaskId::generate(Timestamp::from_millis(1)), &bytes);
    }

    /// Damage comes to records that were good once, so most of it is near to something that reads.
    #[test]
    fn a_damaged_record_reads_as_a_task_or_an_error(task in tasks(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut record = encode(&task);
        let at = at.index(record.len());
        record[at] = byte;
        let _ = decode(task.id, &record);
        record.truncate(at);
        prop_assert!(decode(task.id, &record).is_err());
    }

    #[test]
    fn a_shortened_message_is_a_beginning_that_fits(message in "[aé€😀]{0,2000}") {
        let short = shortened(message.clone());
        prop_assert!(short.len() <= MAX_MESSAGE && message.starts_with(&short));
        prop_assert!(short == message || short.len() > MAX_MESSAGE - 4);
    }
}

fn example(state: State, asked: Asked) -> Task {
    Task {
        id: TaskId::generate(Timestamp::from_millis(1)),
        owner: Owner::from_parts(1, [0xab; 32]),
        server: "s".to_owned(),
        tool: "tool".to_owned(),
        created: Timestamp::from_millis(300),
        updated: Timestamp::from_millis(301),
        expiry: Expiry::Limited { ttl: Duration::from_secs(61), keep: Duration::new(1, 5) },
        key: None,
        reruns: 0,
        charge: Charge::default(),
        asked,
        state,
    }
}

fn written(version: u8, rest: &[u8]) -> Vec<u8> {
    [&[version, 1], [0xab; 32].as_slice(), b"\x01s\x04tool\xac\x02\xad\x02\x01\x3d\x00\x01\x05", rest].concat()
}

fn busy() -> State {
    let retry = Retry::After(Duration::from_secs(2));
    State::Failed { cause: Cause::Ours(Failure::new(Reason::Busy, "no", retry)) }
}

/// Written by hand, so that a change of the layout does not go unseen: stores out there hold such records.
#[test]
fn the_layout_of_a_record_is_what_it_always_was() {
    let failed = example(busy(), Asked { count: 3, hinted: vec![0x0102] });
    let record = written(2, b"\x03\x01\0\0\0\0\0\0\x01\x02\x04\x05\x02no\x01\x02\x00");
    assert_eq!(decode(failed.id, &record), Ok(failed.clone()));
    let record = written(3, b"\0\0\0\x03\x01\0\0\0\0\0\0\x01\x02\x04\x05\x02no\x01\x02\x00");
    assert_eq!(encode(&failed), record);
    assert_eq!(decode(failed.id, &record), Ok(failed.clone()));
    let [price, per_minute, total] = [7, 8, 300].map(Cost::from_millionths);
    let charge = Charge { price, per_minute, total };
    for source in [KeySource::Caller, KeySource::Running, KeySource::Window(Duration::from_mins(10))] {
        let task = Task { key: Some(KeyDigest::from_bytes([3; 32]).from_source(source)), ..failed.clone() };
        assert_eq!(decode(task.id, &encode(&task)).unwrap().key.unwrap().source(), source);
    }
    let keyed = Task { key: Some(KeyDigest::from_bytes([0xcd; 32])), reruns: 1, charge, ..failed };
    let with_key = [
        &[1],
        [0xcd; 32].as_slice(),
        b"\x01\x01\x07\x08\xac\x02\x03\x01\0\0\0\0\0\0\x01\x02\x04\x05\x02no\x01\x02\x00",
    ];
    let record = written(3, &with_key.concat());
    assert_eq!(encode(&keyed), record);
    assert_eq!(decode(keyed.id, &record), Ok(keyed));
    let question =
        OpenQuestion { number: 2, key: "name".to_owned(), kind: QuestionKind::Sampling, params: Json::null() };
    let (started, since) = (Timestamp::from_millis(1), Timestamp::from_millis(2));
    let asking = State::InputRequired { started, since, questions: vec![question] };
    let asking = example(asking, Asked { count: 2, hinted: vec![] });
    let record = written(2, b"\x02\x00\x06\x01\x02\x01\x02\x04name\x02");
    assert_eq!(decode(asking.id, &record), Ok(asking.clone()));
    let record = written(3, b"\0\0\0\x02\x00\x06\x01\x02\x01\x02\x04name\x02");
    assert_eq!(encode(&asking), record);
    assert_eq!(decode(asking.id, &record), Ok(asking));
}

#[test]
fn records_from_before_there_were_questions_are_read() {
    let table = [(b"\x04\x05\x02no\x01\x02\x00".as_slice(), busy()), (b"\x01\x07", running())];
    for (state, expected) in table {
        let task = example(expected, Asked::default());
        assert_eq!(decode(task.id, &written(1, state)), Ok(task.clone()));
        assert_eq!(decode(task.id, &written(4, state)), Err(BadRecord::Version(4)));
    }
}

/// So a new value of a tag needs no new version: a build from before it refuses the record, as it would a new version.
#[test]
fn a_value_that_a_later_build_gave_to_a_tag_is_refused_and_not_misread() {
    let asked_nothing = b"\0\0".as_slice();
    let key = |kind: u8| [&[kind], [0xcd; 32].as_slice(), b"\0\0", asked_nothing, b"\0"].concat();
    let state = |tag: u8| [b"\0\0\0".as_slice(), asked_nothing, &[tag]].concat();
    let failed = |reason: u8| [state(4).as_slice(), &[reason], b"\x02no\x02"].concat();
    let read = |rest: &[u8]| decode(TaskId::generate(Timestamp::from_millis(1)), &written(3, rest));
    for known in [key(1), key(2), state(0), state(5), state(7), failed(16)] {
        assert!(read(&known).is_ok(), "{known:?}");
    }
    for unknown in [key(4), state(8), failed(17)] {
        assert_eq!(read(&unknown), Err(BadRecord::Malformed), "{unknown:?}");
    }
}

fn running() -> State {
    State::Running { started: Timestamp::from_millis(7) }
}

/// The texts of questions are in pieces beside the record, and go with them.
#[test]
fn the_text_of_a_question_is_there_for_as_long_as_the_question_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::open(directory.path(), 1 << 20).unwrap();
    let commit = |before: Option<&Task>, after: &Task| {
        let mut writes = Writes::default();
        writes.put_task(after, &encode(after)).unwrap();
        writes.put_questions(before, after).unwrap();
        engine.commit(&writes).unwrap();
    };
    let (first, other) = (example(running(), Asked::default()), example(running(), Asked::default()));
    let ask = |task: &Task, text: &str| {
        let params = Json::from_value(&serde_json::json!({ "message": text }));
        let question = task.asked.next(&Question { kind: QuestionKind::Elicitation, params, key: None });
        task.apply(Change::Ask(question), id_time()).unwrap()
    };
    commit(None, &first);
    commit(None, &other);
    let small = ask(&first, "small");
    commit(Some(&first), &small);
    let large = ask(&small, &"é".repeat(20_000));
    commit(Some(&small), &large);
    assert_eq!(engine.active().unwrap().into_iter().find(|task| task.id == large.id), Some(large.clone()));
    let one_left = large.apply(Change::Answer("input-1".to_owned()), id_time()).unwrap();
    commit(Some(&large), &one_left);
    assert_eq!(engine.active().unwrap().into_iter().find(|task| task.id == large.id), Some(one_left.clone()));
    assert!(engine.question_pieces() > 10);
    let cancelled = one_left.apply(Change::Cancel(Canceller::Owner), id_time()).unwrap();
    commit(Some(&one_left), &cancelled);
    assert_eq!(engine.active().unwrap(), [other]);
    assert_eq!(engine.question_pieces(), 0);
}

#[test]
fn a_value_that_sled_would_move_out_of_its_log_never_gets_there() {
    let id = TaskId::generate(Timestamp::from_millis(1));
    let mut writes = Writes::default();
    let bytes = MAX_RECORD + 1;
    assert_eq!(writes.put_result(&id, &vec![0; bytes]), Err(Oversized { bytes }));
    assert_eq!(writes.put_meta("x", &vec![0; bytes]), Err(Oversized { bytes }));
    let task = Task::queued(id, Owner::from_parts(1, [0; 32]), String::new(), String::new(), id_time(), Expiry::Never);
    assert_eq!(writes.put_task(&task, &vec![0; bytes]), Err(Oversized { bytes }));
    assert_eq!(writes.put_result(&id, &vec![0; MAX_RECORD]), Ok(()));
}

fn id_time() -> Timestamp {
    Timestamp::from_millis(1)
}

#[test]
fn tasks_stand_in_the_order_in_which_they_expire() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::open(directory.path(), 1 << 20).unwrap();
    let mut writes = Writes::default();
    let mut keys = Vec::new();
    for millis in [70_000, 5, 256, 255, u64::MAX / 2, 1 << 40] {
        let task = Task {
            state: State::Cancelled { by: Canceller::Owner, sent: true },
            expiry: Expiry::Limited { ttl: Duration::from_millis(millis), keep: Duration::ZERO },
            ..Task::queued(
                TaskId::generate(id_time()),
                Owner::from_parts(1, [0; 32]),
                String::new(),
                String::new(),
                Timestamp::from_millis(0),
                Expiry::Never,
            )
        };
        keys.push(ExpiryKey { expires: Timestamp::from_millis(millis), id: task.id });
        writes.put_task(&task, &encode(&task)).unwrap();
    }
    engine.commit(&writes).unwrap();
    keys.sort_by_key(|key| key.expires);
    assert_eq!(engine.first_to_expire(10).unwrap(), keys);
    assert_eq!(engine.first_to_expire(2).unwrap(), keys[..2]);
}

#[test]
fn a_key_is_purged_with_its_task() {
    let directory = tempfile::tempdir().unwrap();
    let parts = super::open::open(&in_directory(directory.path()), Arc::new(SystemClock)).unwrap();
    let (committer, shared) = (parts.committer, parts.shared);
    let key = KeyDigest::from_bytes([3; 32]);
    let expiry = Expiry::Limited { ttl: Duration::ZERO, keep: Duration::ZERO };
    let task = Task {
        key: Some(key),
        expiry,
        ..example(State::Cancelled { by: Canceller::Owner, sent: true }, Asked::default())
    };
    let keys = || shared.read(|engine| Ok(engine.keys())).unwrap();
    let mut tally = Tally::default();
    if let Slot::Open(engine) = &*shared.engine.read().unwrap() {
        let mut batch = Batch::new(&shared, engine, committer.counts, &mut tally);
        let claim = Claim { arguments: [4; 32], within: None };
        let record = encode(&task);
        let expires = ExpiryKey { expires: task.expires().unwrap(), id: task.id };
        batch.add(Op::Claim { task, record, luggage: Box::default(), key, claim, answer: oneshot::channel().0 });
        let counts = batch.commit().unwrap_or_else(|failed| panic!("{}", failed.error));
        assert_eq!((counts.tasks, keys()), (1, 1));
        let mut batch = Batch::new(&shared, engine, counts, &mut tally);
        batch.add(Op::Purge { keys: vec![expires], answer: oneshot::channel().0 });
        let counts = batch.commit().unwrap_or_else(|failed| panic!("{}", failed.error));
        assert_eq!((counts.tasks, keys()), (0, 0));
    }
}

/// Operations join a batch while it is made, so that it may have begun before a task has expired that is to go with it.
#[test]
fn what_has_expired_since_the_batch_began_is_purged_and_what_has_not_stays_to_be_swept() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1000)));
    let shared_clock: SharedClock = Arc::clone(&clock) as SharedClock;
    let parts = super::open::open(&in_directory(directory.path()), shared_clock).unwrap();
    let (committer, shared) = (parts.committer, parts.shared);
    let ended = |seconds| {
        let expiry = Expiry::Limited { ttl: Duration::from_secs(seconds), keep: Duration::ZERO };
        Task { expiry, ..example(State::Cancelled { by: Canceller::Owner, sent: true }, Asked::default()) }
    };
    let mut tally = Tally::default();
    if let Slot::Open(engine) = &*shared.engine.read().unwrap() {
        let mut batch = Batch::new(&shared, engine, committer.counts, &mut tally);
        let mut keys = Vec::new();
        for task in [ended(60), ended(90)] {
            keys.push(ExpiryKey { expires: task.expires().unwrap(), id: task.id });
            let record = encode(&task);
            batch.add(Op::Create { task, record, luggage: Box::default(), answer: oneshot::channel().0 });
        }
        clock.advance(Duration::from_secs(61));
        batch.add(Op::Purge { keys: keys.clone(), answer: oneshot::channel().0 });
        let counts = batch.commit().unwrap_or_else(|failed| panic!("{}", failed.error));
        assert_eq!((counts.tasks, engine.first_to_expire(10).unwrap()), (1, keys[1..].to_vec()));
    }
}

/// Adds operations to a batch, and says of each creation whether it may be.
fn decided(batch: &mut Batch<'_>, tasks: &[Task]) -> Vec<bool> {
    let create = |task: &Task| {
        let (answer, mut answered) = oneshot::channel();
        batch.add(Op::Create { task: task.clone(), record: encode(task), luggage: Box::default(), answer });
        // What is refused is answered at once.
        answered.try_recv().is_err()
    };
    tasks.iter().map(create).collect()
}

/// They are not on the disk yet, and nobody has counted.
#[test]
fn what_is_made_and_purged_in_the_same_batch_counts_for_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let parts = super::open::open(&in_directory(directory.path()), Arc::new(SystemClock)).unwrap();
    let (committer, shared) = (parts.committer, parts.shared);
    let expiry = Expiry::Limited { ttl: Duration::ZERO, keep: Duration::ZERO };
    let ended = || Task { expiry, ..example(State::Cancelled { by: Canceller::Owner, sent: true }, Asked::default()) };
    let Slot::Open(engine) = &*shared.engine.read().unwrap() else { panic!("closed") };
    let mut tally = Tally::default();
    let mut batch = Batch::new(&shared, engine, committer.counts, &mut tally);
    let of_one: Vec<Task> = std::iter::repeat_with(ended).take(10).collect();
    let may_be = decided(&mut batch, &of_one);
    assert_eq!(may_be.iter().filter(|may_be| **may_be).count(), 9, "the last of ten places is for another owner");
    let mut counts = batch.commit().unwrap_or_else(|failed| panic!("{}", failed.error));

    shared.quotas.write().unwrap().all = Some(9);
    let mut tally = Tally::default();
    let mut batch = Batch::new(&shared, engine, counts, &mut tally);
    let first = ExpiryKey { expires: of_one[0].expires().unwrap(), id: of_one[0].id };
    batch.add(Op::Purge { keys: vec![first], answer: oneshot::channel().0 });
    assert_eq!(decided(&mut batch, &[ended(), ended()]), [true, false]);
    counts = batch.commit().unwrap_or_else(|failed| panic!("{}", failed.error));
    assert_eq!(counts.tasks, 9);
}

#[test]
fn whoever_watches_a_task_is_told_when_a_change_of_it_is_durable() {
    let directory = tempfile::tempdir().unwrap();
    let parts = super::open::open(&in_directory(directory.path()), Arc::new(SystemClock)).unwrap();
    let (committer, shared) = (parts.committer, parts.shared);
    let [task, other] = [State::Queued, State::Queued].map(|state| example(state, Asked::default()));
    let watch = |task: &Task| {
        shared.watched.update_or_insert(task.id, || tokio::sync::watch::Sender::new(()), |sender| sender.subscribe())
    };
    let (seen, unseen) = (watch(&task), watch(&other));
    let Slot::Open(engine) = &*shared.engine.read().unwrap() else { panic!("closed") };
    let mut tally = Tally::default();
    let mut batch = Batch::new(&shared, engine, committer.counts, &mut tally);
    assert_eq!(decided(&mut batch, &[task]), [true]);
    assert!(!seen.has_changed().unwrap());
    batch.commit().unwrap_or_else(|failed| panic!("{}", failed.error));
    assert_eq!((seen.has_changed().unwrap(), unseen.has_changed().unwrap()), (true, false));
}

fn in_directory(path: &std::path::Path) -> StoreConfig {
    StoreConfig {
        path: path.join("store"),
        durability: Durability::Process,
        cache_bytes: 1 << 20,
        min_free_bytes: Some(0),
        max_tasks: 10,
    }
}

/// Whether a failed commit is on the disk is not known; here it is, in part.
#[test]
fn a_task_whose_creation_was_reported_as_failed_is_gone_after_the_store_mended_itself() {
    let directory = tempfile::tempdir().unwrap();
    let parts = super::open::open(&in_directory(directory.path()), Arc::new(SystemClock)).unwrap();
    let (mut committer, shared) = (parts.committer, parts.shared);
    let task = || {
        let id = TaskId::generate(id_time());
        Task::queued(id, Owner::from_parts(1, [0; 32]), "s".to_owned(), "t".to_owned(), id_time(), Expiry::Never)
    };
    let (refused, kept) = (task(), task());
    let keyed = Task { key: Some(KeyDigest::from_bytes([3; 32])), ..task() };
    let mut tally = Tally::default();
    if let Slot::Open(engine) = &*shared.engine.read().unwrap() {
        let mut batch = Batch::new(&shared, engine, committer.counts, &mut tally);
        for task in [&refused, &kept] {
            let (answer, _) = oneshot::channel();
            batch.add(Op::Create { task: task.clone(), record: encode(task), luggage: Box::default(), answer });
        }
        let (answer, _) = oneshot::channel();
        let claim = Claim { arguments: [4; 32], within: None };
        let key = KeyDigest::from_bytes([3; 32]);
        batch.add(Op::Claim {
            task: keyed.clone(),
            record: encode(&keyed),
            luggage: Box::default(),
            key,
            claim,
            answer,
        });
        committer.counts = batch.commit().unwrap_or_else(|failed| panic!("{}", failed.error));
    }
    assert_eq!(committer.counts.tasks, 3);
    assert_eq!(shared.read(|engine| Ok(engine.keys())).unwrap(), 1);
    shared.hot.remove(&refused.id);
    shared.hot.remove(&keyed.id);
    committer.doubtful.extend([refused.id, keyed.id]);
    drop(shared.replace(Slot::Failed(StoreFailed::new("test"))));

    committer.reopen().unwrap();
    assert!(shared.read(|engine| engine.task(&refused.id)).unwrap().is_none());
    assert!(shared.find(&refused.id).unwrap().is_none());
    assert!(matches!(shared.hot.get(&kept.id), Some(Hot::Committed(task)) if *task == kept));
    assert_eq!(committer.counts.tasks, 1);
    assert_eq!(shared.read(|engine| Ok(engine.keys())).unwrap(), 0);
    assert!(committer.doubtful.is_empty());
}

#[test]
fn what_is_damaged_reads_as_damaged_and_what_may_pass_as_a_failure_that_may() {
    let directory = tempfile::tempdir().unwrap();
    let parts = super::open::open(&in_directory(directory.path()), Arc::new(SystemClock)).unwrap();
    let read = |error: EngineError| parts.shared.read(|_| Err::<(), _>(error)).unwrap_err();
    for damage in [EngineError::Key, EngineError::Panicked] {
        assert!(matches!(read(damage), ReadError::Damaged));
    }
    assert!(matches!(read(std::io::Error::other("it may pass").into()), ReadError::Failed(_)));
}

/// As a child has it that was being started when its process was killed.
#[test]
fn a_lock_that_outlives_its_process_for_a_moment_is_waited_for() {
    let mut tries = 0;
    let taken = try_for_a_while(|| {
        tries += 1;
        if tries < 4 { Err(TryLockError::WouldBlock) } else { Ok(()) }
    });
    assert!(taken.is_ok() && tries == 4, "{taken:?} after {tries} tries");
}
