//! The reference: what calls and tasks are to be after each step, with no thread, store or timer in it.

/// Calls of the tool that run at the same time.
pub(crate) const SLOTS: usize = 3;
/// When a held call becomes a task, in seconds.
pub(crate) const AFTER: u64 = 2;
/// How long a question may wait for its answer.
pub(crate) const ASK_LIMIT: u64 = 10;
/// The hard limit of a run.
pub(crate) const RUN_LIMIT: u64 = 1000;
/// How long a call may wait for a slot: longer than any test.
pub(crate) const QUEUE_LIMIT: u64 = 1_000_000;
/// How long a run of the tool that may run again may go without a sign of life.
pub(crate) const IDLE_LIMIT: u64 = 400;
/// How long an outcome stays readable.
pub(crate) const KEEP: u64 = 5000;

/// One thing that somebody does. `usize` stands for a call: whichever it is of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// A client calls the tool in mode `task`.
    Call,
    /// A client calls the tool in mode `auto`.
    CallAuto,
    /// A client calls the tool that may run again, in mode `task`.
    CallAgain,
    /// The client of a held call hangs up.
    Leave(usize),
    /// A client cancels the task.
    Cancel(usize),
    /// A client answers what is asked.
    Answer(usize),
    /// The server answers.
    Finish(usize),
    /// The server answers with an error.
    Fail(usize),
    /// The connection to the server is lost.
    Die(usize),
    /// The server reports progress.
    Progress(usize),
    /// The server asks.
    Ask(usize),
    /// The server does not want an answer any more.
    Withdraw(usize),
    /// So many seconds go by.
    Wait(u64),
    /// The clock of the machine jumps by so many seconds, back or ahead, and no time goes by.
    Jump(i64),
    /// The process is killed, and another one starts.
    Crash,
}

/// How a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// Its client is on the line, and it waits for a slot.
    HeldInLine {
        since: u64,
    },
    /// Its client is on the line, and it runs.
    Held {
        since: u64,
    },
    /// Its client had the outcome, or is gone: nothing is left of it.
    Over,
    /// A task that waits for a slot.
    Queued,
    /// A task that runs. At `alive` seconds of its run the server gave a sign of life.
    Running {
        since: u64,
        alive: u64,
    },
    /// A task that was cancelled: an answer that is on its way may still win.
    Stopping,
    /// A task that asks. Its run has lasted so long.
    Asking {
        since: u64,
        ran: u64,
    },
    Completed,
    Failed(&'static str),
    Cancelled,
    /// It has expired.
    Gone,
}

/// What is special about a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Plain,
    /// `on_lost = "rerun"`, and an `idle_timeout`.
    Again {
        /// Whether it has run for a second time, or is to.
        is_second: bool,
    },
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) calls: Vec<Stand>,
    /// How often each call was sent to the server.
    pub(crate) sent: Vec<u32>,
    /// What is special about the tool of each call.
    tools: Vec<Tool>,
    /// Those that wait for a slot, in their order.
    line: Vec<usize>,
    now: u64,
    /// What the clock of the machine shows.
    wall: i64,
    /// What it showed when the record of a call was made.
    made: Vec<i64>,
}

impl Op {
    /// The call whose connection this ends.
    pub(crate) const fn end_of(self) -> Option<usize> {
        match self {
            Self::Finish(at) | Self::Fail(at) | Self::Die(at) => Some(at),
            _ => None,
        }
    }
}

impl Tool {
    /// Whether they are the same tool.
    const fn has_slots_of(self, other: Self) -> bool {
        matches!((self, other), (Self::Plain, Self::Plain) | (Self::Again { .. }, Self::Again { .. }))
    }
}

impl Stand {
    /// `status` on the wire; `None` for what is no task.
    pub(crate) fn status(self) -> Option<&'static str> {
        Some(match self {
            Self::HeldInLine { .. } | Self::Held { .. } | Self::Over | Self::Gone => return None,
            Self::Queued | Self::Running { .. } | Self::Stopping => "working",
            Self::Asking { .. } => "input_required",
            Self::Completed => "completed",
            Self::Failed(_) => "failed",
            Self::Cancelled => "cancelled",
        })
    }

    /// Whether it has a slot.
    fn is_sent(self) -> bool {
        matches!(self, Self::Held { .. } | Self::Running { .. } | Self::Stopping | Self::Asking { .. })
    }

    fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed(_) | Self::Cancelled)
    }
}

impl Model {
    /// Whether two of these may come at the same time: each changes one call, and no time goes by.
    pub(crate) fn may_meet(op: Op) -> bool {
        use Op::{Answer, Cancel, Die, Fail, Finish, Progress};
        matches!(op, Cancel(_) | Answer(_) | Finish(_) | Fail(_) | Die(_) | Progress(_))
    }

    pub(crate) fn apply(&mut self, op: Op) {
        match op {
            Op::Call => self.call(Tool::Plain, self.runs(), Stand::Queued),
            Op::CallAgain => self.call(Tool::Again { is_second: false }, self.runs(), Stand::Queued),
            Op::CallAuto => {
                self.call(Tool::Plain, Stand::Held { since: self.now }, Stand::HeldInLine { since: self.now });
            }
            Op::Die(at) if self.may_run_again(at) => self.begin_again(at),
            Op::Wait(seconds) => self.wait(seconds),
            Op::Jump(seconds) => self.jump(seconds),
            Op::Crash => self.crash(),
            Op::Leave(at)
            | Op::Cancel(at)
            | Op::Answer(at)
            | Op::Finish(at)
            | Op::Fail(at)
            | Op::Die(at)
            | Op::Progress(at)
            | Op::Ask(at)
            | Op::Withdraw(at) => {
                let Some(stand) = self.calls.get(at) else { return };
                self.calls[at] = self.one(*stand, op);
            }
        }
        self.fill();
    }

    /// A run that begins.
    fn runs(&self) -> Stand {
        Stand::Running { since: self.now, alive: 0 }
    }

    /// Whether the run of a call may be lost and begun again.
    fn may_run_again(&self, at: usize) -> bool {
        let runs = matches!(self.calls.get(at), Some(Stand::Running { .. } | Stand::Asking { .. }));
        runs && self.tools[at] == Tool::Again { is_second: false }
    }

    /// The same, but that the call is not begun again.
    pub(crate) fn never_again(mut self, at: usize) -> Self {
        if let Some(Tool::Again { is_second }) = self.tools.get_mut(at) {
            *is_second = true;
        }
        self
    }

    /// At once, on the slot of the first run.
    fn begin_again(&mut self, at: usize) {
        self.tools[at] = Tool::Again { is_second: true };
        self.sent[at] += 1;
        self.calls[at] = self.runs();
    }

    /// What becomes of one call.
    fn one(&self, stand: Stand, op: Op) -> Stand {
        let goes_on = |ran: u64| Stand::Running { since: self.now - ran, alive: ran };
        match (op, stand) {
            (Op::Leave(_), Stand::Held { .. } | Stand::HeldInLine { .. }) => Stand::Over,
            (Op::Cancel(_), Stand::Queued | Stand::Asking { .. }) => Stand::Cancelled,
            (Op::Cancel(_), Stand::Running { .. }) => Stand::Stopping,
            (Op::Answer(_) | Op::Withdraw(_), Stand::Asking { ran, .. }) => goes_on(ran),
            (Op::Finish(_) | Op::Fail(_) | Op::Die(_), Stand::Held { .. }) => Stand::Over,
            (Op::Finish(_), Stand::Running { .. } | Stand::Asking { .. } | Stand::Stopping) => Stand::Completed,
            (Op::Fail(_), Stand::Running { .. } | Stand::Asking { .. }) => Stand::Failed("server"),
            (Op::Die(_), Stand::Running { .. } | Stand::Asking { .. }) => Stand::Failed("outcome_unknown"),
            (Op::Fail(_) | Op::Die(_), Stand::Stopping) => Stand::Cancelled,
            (Op::Progress(_), Stand::Running { since, .. }) => Stand::Running { since, alive: self.now - since },
            (Op::Ask(_), Stand::Held { since } | Stand::Running { since, .. }) => {
                Stand::Asking { since: self.now, ran: self.now - since }
            }
            (_, stand) => stand,
        }
    }

    fn call(&mut self, tool: Tool, sent: Stand, waits: Stand) {
        let is_sent = self.free(tool) > 0;
        self.tools.push(tool);
        self.made.push(self.wall);
        self.sent.push(u32::from(is_sent));
        self.calls.push(if is_sent { sent } else { waits });
        if !is_sent {
            self.line.push(self.calls.len() - 1);
        }
    }

    /// The slots of the tool that are free.
    fn free(&self, tool: Tool) -> usize {
        let of_tool = self.calls.iter().zip(&self.tools).filter(|(_, other)| other.has_slots_of(tool));
        SLOTS - of_tool.filter(|(stand, _)| stand.is_sent()).count()
    }

    /// Those in the line get the slots that are free.
    fn fill(&mut self) {
        self.line.retain(|at| matches!(self.calls[*at], Stand::Queued | Stand::HeldInLine { .. }));
        for at in std::mem::take(&mut self.line) {
            if self.free(self.tools[at]) == 0 {
                self.line.push(at);
                continue;
            }
            self.sent[at] += 1;
            self.calls[at] = match self.calls[at] {
                Stand::HeldInLine { since } => Stand::Held { since },
                _ => self.runs(),
            };
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.now += seconds;
        self.wall += seconds.cast_signed();
        let (now, wall) = (self.now, self.wall);
        for ((stand, made), tool) in self.calls.iter_mut().zip(&mut self.made).zip(&self.tools) {
            if matches!(stand, Stand::HeldInLine { .. } | Stand::Held { .. }) {
                *made = wall;
            }
            *stand = match *stand {
                Stand::HeldInLine { since } if now >= since + AFTER => Stand::Queued,
                Stand::Held { since } if now >= since + RUN_LIMIT => Stand::Failed("timeout"),
                Stand::Held { since } if now >= since + AFTER => Stand::Running { since, alive: 0 },
                // It comes long before the hard limit.
                Stand::Running { since, alive } if *tool != Tool::Plain && now >= since + alive + IDLE_LIMIT => {
                    Stand::Failed("idle_timeout")
                }
                Stand::Running { since, .. } if now >= since + RUN_LIMIT => Stand::Failed("timeout"),
                Stand::Asking { since, .. } if now >= since + ASK_LIMIT => Stand::Failed("input_timeout"),
                Stand::Stopping if seconds >= 1 => Stand::Cancelled,
                stand => stand,
            };
        }
    }

    /// An ended task may expire; whatever runs goes on.
    fn jump(&mut self, seconds: i64) {
        self.wall += seconds;
        if seconds > 0 && seconds.unsigned_abs() > QUEUE_LIMIT + RUN_LIMIT + KEEP {
            self.calls.iter_mut().filter(|stand| stand.has_ended()).for_each(|stand| *stand = Stand::Gone);
        }
    }

    /// What was acknowledged is there, what ran is lost or begun again, and what waited is run.
    fn crash(&mut self) {
        let mut all_free = [SLOTS; 2];
        let mut again = Vec::new();
        for (at, stand) in self.calls.iter_mut().enumerate() {
            let free = &mut all_free[usize::from(self.tools[at] == Tool::Plain)];
            *stand = match (*stand, self.tools[at]) {
                (Stand::HeldInLine { .. } | Stand::Held { .. }, _) => Stand::Over,
                // Only the clock of the machine says how long it has waited.
                (Stand::Queued, tool) if *free == 0 && self.wall - self.made[at] > QUEUE_LIMIT.cast_signed() => {
                    Stand::Failed(if tool == (Tool::Again { is_second: true }) {
                        "outcome_unknown"
                    } else {
                        "queue_timeout"
                    })
                }
                // The cancel was acknowledged.
                (Stand::Stopping, _) => Stand::Cancelled,
                (Stand::Running { .. } | Stand::Asking { .. }, Tool::Again { is_second: false }) => {
                    again.push(at);
                    Stand::Queued
                }
                (Stand::Running { .. } | Stand::Asking { .. }, _) => Stand::Failed("outcome_unknown"),
                (stand, _) => stand,
            };
            *free -= usize::from(*stand == Stand::Queued && *free > 0 && !again.contains(&at));
        }
        self.line =
            (0..self.calls.len()).filter(|at| self.calls[*at] == Stand::Queued && !again.contains(at)).collect();
        // Their second run is written down before they join the line.
        for at in again {
            self.tools[at] = Tool::Again { is_second: true };
            self.line.push(at);
        }
    }
}
