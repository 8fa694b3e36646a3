//! The handle of a task.

use std::fmt;
use std::str::FromStr;

use data_encoding::{Encoding, Specification};
use uuid::Uuid;

use crate::clock::Timestamp;

/// A task id: 36 characters of lower-case base32, made of 48 bits of milliseconds (so that keys
/// created together stand together in the store) and a random UUID (122 random bits: nobody can
/// guess one; SEP-2663, security considerations).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId([u8; LENGTH]);

/// A text that is no task id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTaskId;

const LENGTH: usize = TaskId::LENGTH;

/// Time-ordered as text: the alphabet rises with the value.
const ALPHABET: &str = "0123456789abcdefghijklmnopqrstuv";

impl TaskId {
    /// Bytes of the text.
    pub const LENGTH: usize = 36;

    /// A new id.
    pub fn generate(now: Timestamp) -> Self {
        Self::from_parts(now, Uuid::new_v4())
    }

    fn from_parts(now: Timestamp, random: Uuid) -> Self {
        let mut bytes = [0_u8; 22];
        let (time, rest) = bytes.split_at_mut(6);
        let [_, _, low @ ..] = now.as_millis().to_be_bytes();
        time.copy_from_slice(&low);
        rest.copy_from_slice(random.as_bytes());
        let text = base32().encode(&bytes);
        let mut id = [b'0'; LENGTH];
        id.copy_from_slice(text.as_bytes());
        Self(id)
    }

    /// The text, as the client holds it.
    pub fn as_str(&self) -> &str {
        // Only ASCII is ever put in.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The text as bytes: the key in the store.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for TaskId {
    type Err = InvalidTaskId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id: [u8; LENGTH] = text.as_bytes().try_into().map_err(|_| InvalidTaskId)?;
        base32().decode(&id).map_err(|_| InvalidTaskId)?;
        Ok(Self(id))
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Shows when it was made, not the rest: whoever reads logs must not be able to use a handle.
impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", self.as_str().get(..14).unwrap_or_default())
    }
}

impl fmt::Display for InvalidTaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a task id")
    }
}

impl std::error::Error for InvalidTaskId {}

fn base32() -> &'static Encoding {
    static BASE32: std::sync::LazyLock<Encoding> = std::sync::LazyLock::new(|| {
        let mut specification = Specification::new();
        specification.symbols.push_str(ALPHABET);
        // A constant alphabet of 32 different characters is always valid; hex is the nearest thing if not.
        specification.encoding().unwrap_or(data_encoding::BASE32HEX_NOPAD)
    });
    &BASE32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_36_characters_and_reads_back() {
        let id = TaskId::generate(Timestamp::from_millis(1_785_234_600_123));
        assert_eq!(id.as_str().len(), 36);
        assert!(id.as_str().bytes().all(|byte| ALPHABET.as_bytes().contains(&byte)));
        assert_eq!(id.as_str().parse(), Ok(id));
    }

    #[test]
    fn ids_sort_by_time() {
        let earlier = TaskId::from_parts(Timestamp::from_millis(1000), Uuid::max());
        let later = TaskId::from_parts(Timestamp::from_millis(1001), Uuid::nil());
        assert!(earlier < later);
    }

    #[test]
    fn other_texts_are_no_ids() {
        let id = TaskId::generate(Timestamp::from_millis(1)).to_string();
        for text in ["", "x", &id[1..], &format!("{id}0"), &id.to_uppercase().replace('0', "Z"), &"é".repeat(18)] {
            assert_eq!(text.parse::<TaskId>(), Err(InvalidTaskId), "{text}");
        }
    }

    #[test]
    fn debug_output_does_not_give_the_handle_away() {
        let id = TaskId::generate(Timestamp::from_millis(1));
        assert!(!format!("{id:?}").contains(id.as_str()));
    }
}
