//! Runs calls: raced against their threshold, made into tasks when they are slow, bounded, cancelled, settled.
//!
//! Every `tools/call` is driven by one job of its own (`run`). It is let in and waits for a slot (`admission`), runs, and
//! ends either on the line of the caller who is held, or as a task (`seat`) that a `settler` must end (`attend`).
//! What the server asks is kept at a `desk` and goes, in the order of their eras, to the caller as it is, into the
//! record of a task (`asking`, `answer`), or into results that the caller retries with answers (`rounds`).
//! A call with a key has a record before it is sent; its repeats join it (`joining`).

mod admission;
mod answer;
mod asking;
mod attend;
mod board;
mod bounds;
mod cancel;
mod clock;
mod desk;
mod form;
mod given_up;
mod held;
mod held_up;
mod joining;
mod live;
mod next;
mod outcomes;
mod parked;
mod promote;
mod recover;
mod remember;
mod request_state;
mod responses;
mod rounds;
mod run;
mod running;
mod seat;
mod settler;
mod shares;
mod shown;
mod stopping;
mod timing;
mod twin;
pub mod view;
mod wishes;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::{OwnerRules, Rate, ToolPolicy};
use crate::history::History;
use crate::jobs::Jobs;
use crate::protocol::{
    Abilities, Call, ClientSession, Failure, McpService, Outcome, QuestionKind, Reason, Reply, ReplySender, Retry,
};
use crate::store::Store;

pub use admission::{Kept, Place};
pub use form::{Form, Handed, Occasion, WriteHandle};
pub use live::{Live, LiveRuns, Phase};
pub use request_state::{is_ours as is_request_state, refused as strange_request_state};
pub use responses::Responses;
pub use shown::{HeldCall, HeldCalls, Stage};

use admission::Admission;
use joining::{Digests, Joining, Retrier, Sought};
use outcomes::{Known, Outcomes};
use parked::{ParkedRuns, Resume, Unheard};
use recover::Parcel;
use remember::Saving;
use request_state::{AS_RECORDED, Claim, Subject};
use run::Run;
use shares::Shares;

/// Runs calls. Clones share slots, lines and live tasks.
#[derive(Clone, Debug)]
pub struct Runner(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Store,
    jobs: Jobs,
    live: LiveRuns,
    /// How long tools take.
    history: History,
    saving: Saving,
    admission: Admission,
    /// Runs whose callers were asked and are to come back.
    parked: Arc<ParkedRuns>,
    /// The keys of calls that run.
    joining: Arc<Joining>,
    /// Where large ones are compared.
    digests: Digests,
    /// How calls ended whose callers may not have heard of it.
    outcomes: Outcomes,
    /// What runs that wait for input take.
    shares: Shares,
    /// The held calls that operators can see.
    held: Arc<HeldCalls>,
    /// Fires when nothing more may be started.
    draining: CancellationToken,
}

/// Bounds on all runs together.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Runs at the same time (`limits.calls`).
    pub running: usize,
    /// Calls that wait for a slot (`limits.queue`).
    pub waiting: usize,
    /// How often runs of tools may be started (`limits.rate`).
    pub rate: Option<Rate>,
}

/// How one call is to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The name of the server in the config.
    pub server: Arc<str>,
    /// What is run.
    pub what: What,
    /// How the call goes on.
    pub way: Way,
    /// What the config says of the tool, or of all else.
    pub policy: Arc<ToolPolicy>,
    /// How long the slot stays taken after a stop that the server does not answer.
    pub linger: Linger,
    /// When the call is sent.
    pub sends: Sends,
    /// What the call goes out with that only this process has.
    pub carries: Carries,
}

/// What a call goes out with that only this process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// Nothing: another process can send it, or listen on for its answer.
    Nothing,
    /// Credentials of its caller, which are kept in memory only.
    Credentials,
}

/// What a call runs.
#[derive(Clone, Debug)]
pub enum What {
    /// The tool with this name: limits of tools hold, and it may become a task.
    Tool(String),
    /// Another method: it is held until the server answers.
    Other(String),
}

/// How a call goes on when it is slow or asks.
#[derive(Clone, Debug)]
pub struct Way {
    /// When the call becomes a task.
    pub promotion: Promotion,
    /// What its questions do before it is one.
    pub questions: Questions,
    /// What the client can be asked.
    pub abilities: Abilities,
    /// What its handle looks like, if it becomes a task.
    pub form: Form,
    /// The shape in which its client wants results is that of its session.
    pub session: ClientSession,
}

/// What the questions of a call do while it is no task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Questions {
    /// They go to the caller as they are: a legacy client is asked by requests. What is open when the call becomes a
    /// task is taken back, and asked there.
    PassOn,
    /// They make the call a task.
    Promote,
    /// The first round is put to the caller in a multi round-trip result; when it is answered the call becomes a task
    /// as said here, and later questions make it one.
    First {
        /// Counted from the arrival of the last answer.
        then: Promotion,
    },
    /// They are put to the caller in multi round-trip results.
    RoundTrip,
    /// They are refused: the method has no such results.
    Refuse,
}

/// When a call becomes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// Never: the caller is held until the end.
    Never,
    /// When this much time has gone since the arrival of the call.
    After(Duration),
    /// Before anything is sent.
    AtOnce,
}

/// How long the slot of a stopped run stays taken while the server does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linger {
    /// This long.
    AtMost(Duration),
    /// This long, of a server that is not told to stop (`cancel = "never"`).
    Untold(Duration),
    /// Until the run would have reached its hard limit: the server is known to run on.
    UntilTimeout,
}

/// When a service sends a call that it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sends {
    /// At once.
    AtOnce,
    /// When its server can take it and the call is let go: its replies are [gated](Reply::gated).
    WhenLetGo,
}

impl Runner {
    /// A runner that keeps tasks in `store` and runs in `jobs`. When `jobs` is stopped, open runs are
    /// recorded as lost and end. Reads what the store remembers of the tools.
    pub fn new(store: Store, jobs: Jobs, bounds: Bounds) -> Self {
        Self::with_owners(store, jobs, bounds, OwnerRules::default())
    }

    /// The same, with limits for owners. What they have spent before is read from the store.
    pub fn with_owners(store: Store, jobs: Jobs, bounds: Bounds, rules: OwnerRules) -> Self {
        let (history, saving) = (remember::history(&store), Saving::default());
        let (live, draining) = (LiveRuns::learning_from(history.clone()), CancellationToken::new());
        let admission = Admission::new(&store, &jobs, &draining, bounds, rules);
        // Runs that wait keep their slots: some must be left for calls that do not ask.
        let (parked, shares) = (Arc::default(), Shares::of_slots(bounds.running));
        let held = Arc::default();
        let (joining, digests, outcomes) = (Arc::default(), Digests::default(), Outcomes::default());
        Self(Arc::new(Shared {
            store,
            jobs,
            live,
            history,
            saving,
            admission,
            parked,
            joining,
            digests,
            outcomes,
            shares,
            held,
            draining,
        }))
    }

    /// Runs `call` on `inner` as `plan` says.
    pub fn run<S: McpService>(&self, inner: S, call: Call, plan: Plan) -> Reply {
        let sought = match Sought::of(&plan, &call) {
            Ok(sought) => sought,
            Err(error) => return Reply::ready(Outcome::Error(error)),
        };
        // A repeat may still join a call that runs.
        if self.0.jobs.is_stopping() || (sought.is_none() && self.0.is_ending()) {
            return Reply::ready(Outcome::Failed(stopping()));
        }
        let parcel = Parcel::of(&plan, &call, self.0.store.clock().now(), sought.is_some());
        let run = Run::new(Arc::clone(&self.0), plan, &call, parcel);
        if let Some(sought) = sought {
            let enter = |sender| joining::enter(run, sought, inner, call, sender);
            return Reply::driven(&self.0.jobs, "run a call with a key", enter);
        }
        Reply::driven(&self.0.jobs, "run a call", |sender| run.drive(inner, call, sender))
    }

    /// Goes on with the run that `state` belongs to, with the answers in `call`. Nothing is ever sent anew: if that run
    /// is gone, its outcome is unknown.
    pub fn resume(&self, server: &Arc<str>, state: &str, call: Call, way: Way) -> Reply {
        let shared = &self.0;
        let principal = &call.caller.principal;
        let claim = Claim::open(state, &shared.store, principal, server, &Subject::of(&call));
        let Ok(claim) = claim else { return Reply::ready(Outcome::Error(request_state::refused())) };
        let responses = match Responses::read(call.params.raw()) {
            Ok(responses) => responses.unwrap_or_default(),
            Err(error) => return Reply::ready(Outcome::Error(error)),
        };
        let rejoin = |responses, way| {
            let (shared, retrier) = (Arc::clone(shared), Retrier::of(&call, server));
            let rejoin = |sender| joining::rejoin(shared, claim, responses, retrier, way, sender);
            Reply::driven(&self.0.jobs, "go on with an earlier call", rejoin)
        };
        if claim.round == AS_RECORDED {
            return rejoin(responses, way);
        }
        let (sender, reply) = Reply::channel();
        let resume = Resume { sender, round: claim.round, responses, arrived: call.arrived, way: way.clone() };
        let failure = match shared.parked.resume(&claim.task, resume) {
            Ok(()) => return reply,
            Err(Unheard::Busy) => rounds::too_many(),
            Err(Unheard::Gone) => match shared.outcomes.of(&claim) {
                Known::Outcome(outcome) => return Reply::ready(outcome),
                Known::Earlier => rounds::earlier(),
                // Their keys may have been given to other questions since.
                Known::Nothing => return rejoin(Responses::default(), way),
            },
        };
        Reply::ready(Outcome::Failed(failure))
    }

    /// Runs a job of the tasks layer among the runs. It is to end when [`Runner::ending`] resolves.
    pub(crate) fn spawn<F>(&self, name: &'static str, job: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.jobs.spawn(name, job);
    }

    /// A reply that a job among the runs gives. It is to end when [`Runner::ending`] resolves.
    pub(crate) fn reply<F>(&self, name: &'static str, make: impl FnOnce(ReplySender) -> F) -> Reply
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Reply::driven(&self.0.jobs, name, make)
    }

    /// Resolves when nothing more is started.
    pub(crate) async fn ending(&self) {
        tokio::select! {
            () = self.0.draining.cancelled() => {}
            () = self.0.jobs.stopping() => {}
        }
    }

    /// Whether nothing more is started.
    pub fn is_draining(&self) -> bool {
        self.0.is_ending()
    }

    /// How many calls wait for a slot.
    pub fn waiting(&self) -> usize {
        self.0.admission.waiting()
    }

    /// How many slots are taken, by calls of any kind.
    pub fn running(&self) -> usize {
        self.0.admission.running()
    }

    /// How many of them are those of runs that were stopped and whose servers have not answered.
    pub fn lingering(&self) -> usize {
        self.0.admission.lingering()
    }

    /// The tasks whose runs go on here.
    pub fn live(&self) -> &LiveRuns {
        &self.0.live
    }

    /// The store behind.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Starts nothing more: what waits for a slot is told so, and nobody waits any longer for the answer to
    /// a stop. Runs go on, but those that wait for input end: nobody could answer any more.
    pub fn drain(&self) {
        self.0.draining.cancel();
    }

    /// Resolves when no run is left.
    pub async fn idle(&self) {
        self.0.jobs.idle().await;
    }
}

impl Shared {
    /// Whether nothing more is started.
    fn is_ending(&self) -> bool {
        self.draining.is_cancelled() || self.jobs.is_stopping()
    }
}

impl What {
    /// The name of the tool, or of the method.
    pub fn name(&self) -> &str {
        match self {
            Self::Tool(name) | Self::Other(name) => name,
        }
    }
}

impl Way {
    /// Whether the caller may be sent away with questions, to retry the call.
    fn may_be_retried(&self) -> bool {
        use QuestionKind::{Elicitation, Roots, Sampling};
        match self.questions {
            Questions::First { .. } | Questions::RoundTrip => {
                [Elicitation, Sampling, Roots].into_iter().any(|kind| self.abilities.has(kind))
            }
            Questions::PassOn | Questions::Promote | Questions::Refuse => false,
        }
    }
}

/// The proxy stops before the call was sent.
fn stopping() -> Failure {
    Failure::new(
        Reason::Stopping,
        "Raincheck is stopping; the call was not sent, send it again when it is back",
        Retry::SOON,
    )
}
