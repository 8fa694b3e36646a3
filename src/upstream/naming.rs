//! How a server names the calls that it answers, and what is then meant by an answer that names none.
//!
//! Servers get ids wrong: they send `"5"` for `5`, or `0` or `null` for everything. Others have their ids right but
//! answer notifications too, under no id or a made-up one.

use crate::protocol::Json;

/// What is known of how a server names the calls that it answers.
#[derive(Debug, Default)]
pub(super) struct Naming {
    habit: Habit,
    notes: Notes,
}

/// How it names them.
#[derive(Clone, Copy, Debug, Default)]
enum Habit {
    /// It has named none yet, so an answer without a name is for a call. To `ByOurIds` with the first that has one.
    #[default]
    Unproven,
    /// Under our ids: what names no call is for none, but for what [`Naming::meant_by_nameless`] says.
    ByOurIds,
}

/// Notes to the server: answers and notifications. None of them is to be answered.
#[derive(Debug, Default)]
struct Notes {
    sent: u64,
    /// Those of the last that the server may still answer.
    open: u64,
}

/// Whom an answer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// The call with this id.
    Call(u64),
    /// No call at all: `null`, `0` or no id.
    Nobody,
    /// Something that we never sent.
    Stranger,
}

/// Whom an answer is for that names no call of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meant {
    /// One of the calls that run.
    OneOfThem,
    /// The only call that runs, if there is just one.
    TheOnlyOne,
    /// No call.
    Nobody,
}

impl Naming {
    /// A note is about to be written.
    pub(super) fn noted(&mut self) {
        self.notes.sent += 1;
        self.notes.open += 1;
    }

    /// How many notes were written: to be kept with a request that is written now.
    pub(super) fn notes(&self) -> u64 {
        self.notes.sent
    }

    /// The server has answered a call by its id.
    pub(super) fn proven(&mut self) {
        self.habit = Habit::ByOurIds;
    }

    /// It has answered a request that was written behind so many notes: those it will not answer any more.
    pub(super) fn passed(&mut self, notes: u64) {
        self.notes.open = self.notes.open.min(self.notes.sent.saturating_sub(notes));
    }

    /// An answer without an id has come. A server that knows ours sends an error like that where it could not read the
    /// id (JSON-RPC 2.0, response object), or to a note.
    pub(super) fn meant_by_nameless(&mut self, is_error: bool) -> Meant {
        match (self.habit, self.notes.open) {
            // A server that never names a call is not known to answer notes: most do not.
            (Habit::Unproven, _) => Meant::OneOfThem,
            (Habit::ByOurIds, 0) if is_error => Meant::TheOnlyOne,
            (Habit::ByOurIds, open) => {
                self.notes.open = open.saturating_sub(1);
                Meant::Nobody
            }
        }
    }

    /// An answer has come under an id that was never given.
    pub(super) fn meant_by_stranger(&self) -> Meant {
        match self.habit {
            Habit::Unproven => Meant::OneOfThem,
            Habit::ByOurIds => Meant::Nobody,
        }
    }

    /// An answer has come that breaks off before its id.
    pub(super) fn meant_by_unread(&self) -> Meant {
        match self.habit {
            Habit::Unproven => Meant::OneOfThem,
            Habit::ByOurIds => Meant::TheOnlyOne,
        }
    }
}

impl Named {
    /// Reads an id that a server sent, or a progress token.
    pub(super) fn read(id: Option<&Json>) -> Self {
        let Some(id) = id.filter(|id| !id.is_null()) else { return Self::Nobody };
        let number = match id.read::<serde_json::Value>() {
            Ok(serde_json::Value::Number(number)) => number.as_u64().or_else(|| whole(number.as_f64()?)),
            Ok(serde_json::Value::String(text)) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
            _ => None,
        };
        match number {
            Some(0) => Self::Nobody,
            Some(number) => Self::Call(number),
            None => Self::Stranger,
        }
    }
}

/// Servers in languages with one kind of number spell 5 as `5.0`.
fn whole(number: f64) -> Option<u64> {
    // Below 2^53 a whole float is exact.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be whole and in range")]
    (number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number)).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proven() -> Naming {
        let mut naming = Naming::default();
        naming.proven();
        naming
    }

    #[test]
    fn before_a_call_was_named_every_answer_is_for_a_call() {
        let mut naming = Naming::default();
        naming.noted();
        for is_error in [true, false] {
            assert_eq!(naming.meant_by_nameless(is_error), Meant::OneOfThem);
        }
        assert_eq!((naming.meant_by_stranger(), naming.meant_by_unread()), (Meant::OneOfThem, Meant::OneOfThem));
    }

    #[test]
    fn of_a_server_that_names_calls_an_error_is_for_one_that_no_note_accounts_for() {
        let mut naming = proven();
        assert_eq!(naming.meant_by_nameless(true), Meant::TheOnlyOne);
        naming.noted();
        naming.noted();
        assert_eq!(naming.meant_by_nameless(true), Meant::Nobody);
        assert_eq!(naming.meant_by_nameless(false), Meant::Nobody);
        assert_eq!(naming.meant_by_nameless(true), Meant::TheOnlyOne);
        assert_eq!(naming.meant_by_nameless(false), Meant::Nobody);
        assert_eq!((naming.meant_by_stranger(), naming.meant_by_unread()), (Meant::Nobody, Meant::TheOnlyOne));
    }

    #[test]
    fn a_note_is_no_longer_answered_once_a_request_behind_it_was() {
        let mut naming = proven();
        let before = naming.notes();
        naming.noted();
        let behind = naming.notes();
        naming.noted();
        naming.passed(before);
        naming.passed(behind);
        // The second is still open.
        assert_eq!(naming.meant_by_nameless(true), Meant::Nobody);
        assert_eq!(naming.meant_by_nameless(true), Meant::TheOnlyOne);
    }
}
