//! The seeds of the fuzz targets, as they are and mutated: what a fuzzer starts from holds in every run of the tests.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::{config, header, message, record, sse};

/// What a fuzzer calls.
type Target = fn(&[u8]);

/// The seeds of one target.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // In an order that does not change, so that a failure is found again.
    paths.sort();
    assert!(paths.len() > 5, "{target} has no seeds");
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// One step of a mutation.
#[derive(Clone, Debug)]
enum Edit {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Cut(Index, Index),
    Repeat(Index, Index),
    /// Goes on as another seed does.
    Splice(Index, Index, Vec<u8>),
}

/// Bytes that mean something to one of the readers.
const TELLING: &[u8] = b"{}[]\",:\\\r\n \t=?-+.eE0123456789u#\x00\x7f\x80\xc3\xed\xef\xff";

fn edits(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Edit> {
    let byte = prop_oneof![select(TELLING), any::<u8>()];
    prop_oneof![
        3 => (any::<Index>(), byte.clone()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        2 => (any::<Index>(), prop::collection::vec(byte, 1..5)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        2 => (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Edit::Cut(from, to)),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Edit::Repeat(from, to)),
        1 => (any::<Index>(), any::<Index>(), select(seeds)).prop_map(|(at, from, other)| Edit::Splice(at, from, other)),
    ]
}

fn mutated(target: &str) -> impl Strategy<Value = Vec<u8>> {
    let seeds = seeds(target);
    (select(seeds.clone()), prop::collection::vec(edits(seeds), 0..6)).prop_map(|(mut bytes, edits)| {
        for edit in edits {
            apply(&mut bytes, edit);
        }
        bytes
    })
}

fn apply(bytes: &mut Vec<u8>, edit: Edit) {
    let place = |index: Index| index.index(bytes.len() + 1);
    let range = |one: Index, other: Index| {
        let (one, other) = (place(one), place(other));
        one.min(other)..one.max(other)
    };
    match edit {
        Edit::Set(at, byte) => {
            let at = place(at);
            bytes.splice(at..bytes.len().min(at + 1), [byte]);
        }
        Edit::Insert(at, more) => {
            let at = place(at);
            bytes.splice(at..at, more);
        }
        Edit::Cut(from, to) => {
            bytes.drain(range(from, to));
        }
        Edit::Repeat(from, to) => {
            let range = range(from, to);
            let again = bytes[range.clone()].to_vec();
            bytes.splice(range.end..range.end, again);
        }
        Edit::Splice(at, from, other) => {
            bytes.truncate(place(at));
            bytes.extend_from_slice(&other[from.index(other.len() + 1)..]);
        }
    }
}

#[test]
fn every_seed_of_a_fuzz_target_holds() {
    let targets: [(&str, Target); 5] =
        [("message", message), ("sse", sse), ("header", header), ("config", config), ("record", record)];
    for (name, target) in targets {
        for seed in seeds(name) {
            target(&seed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_mutated_message_is_read_or_refused(bytes in mutated("message")) {
        message(&bytes);
    }

    #[test]
    fn a_mutated_stream_gives_the_same_events_in_any_chunks(bytes in mutated("sse")) {
        sse(&bytes);
    }

    #[test]
    fn a_mutated_header_is_read_or_refused(bytes in mutated("header")) {
        header(&bytes);
    }

    #[test]
    fn a_mutated_record_is_read_or_damaged(bytes in mutated("record")) {
        record(&bytes);
    }
}

proptest! {
    // The seeds are long.
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_mutated_configuration_is_one_or_says_why_not(bytes in mutated("config")) {
        config(&bytes);
    }
}
