//! The calls that wait for their answer on one connection, under ids of our own.
//!
//! Since the ids are ours, the string form is safe to take. An answer that names no call is safe to take from a server
//! that names none while one call alone could be meant; otherwise those who wait are told at once instead of being left
//! to hang. From a server that does name calls it is for none of them (see [`super::naming`]).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::naming::{Meant, Named, Naming};
use super::{outcome, subscription};
use crate::protocol::{Event, Failure, Json, Notification, Outcome, Progress, ReplySender};

/// The waiting calls of one connection.
#[derive(Debug)]
pub(super) struct Pending(Mutex<Table>);

/// The place of one call in the table.
#[derive(Debug)]
pub(super) struct Ticket {
    /// The id upstream, which is the progress token too.
    pub(super) id: u64,
    settled: oneshot::Receiver<ReplySender>,
}

/// What is left to do for a call that is to be stopped.
#[derive(Debug)]
pub(super) enum Stopped {
    /// It was never sent, and now never will be.
    NotSent(ReplySender),
    /// The server works on it and should be told. An answer may still win.
    Running(Stopping),
    /// It has its outcome.
    Over,
}

/// A call whose server was asked to stop.
#[derive(Debug)]
pub(super) struct Stopping {
    sender: ReplySender,
    answer: oneshot::Receiver<Outcome>,
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// This call has it.
    ByCall(u64),
    /// It came for a call that is over.
    Late,
    /// It was for one of the calls that run, and cannot be told for which: all have ended.
    ByAll,
    /// It was for no call, as so many on this connection.
    ByNone(u64),
}

#[derive(Debug)]
struct Table {
    /// The next id. Never 0, which confused servers send for anything.
    next: u64,
    entries: BTreeMap<u64, Entry>,
    open: bool,
    naming: Naming,
    /// Answers that were for no call.
    strays: u64,
}

#[derive(Debug)]
enum Entry {
    /// Not yet written.
    Queued(Waiter),
    /// Written, at least in part.
    Sent(Waiter),
    /// The server was asked to stop; [`Stopping`] has the caller's end.
    Stopping(oneshot::Sender<Outcome>),
    /// Written, but nobody waits any more. Remembered, so that an answer that names no call is not
    /// given to another.
    Abandoned,
}

#[derive(Debug)]
struct Waiter {
    sender: ReplySender,
    /// Dropped with the waiter, which tells the holder of the ticket; or the way back for a call that was not taken.
    settled: oneshot::Sender<ReplySender>,
    /// The notes that were written before it (see [`Naming::notes`]).
    notes: u64,
}

/// Abandoned calls that are remembered; a server that never answers cancelled calls piles them up.
const REMEMBERED: usize = 1024;

impl Default for Pending {
    fn default() -> Self {
        Self(Mutex::new(Table { next: 1, entries: BTreeMap::new(), open: true, naming: Naming::default(), strays: 0 }))
    }
}

impl Pending {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a call its id. The sender comes back if the connection has ended.
    pub(super) fn add(&self, sender: ReplySender) -> Result<Ticket, ReplySender> {
        let mut table = self.table();
        if !table.open {
            return Err(sender);
        }
        let id = table.next;
        table.next += 1;
        sender.is_to_be_written();
        let (settled, on_settled) = oneshot::channel();
        table.entries.insert(id, Entry::Queued(Waiter { sender, settled, notes: 0 }));
        Ok(Ticket { id, settled: on_settled })
    }

    /// To be asked just before the first byte goes out: whether the call is still wanted.
    pub(super) fn send(&self, id: u64) -> bool {
        let mut table = self.table();
        match table.entries.remove(&id) {
            Some(Entry::Queued(mut waiter)) if !waiter.sender.is_abandoned() => {
                waiter.notes = table.naming.notes();
                waiter.sender.is_written();
                table.entries.insert(id, Entry::Sent(waiter));
                true
            }
            Some(Entry::Queued(_)) | None => false,
            Some(other) => {
                table.entries.insert(id, other);
                false
            }
        }
    }

    /// To be called just before the first byte of an answer or a notification goes out.
    pub(super) fn note(&self) {
        self.table().naming.noted();
    }

    /// Takes an answer in. One that comes late, or for the second time, is dropped.
    pub(super) fn answer(&self, id: Option<&Json>, outcome: Outcome) -> Taken {
        let mut table = self.table();
        let meant = match table.named(id) {
            Named::Call(id) => {
                table.answered_by_name(id);
                return finish(table, id, outcome);
            }
            Named::Nobody => table.naming.meant_by_nameless(matches!(outcome, Outcome::Error(_))),
            Named::Stranger => match table.naming.meant_by_stranger() {
                // It names another call than the one that runs.
                Meant::OneOfThem => return table.answered_nobody(),
                meant => meant,
            },
        };
        give(table, meant, outcome)
    }

    /// Takes an answer in that breaks off before its id.
    pub(super) fn answer_unread(&self, outcome: Outcome) -> Taken {
        let table = self.table();
        let meant = table.naming.meant_by_unread();
        give(table, meant, outcome)
    }

    /// The call `id` has this outcome, unless it has another already.
    pub(super) fn settle(&self, id: u64, outcome: Outcome) {
        finish(self.table(), id, outcome);
    }

    /// Whether an answer under this id has a call that waits for it.
    pub(super) fn awaits(&self, id: &Json) -> bool {
        let table = self.table();
        let Named::Call(id) = table.named(Some(id)) else { return false };
        table.entries.get(&id).is_some_and(Entry::is_running)
    }

    /// Takes the `params` of a `notifications/progress` in. Only our own tokens count, and only while
    /// the call waits; what comes for one that is over comes back.
    pub(super) fn progress(&self, params: &Json) -> Option<(u64, Progress)> {
        let token = params.member("progressToken")?;
        let Named::Call(id) = Named::read(Some(&token)) else { return None };
        let progress = Progress::read(params)?;
        match self.table().entries.get(&id) {
            Some(Entry::Sent(waiter)) => waiter.sender.event(Event::Progress(progress)),
            Some(Entry::Queued(_) | Entry::Stopping(_) | Entry::Abandoned) => {}
            None => return Some((id, progress)),
        }
        None
    }

    /// Takes the `params` of a `notifications/message` in: for the only call that runs, since it names none. Whether
    /// there is one.
    pub(super) fn log(&self, params: &Json) -> bool {
        let table = self.table();
        let only = table.only_sent().and_then(|id| table.entries.get(&id));
        let Some(Entry::Sent(waiter)) = only else { return false };
        waiter.sender.event(Event::Log(params.clone()));
        true
    }

    /// Takes a notification of a modern server in that belongs to a subscription, and whether it does (2026-07-28,
    /// subscriptions).
    pub(super) fn subscribed(&self, method: &str, params: &Json) -> bool {
        let Some((subscription, params)) = subscription::unwrap(params) else { return false };
        let Named::Call(id) = Named::read(Some(&subscription)) else { return false };
        if let Some(Entry::Sent(waiter)) = self.table().entries.get(&id) {
            waiter.sender.event(Event::Notification(Notification { method: method.to_owned(), params: Some(params) }));
        }
        true
    }

    /// The call whose answer cannot be told, since its id could not be read: the only one that waits, or the
    /// oldest. Later answers for it are dropped.
    pub(super) fn fail_oldest(&self, failure: Failure) {
        let mut table = self.table();
        let oldest = table.entries.iter().find(|(_, entry)| entry.is_running()).map(|(id, _)| *id);
        let entry = oldest.and_then(|id| table.entries.insert(id, Entry::Abandoned));
        drop(table);
        if let Some(entry) = entry {
            entry.settle(Outcome::Failed(failure));
        }
    }

    /// The call whose answer cannot be told yet, if it is the only one that waits; false if it is not. A later answer for
    /// it is dropped.
    pub(super) fn fail_only(&self, failure: Failure) -> bool {
        let mut table = self.table();
        let mut running = table.entries.iter().filter(|(_, entry)| entry.is_running()).map(|(id, _)| *id);
        let (Some(id), None) = (running.next(), running.next()) else { return false };
        drop(running);
        let entry = table.entries.insert(id, Entry::Abandoned);
        drop(table);
        if let Some(entry) = entry {
            entry.settle(Outcome::Failed(failure));
        }
        true
    }

    /// Whether the server has a call and has not answered it, as far as that is remembered.
    pub(super) fn is_unanswered(&self, id: u64) -> bool {
        self.table().entries.contains_key(&id)
    }

    /// Begins to stop a call.
    pub(super) fn stop(&self, id: u64) -> Stopped {
        let mut table = self.table();
        match table.entries.remove(&id) {
            Some(Entry::Queued(waiter)) => Stopped::NotSent(waiter.sender),
            Some(Entry::Sent(waiter)) => {
                let (answered, answer) = oneshot::channel();
                table.entries.insert(id, Entry::Stopping(answered));
                Stopped::Running(Stopping { sender: waiter.sender, answer })
            }
            Some(other) => {
                table.entries.insert(id, other);
                Stopped::Over
            }
            None => Stopped::Over,
        }
    }

    /// Nobody waits for the call any more.
    pub(super) fn abandon(&self, id: u64) {
        let mut table = self.table();
        match table.entries.remove(&id) {
            Some(Entry::Sent(_) | Entry::Stopping(_) | Entry::Abandoned) => {
                table.entries.insert(id, Entry::Abandoned);
                table.forget();
            }
            Some(Entry::Queued(_)) | None => {}
        }
    }

    /// Not one byte of the call could be written yet: it waits again, or ends as never sent if it was stopped meanwhile.
    pub(super) fn put_off(&self, id: u64) {
        let mut table = self.table();
        let given_up = match table.entries.remove(&id) {
            Some(Entry::Sent(waiter)) if table.open => {
                waiter.sender.is_to_be_written();
                table.entries.insert(id, Entry::Queued(waiter));
                return;
            }
            Some(entry @ Entry::Queued(_)) => {
                table.entries.insert(id, entry);
                return;
            }
            given_up => given_up,
        };
        drop(table);
        if let Some(entry) = given_up {
            entry.give_back();
        }
    }

    /// The call was not written after all, not one byte of it: it goes back to the holder of its ticket.
    pub(super) fn not_taken(&self, id: u64) {
        let entry = self.table().entries.remove(&id);
        if let Some(entry) = entry {
            entry.give_back();
        }
    }

    /// No call is let in any more. Those that were not sent go back to the holders of their tickets; the others
    /// may still be answered.
    pub(super) fn refuse(&self) {
        let mut table = self.table();
        table.open = false;
        let unsent = table.entries.extract_if(.., |_, entry| matches!(entry, Entry::Queued(_)));
        let unsent: Vec<Entry> = unsent.map(|(_, entry)| entry).collect();
        drop(table);
        for entry in unsent {
            entry.give_back();
        }
    }

    /// The connection has ended: as [`Pending::refuse`], and calls that were sent end as outcome unknown, for `how`.
    pub(super) fn close(&self, how: &str) {
        self.refuse();
        let entries = std::mem::take(&mut self.table().entries);
        for entry in entries.into_values() {
            entry.settle(Outcome::Failed(Failure::outcome_unknown(how)));
        }
    }

    /// How many calls wait for an answer, or to be sent.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.table().entries.values().filter(|entry| !matches!(entry, Entry::Abandoned)).count()
    }
}

impl Ticket {
    /// Resolves when the call has its outcome, or with its sender if it was never taken and may go elsewhere.
    pub(super) async fn settled(&mut self) -> Option<ReplySender> {
        (&mut self.settled).await.ok()
    }
}

impl Stopping {
    /// Waits for the answer of a call that was asked to stop just now, or until nobody waits for it; then for what is
    /// left of `linger`, for the sake of what must not begin before the server is done with it.
    pub(super) async fn finish(mut self, id: u64, pending: &Pending, linger: Duration) {
        let asked = Instant::now();
        let answered = tokio::select! {
            biased;
            answer = &mut self.answer => answer.ok(),
            () = self.sender.abandoned() => None,
        };
        if let Some(outcome) = answered {
            self.sender.done(outcome);
        } else {
            // Without an answer the sender's end makes the outcome unknown, if anybody still listens.
            drop(self.sender);
            forget(self.answer, id, pending, linger.saturating_sub(asked.elapsed())).await;
        }
    }

    /// Ends the call without its answer, which is waited for as long as `linger` says.
    pub(super) async fn end(self, id: u64, pending: &Pending, outcome: Outcome, linger: Duration) {
        self.sender.done(outcome);
        forget(self.answer, id, pending, linger).await;
    }
}

/// Gives an answer without a usable id to whom it is meant for.
fn give(mut table: MutexGuard<'_, Table>, meant: Meant, outcome: Outcome) -> Taken {
    match (meant, table.only_sent()) {
        (Meant::OneOfThem | Meant::TheOnlyOne, Some(id)) => finish(table, id, outcome),
        (Meant::OneOfThem, None) => table.answered_nobody(),
        (Meant::TheOnlyOne, None) | (Meant::Nobody, _) => {
            table.strays += 1;
            Taken::ByNone(table.strays)
        }
    }
}

/// Ends a call, if it still waits.
fn finish(mut table: MutexGuard<'_, Table>, id: u64, outcome: Outcome) -> Taken {
    let entry = table.entries.remove(&id);
    drop(table);
    if let Some(entry) = entry {
        entry.settle(outcome);
        Taken::ByCall(id)
    } else {
        tracing::debug!(id, "an answer came late and was dropped");
        Taken::Late
    }
}

async fn forget(answer: oneshot::Receiver<Outcome>, id: u64, pending: &Pending, linger: Duration) {
    if linger.is_zero() || tokio::time::timeout(linger, answer).await.is_err() {
        pending.abandon(id);
    }
}

impl Table {
    fn named(&self, id: Option<&Json>) -> Named {
        match Named::read(id) {
            Named::Call(id) if id >= self.next => Named::Stranger,
            // What was not asked yet cannot be answered.
            Named::Call(id) if matches!(self.entries.get(&id), Some(Entry::Queued(_))) => Named::Stranger,
            other => other,
        }
    }

    /// The server knows how to name calls.
    fn answered_by_name(&mut self, id: u64) {
        self.naming.proven();
        if let Some(Entry::Sent(waiter)) = self.entries.get(&id) {
            self.naming.passed(waiter.notes);
        }
    }

    /// The one call that the server has taken and not answered; `None` if there are none or several.
    fn only_sent(&self) -> Option<u64> {
        let mut sent = self.entries.iter().filter(|(_, entry)| !matches!(entry, Entry::Queued(_)));
        match (sent.next(), sent.next()) {
            (Some((id, _)), None) => Some(*id),
            _ => None,
        }
    }

    /// An answer came that cannot be given to anybody. One of those who wait will get no other, and it
    /// cannot be told which, so all are told.
    fn answered_nobody(&mut self) -> Taken {
        let running: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| entry.is_running()).map(|(id, _)| *id).collect();
        tracing::debug!(calls = running.len(), "an answer that names no call of ours cannot be given to anybody");
        let many = self.entries.values().filter(|entry| !matches!(entry, Entry::Queued(_))).count() > 1;
        for id in running {
            if let Some(entry) = self.entries.insert(id, Entry::Abandoned) {
                entry.settle(Outcome::Failed(nameless(many)));
            }
        }
        // It was the answer to one of them.
        if let Some(id) = self.entries.iter().find(|(_, entry)| matches!(entry, Entry::Abandoned)).map(|(id, _)| *id) {
            self.entries.remove(&id);
        }
        self.forget();
        Taken::ByAll
    }

    /// Forgets the oldest of too many abandoned calls.
    fn forget(&mut self) {
        let abandoned = self.entries.values().filter(|entry| matches!(entry, Entry::Abandoned)).count();
        if abandoned > REMEMBERED {
            let oldest = self.entries.iter().find(|(_, entry)| matches!(entry, Entry::Abandoned)).map(|(id, _)| *id);
            oldest.and_then(|id| self.entries.remove(&id));
        }
    }
}

impl Entry {
    /// Whether somebody waits for an answer of the server.
    fn is_running(&self) -> bool {
        match self {
            Self::Sent(_) | Self::Stopping(_) => true,
            Self::Queued(_) | Self::Abandoned => false,
        }
    }

    fn give_back(self) {
        match self {
            Self::Queued(waiter) | Self::Sent(waiter) => {
                // Without a holder the call ends with its sender.
                let _ = waiter.settled.send(waiter.sender);
            }
            Self::Stopping(_) | Self::Abandoned => self.settle(Outcome::Failed(outcome::never_sent())),
        }
    }

    fn settle(self, outcome: Outcome) {
        match self {
            Self::Queued(waiter) | Self::Sent(waiter) => waiter.sender.done(outcome),
            Self::Stopping(answer) => {
                // Its reader may have left in this moment.
                let _ = answer.send(outcome);
            }
            Self::Abandoned => {}
        }
    }
}

fn nameless(many: bool) -> Failure {
    if many {
        Failure::outcome_unknown("the server sent an answer whose id is none of ours while several calls were running")
    } else {
        outcome::bad_answer("the server answered under an id that it was never given")
    }
}

#[cfg(test)]
#[path = "pending_tests.rs"]
mod tests;
