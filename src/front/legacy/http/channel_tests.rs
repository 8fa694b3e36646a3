use bytes::Bytes;
use futures_util::FutureExt;

use super::*;

fn rope(size: usize) -> Rope {
    Rope::from(Bytes::from(vec![b'x'; size]))
}

fn notice(size: usize) -> Outgoing {
    Outgoing::Notice(rope(size))
}

fn places(reader: &mut Reader) -> Vec<u64> {
    std::iter::from_fn(|| reader.next().now_or_never().flatten()).map(|event| event.place).collect()
}

#[test]
fn a_reader_gets_each_message_once_and_the_end() {
    let channel = Channel::new(1);
    let mut reader = channel.read().unwrap();
    channel.push(notice(1));
    channel.push(Outgoing::Message(rope(1)));
    assert_eq!(places(&mut reader), [1, 2]);
    assert!(reader.next().now_or_never().is_none());
    channel.push(Outgoing::Answer(rope(1)));
    channel.end();
    channel.push(notice(1));
    assert_eq!(places(&mut reader), [3]);
    assert!(reader.next().now_or_never().unwrap().is_none());
}

#[test]
fn the_newest_reader_is_the_only_one_and_the_older_goes_on_after_what_it_had() {
    let channel = Channel::new(0);
    let mut first = channel.read().unwrap();
    channel.push(notice(1));
    let mut second = channel.read().unwrap();
    channel.push(notice(1));
    assert!(places(&mut first).is_empty());
    assert_eq!(places(&mut second), [1, 2]);
    channel.push(notice(1));
    drop(second);
    assert_eq!(places(&mut first), [3]);
}

#[test]
fn a_reader_that_comes_back_gets_what_is_kept_and_the_rest() {
    let channel = Channel::new(1);
    let mut reader = channel.read().unwrap();
    (0..3).for_each(|_| channel.push(notice(1)));
    assert_eq!(places(&mut reader), [1, 2, 3]);
    drop(reader);
    channel.push(Outgoing::Answer(rope(1)));
    let mut back = channel.read_from(2).unwrap();
    assert_eq!(places(&mut back), [2, 3, 4]);
    channel.end();
    let cases = [(0, Return::Possible), (3, Return::Possible), (4, Return::Over), (5, Return::Gone)];
    for (place, expected) in cases {
        assert_eq!(channel.can_return(place), expected, "{place}");
    }
}

#[test]
fn what_was_read_is_kept_within_bounds_and_what_was_let_go_cannot_be_come_back_to() {
    let channel = Channel::new(1);
    let mut reader = channel.read().unwrap();
    for _ in 0..3 * KEPT {
        channel.push(notice(10));
        places(&mut reader);
    }
    assert_eq!(channel.lock().events.len(), KEPT);
    assert_eq!(channel.bytes(), 10 * KEPT);
    let kept = 2 * KEPT as u64;
    assert_eq!((channel.can_return(kept - 1), channel.can_return(kept)), (Return::Gone, Return::Possible));
    for _ in 0..10 {
        channel.push(notice(KEPT_BYTES / 3));
        places(&mut reader);
    }
    assert!(channel.bytes() <= KEPT_BYTES);
}

#[test]
fn while_nobody_reads_a_flood_is_dropped_and_the_answer_is_not() {
    let channel = Channel::new(1);
    (0..10 * WAITING).for_each(|_| channel.push(notice(1)));
    assert_eq!(channel.lock().waiting(), KEPT);
    (0..10 * WAITING).for_each(|_| channel.push(Outgoing::Message(rope(1))));
    assert_eq!(channel.lock().waiting(), WAITING);
    channel.push(Outgoing::Answer(rope(1)));
    let mut reader = channel.read().unwrap();
    assert_eq!(places(&mut reader).len(), WAITING + 1);
    let channel = Channel::new(1);
    channel.push(notice(KEPT_BYTES + 1));
    channel.push(Outgoing::Message(rope(WAITING_BYTES + 1)));
    assert_eq!(channel.bytes(), 0);
}

#[test]
fn an_answer_of_any_size_reaches_a_reader_and_one_that_is_too_large_is_not_kept_without() {
    let channel = Channel::new(1);
    let mut reader = channel.read().unwrap();
    channel.push(notice(2 * KEPT_BYTES));
    channel.push(Outgoing::Answer(rope(2 * WAITING_BYTES)));
    assert_eq!(places(&mut reader), [1, 2]);
    let channel = Channel::new(1);
    channel.push(Outgoing::Answer(rope(WAITING_BYTES + 1)));
    channel.end();
    assert_eq!((channel.bytes(), channel.can_return(0)), (0, Return::Gone));
}

#[test]
fn there_is_room_unless_a_reader_is_behind() {
    let channel = Channel::new(1);
    let has_room = || channel.room().now_or_never().is_some();
    (0..KEPT).for_each(|_| channel.push(notice(1)));
    assert!(has_room());
    let mut reader = channel.read().unwrap();
    assert!(!has_room());
    places(&mut reader);
    assert!(has_room());
    (0..KEPT).for_each(|_| channel.push(notice(1)));
    assert!(!has_room());
    drop(reader);
    assert!(has_room());
}

#[tokio::test]
async fn whoever_waits_for_room_or_for_a_message_is_told() {
    let channel = Channel::new(1);
    let mut reader = channel.read().unwrap();
    (0..KEPT).for_each(|_| channel.push(notice(1)));
    tokio::join!(channel.room(), async { while places(&mut reader).is_empty() {} });
    let (event, ()) = tokio::join!(reader.next(), async { channel.push(notice(1)) });
    assert_eq!(event.unwrap().place, KEPT as u64 + 1);
    let (event, ()) = tokio::join!(reader.next(), async { channel.end() });
    assert!(event.is_none());
}

#[test]
fn a_pause_sends_the_reader_away_when_it_has_had_everything_and_it_can_come_back_for_the_rest() {
    let channel = Channel::new(1);
    let mut reader = channel.read().unwrap();
    channel.push(notice(1));
    channel.pause();
    assert_eq!(places(&mut reader), [1]);
    assert!(reader.next().now_or_never().unwrap().is_none());
    drop(reader);
    assert!(!channel.is_ended());
    assert_eq!(channel.can_return(1), Return::Possible);
    let mut back = channel.read_from(2).unwrap();
    assert!(back.next().now_or_never().is_none());
    channel.push(Outgoing::Answer(rope(1)));
    assert_eq!(places(&mut back), [2]);
}
