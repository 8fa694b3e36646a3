//! The history of a tool as it is kept: a version, then numbers as LEB128, and of the buckets only those that hold
//! something.

use super::Kept;
use super::sketch::{BUCKETS, Generation, Sketch};
use crate::clock::Timestamp;

const VERSION: u8 = 1;

/// The bytes of a history; never more than 2 KiB.
pub(super) fn encode(kept: &Kept) -> Vec<u8> {
    let mut record = vec![VERSION];
    put(&mut record, kept.used.as_millis());
    put(&mut record, kept.timeouts.into());
    for generation in [&kept.sketch.now, &kept.sketch.last] {
        put(&mut record, generation.since.as_millis());
        put(&mut record, generation.longest);
        let filled = generation.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        put(&mut record, filled.clone().count() as u64);
        let mut next = 0;
        for (at, count) in filled {
            put(&mut record, (at - next) as u64);
            put(&mut record, (*count).into());
            next = at + 1;
        }
    }
    record
}

/// What bytes say; `None` if they are no history of this version, which then begins anew.
pub(super) fn decode(record: &[u8]) -> Option<Kept> {
    let (version, mut rest) = record.split_first()?;
    if *version != VERSION {
        return None;
    }
    let rest = &mut rest;
    let used = Timestamp::from_millis(take(rest)?);
    let timeouts = u32::try_from(take(rest)?).ok()?;
    let sketch = Sketch { now: generation(rest)?, last: generation(rest)? };
    rest.is_empty().then_some(Kept { sketch, timeouts, used })
}

fn generation(rest: &mut &[u8]) -> Option<Generation> {
    let mut generation = Generation::new(Timestamp::from_millis(take(rest)?));
    generation.longest = take(rest)?;
    let filled = take(rest)?;
    let mut next = 0_usize;
    for _ in 0..filled.min(BUCKETS as u64 + 1) {
        let at = next.checked_add(usize::try_from(take(rest)?).ok()?)?;
        let count = u16::try_from(take(rest)?).ok()?;
        *generation.counts.get_mut(at)? = count;
        generation.total += u32::from(count);
        next = at + 1;
    }
    Some(generation)
}

fn put(record: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            record.push(low & 0x7f);
            return;
        }
        record.push(low | 0x80);
    }
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_history_reads_back_and_fits_on_its_shelf(
            runs in prop::collection::vec((0..200_000_000_u64, 0..2_000_000_000_u64), 0..1500),
            timeouts in any::<u32>(),
            used in any::<u64>(),
        ) {
            let mut sketch = Sketch::new(Timestamp::from_millis(1));
            for (took, at) in runs {
                sketch.count(Duration::from_millis(took), Timestamp::from_millis(at));
            }
            let kept = Kept { sketch, timeouts, used: Timestamp::from_millis(used) };
            let record = encode(&kept);
            prop_assert!(record.len() <= 2048, "{}", record.len());
            prop_assert_eq!(decode(&record), Some(kept));
        }

        #[test]
        fn any_bytes_are_a_history_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            let _ = decode(&[&[VERSION], bytes.as_slice()].concat());
        }
    }

    #[test]
    fn a_history_of_another_version_begins_anew() {
        let kept =
            Kept { sketch: Sketch::new(Timestamp::from_millis(1)), timeouts: 0, used: Timestamp::from_millis(1) };
        let mut record = encode(&kept);
        assert!(decode(&record).is_some());
        record[0] = 2;
        assert_eq!(decode(&record), None);
    }
}
