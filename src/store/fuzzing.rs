//! Entry for fuzz targets.

use super::codec::{decode, encode};
use crate::clock::Timestamp;
use crate::task::TaskId;

/// See [`crate::fuzzing::record`].
pub(crate) fn record(input: &[u8]) {
    let id = TaskId::generate(Timestamp::from_millis(1));
    let Ok(task) = decode(id, input) else { return };
    let written = encode(&task);
    assert_eq!(decode(id, &written), Ok(task), "a task changed in the store");
}
