//! Room for what comes in pieces, up to a limit.

use bytes::BytesMut;

/// Up to here memory grows as it is cheapest.
const SMALL: usize = 256 << 10;

/// How much more room there is after each step.
const STEP: usize = 8;

/// Makes room for `more` bytes in a buffer that never holds more than `most`, so that the old and the new memory together
/// are little more than that while it grows. Memory that is set aside and was never written to costs nothing; what is
/// copied does, and doubling copies the half of it.
pub(crate) fn make(buffer: &mut BytesMut, more: usize, most: usize) {
    let needed = buffer.len().saturating_add(more);
    if needed <= SMALL || needed <= buffer.capacity() || needed > most {
        buffer.reserve(more);
        return;
    }
    let mut room = most;
    while room / STEP >= needed {
        room /= STEP;
    }
    let mut larger = BytesMut::with_capacity(room);
    larger.extend_from_slice(buffer);
    *buffer = larger;
}

/// To be called when something was split off a buffer: what comes next must neither fill the room that was made for
/// something large, nor keep it.
pub(crate) fn leave(buffer: &mut BytesMut) {
    // Of much that came at once, once: when little is left of it.
    if buffer.capacity() > 2 * SMALL && buffer.len() <= SMALL {
        *buffer = BytesMut::from(buffer.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_grows_to_its_limit_takes_little_more_memory_on_the_way() {
        for (most, piece) in [(64 << 20, 64 << 10), (10_000_000, 16 << 10), (8 << 20, 1000), (1 << 20, 1 << 20)] {
            let mut buffer = BytesMut::new();
            let mut expected = Vec::new();
            // Of each copy there are two for a moment.
            let mut largest = 0;
            for at in 0..most / piece {
                let (full, before) = (buffer.len(), buffer.capacity());
                make(&mut buffer, piece, most);
                largest = if buffer.capacity() == before { largest } else { full };
                assert!(buffer.capacity() <= most.max(SMALL * 2), "{most} {full}");
                let byte = u8::try_from(at % 251).unwrap();
                buffer.resize(full + piece, byte);
                expected.push(byte);
            }
            assert!(largest <= (most / STEP).max(SMALL), "{most}: {largest}");
            assert!(buffer.chunks(piece).map(|chunk| chunk[0]).eq(expected), "{most}");
            // More than the limit is still no harm.
            make(&mut buffer, most, most);
            assert!(buffer.capacity() - buffer.len() >= most);
        }
    }

    #[test]
    fn what_comes_behind_something_large_gets_room_of_its_own() {
        let mut buffer = BytesMut::new();
        make(&mut buffer, 3 << 20, 64 << 20);
        buffer.resize((3 << 20) + 5, b'x');
        let large = buffer.split_to(3 << 20).freeze();
        leave(&mut buffer);
        assert_eq!((large.len(), &buffer[..]), (3 << 20, &b"xxxxx"[..]));
        assert!(buffer.capacity() < SMALL);
    }
}
