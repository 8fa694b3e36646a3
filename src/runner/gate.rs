//! Slots for runs, and the line of those who wait for one, first come first served.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::shared_map::SharedMap;

/// A number of slots, and the line in front of them.
#[derive(Debug)]
pub(super) struct Gate {
    line: Mutex<Line>,
}

#[derive(Debug)]
struct Line {
    free: usize,
    next_ticket: u64,
    waiting: VecDeque<(u64, oneshot::Sender<Permit>)>,
}

/// A slot, taken until this is dropped.
#[derive(Debug)]
pub(super) struct Permit(Option<Arc<Gate>>);

/// A place in the line: a future that ends with a slot. Dropping it leaves the line.
#[derive(Debug)]
pub(super) struct Ticket {
    gate: Arc<Gate>,
    number: u64,
    slot: oneshot::Receiver<Permit>,
}

/// What one finds at a gate.
#[derive(Debug)]
pub(super) enum Entry {
    /// A slot was free.
    Free(Permit),
    /// None was.
    Wait(Ticket),
}

/// The gates of tools with a limit. A gate lives while somebody holds a slot or waits for one.
#[derive(Debug, Default)]
pub(super) struct Gates {
    of_tools: SharedMap<(Arc<str>, String), Weak<Gate>>,
}

/// How many gates that nobody uses may be remembered.
const IDLE_GATES: usize = 256;

impl Gate {
    /// A gate with `slots` slots.
    pub(super) fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self { line: Mutex::new(Line { free: slots, next_ticket: 0, waiting: VecDeque::new() }) })
    }

    /// Takes a slot, or a place in the line.
    pub(super) fn enter(self: &Arc<Self>) -> Entry {
        let mut line = self.line();
        if line.free > 0 && line.waiting.is_empty() {
            line.free -= 1;
            return Entry::Free(Permit(Some(Arc::clone(self))));
        }
        let number = line.next_ticket;
        line.next_ticket += 1;
        let (sender, slot) = oneshot::channel();
        line.waiting.push_back((number, sender));
        Entry::Wait(Ticket { gate: Arc::clone(self), number, slot })
    }

    /// Gives a slot back: to the first in the line who still waits.
    fn release(self: Arc<Self>) {
        loop {
            let next = {
                let mut line = self.line();
                let Some((_, next)) = line.waiting.pop_front() else {
                    line.free += 1;
                    return;
                };
                next
            };
            match next.send(Permit(Some(Arc::clone(&self)))) {
                Ok(()) => return,
                // That one left; its permit must not come back through here.
                Err(mut refused) => refused.0 = None,
            }
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // Nothing in here panics with the lock held, so a poisoned line is still in order.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// A permit for something that has no limit.
    pub(super) const fn unlimited() -> Self {
        Self(None)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(gate) = self.0.take() {
            gate.release();
        }
    }
}

impl Ticket {
    /// Something that can tell the place later without holding it.
    pub(super) fn watcher(&self) -> Place {
        Place { gate: Arc::downgrade(&self.gate), number: self.number }
    }
}

impl Future for Ticket {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        // The line lives as long as its gate, which this ticket holds: the sender is never lost.
        Pin::new(&mut self.slot).poll(context).map(|slot| slot.unwrap_or(Permit::unlimited()))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.gate.line().waiting.retain(|(number, _)| *number != self.number);
    }
}

/// Tells the place of a ticket.
#[derive(Clone, Debug)]
pub struct Place {
    gate: Weak<Gate>,
    number: u64,
}

impl Place {
    /// The place in the line, from 1; `None` once the wait is over.
    pub fn now(&self) -> Option<usize> {
        let gate = self.gate.upgrade()?;
        let line = gate.line();
        line.waiting.iter().position(|(number, _)| *number == self.number).map(|at| at + 1)
    }
}

impl Gates {
    /// The gate of a tool that may have `slots` runs at a time.
    pub(super) fn of_tool(&self, server: &Arc<str>, tool: &str, slots: usize) -> Arc<Gate> {
        if self.of_tools.len() > IDLE_GATES {
            self.of_tools.retain(|_, gate| gate.strong_count() > 0);
        }
        self.of_tools.update_or_insert((Arc::clone(server), tool.to_owned()), Weak::new, |known| {
            known.upgrade().unwrap_or_else(|| {
                let gate = Gate::new(slots);
                *known = Arc::downgrade(&gate);
                gate
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn wait(gate: &Arc<Gate>) -> Ticket {
        match gate.enter() {
            Entry::Wait(ticket) => ticket,
            Entry::Free(_) => panic!("a slot was free"),
        }
    }

    fn free(gate: &Arc<Gate>) -> Permit {
        match gate.enter() {
            Entry::Free(permit) => permit,
            Entry::Wait(_) => panic!("no slot was free"),
        }
    }

    #[test]
    fn slots_go_to_those_who_wait_in_order() {
        let gate = Gate::new(1);
        let running = free(&gate);
        let (mut first, mut second) = (wait(&gate), wait(&gate));
        let (one, two) = (first.watcher(), second.watcher());
        assert_eq!((one.now(), two.now()), (Some(1), Some(2)));
        drop(running);
        assert_eq!((one.now(), two.now()), (None, Some(1)));
        assert!((&mut second).now_or_never().is_none());
        let running = (&mut first).now_or_never().unwrap();
        drop(running);
        assert!((&mut second).now_or_never().is_some());
    }

    #[test]
    fn a_slot_given_to_one_who_leaves_goes_to_the_next() {
        let gate = Gate::new(1);
        let running = free(&gate);
        let (first, mut second) = (wait(&gate), wait(&gate));
        drop(running);
        // The first has the slot, but never looked.
        drop(first);
        assert!((&mut second).now_or_never().is_some());
    }

    #[test]
    fn leaving_the_line_moves_the_others_up() {
        let gate = Gate::new(1);
        let running = free(&gate);
        let (first, second) = (wait(&gate), wait(&gate));
        let place = second.watcher();
        drop(first);
        assert_eq!(place.now(), Some(1));
        drop(running);
        drop(second);
        assert_eq!(place.now(), None);
        free(&gate);
    }

    #[test]
    fn a_gate_nobody_uses_is_forgotten() {
        let gates = Gates::default();
        let server: Arc<str> = Arc::from("s");
        for tool in 0..10_000 {
            drop(free(&gates.of_tool(&server, &tool.to_string(), 1)));
        }
        assert!(gates.of_tools.len() <= IDLE_GATES + 1);
        let held = free(&gates.of_tool(&server, "x", 1));
        drop(wait(&gates.of_tool(&server, "x", 1)));
        drop(held);
        free(&gates.of_tool(&server, "x", 1));
    }
}
