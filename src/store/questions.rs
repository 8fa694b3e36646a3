//! The texts of open questions: in pieces, since no value in the database may be large.

use bytes::Bytes;

use crate::protocol::Json;
use crate::task::{OpenQuestion, TaskId};

/// Bytes of a piece.
const PIECE: usize = 3 << 10;

/// What the keys of all pieces of a question begin with.
pub(super) fn prefix(id: &TaskId, number: u32) -> Vec<u8> {
    [id.as_bytes(), &number.to_be_bytes()].concat()
}

/// The pieces of a question under their keys.
pub(super) fn pieces<'a>(id: &TaskId, question: &'a OpenQuestion) -> impl Iterator<Item = (Vec<u8>, &'a [u8])> {
    let prefix = prefix(id, question.number);
    let pieces = (0_u32..).zip(question.params.bytes().chunks(PIECE));
    pieces.map(move |(at, piece)| ([prefix.as_slice(), &at.to_be_bytes()].concat(), piece))
}

/// The keys of the pieces of a question.
pub(super) fn keys(id: &TaskId, question: &OpenQuestion) -> impl Iterator<Item = Vec<u8>> {
    pieces(id, question).map(|(key, _)| key)
}

/// The text that `pieces` are, in the order of their keys.
pub(super) fn joined(pieces: &[impl AsRef<[u8]>]) -> Option<Json> {
    let whole: Vec<u8> = pieces.iter().flat_map(AsRef::as_ref).copied().collect();
    Json::parse(Bytes::from(whole)).ok()
}
