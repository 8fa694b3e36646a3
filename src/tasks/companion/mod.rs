//! Handles in words, and the tools that go with them: for clients that cannot take a task (`fallback = "handle"`).
//!
//! A slow call is answered with a normal result that says, to a model, that the job goes on and which tools to call
//! for it. Those stand beside the server's own in `tools/list` and are answered here. The handle is that of a task:
//! whoever owns it can use it in any other way too.

mod answer;
mod cancel;
mod check;
mod job;
mod list;
mod names;
mod questions;
mod tools;
mod words;

use std::sync::Arc;

use self::names::Names;
use self::words::Words;
use super::elsewhere::Elsewhere;
use super::fallback;
use crate::config::CompanionNames;
use crate::policy::Policies;
use crate::protocol::{Call, ClientSession, McpService, Outcome, Reply, ReplySender};
use crate::runner::{Form, Linger, Runner};

pub(super) use self::words::said_no;

/// The tools beside those of one server. Clones share what is known of that server's names.
#[derive(Clone, Debug)]
pub(super) struct Companions {
    shared: Arc<Shared>,
    elsewhere: Elsewhere,
    linger: Linger,
}

#[derive(Debug)]
struct Shared {
    policies: Policies,
    names: Arc<Names>,
    /// Whether any tool may answer with a handle in words.
    offered: bool,
    legacy: Arc<Words>,
    modern: Arc<Words>,
}

/// Which of the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Check,
    Cancel,
    Answer,
}

/// One of the tools, as it is called now.
#[derive(Debug)]
pub(super) struct Companion {
    kind: Kind,
    names: CompanionNames,
    policies: Policies,
    elsewhere: Elsewhere,
    linger: Linger,
}

impl Companions {
    /// The tools with these names, beside those of a server with these policies.
    pub(super) fn new(wanted: CompanionNames, policies: Policies) -> Self {
        let names = Arc::new(Names::new(wanted));
        let offered = policies.all().any(fallback::speaks);
        let words = |era| Arc::new(Words::new(era, Arc::clone(&names), policies.clone()));
        let [legacy, modern] = [words::Era::Legacy, words::Era::Modern].map(words);
        let shared = Arc::new(Shared { policies, names, offered, legacy, modern });
        Self { shared, elsewhere: Elsewhere::default(), linger: Linger::UntilTimeout }
    }

    /// The same, where a handle that is unknown may be kept elsewhere.
    pub(super) fn kept_elsewhere(self, elsewhere: Elsewhere) -> Self {
        Self { elsewhere, ..self }
    }

    /// The same, of a server whose stopped runs linger so.
    pub(super) fn lingering(self, linger: Linger) -> Self {
        Self { linger, ..self }
    }

    /// Whether any tool of the server may answer with a handle in words.
    pub(super) fn are_offered(&self) -> bool {
        self.shared.offered
    }

    /// How a handle is written for a client with this session.
    pub(super) fn words(&self, session: &ClientSession) -> Form {
        Form::Other(match words::Era::of(session) {
            words::Era::Legacy => Arc::clone(&self.shared.legacy) as _,
            words::Era::Modern => Arc::clone(&self.shared.modern) as _,
        })
    }

    /// Whether a tool of this name may be one of these, for all that is known.
    pub(super) fn may_be(&self, name: &str) -> bool {
        self.shared.names.may_be(name)
    }

    /// Finds out what the server calls its own tools, unless that is known: asked in the name of whoever makes `call`.
    pub(super) async fn learn<S: McpService>(&self, inner: S, call: &Call) {
        list::learn(&self.shared.names, inner, call, None).await;
    }

    /// The tool that is called so now.
    pub(super) fn called(&self, name: &str) -> Option<Companion> {
        let names = self.shared.names.now();
        let kind = match name {
            name if name == names.check => Kind::Check,
            name if name == names.cancel => Kind::Cancel,
            name if name == names.answer => Kind::Answer,
            _ => return None,
        };
        Some(Companion {
            kind,
            names,
            policies: self.shared.policies.clone(),
            elsewhere: self.elsewhere.clone(),
            linger: self.linger,
        })
    }

    /// The reply to a `tools/list`, which the server answers with `reply`.
    pub(super) fn list<S: McpService>(&self, runner: &Runner, inner: S, call: Call, reply: Reply) -> Reply {
        runner.reply("list tools", |sender| self.relay(inner, call, reply, sender))
    }

    /// The same, through `sender`.
    pub(super) fn relay<S: McpService>(
        &self,
        inner: S,
        call: Call,
        reply: Reply,
        sender: ReplySender,
    ) -> impl Future<Output = ()> + Send + 'static + use<S> {
        list::relay(Arc::clone(&self.shared), inner, call, reply, sender)
    }
}

impl Companion {
    /// Answers a call of this tool; the server is not asked.
    pub(super) fn answer(self, runner: &Runner, call: Call) -> Reply {
        let job = runner.clone();
        runner.reply("companion tool", |sender| async move {
            // Leaving ends this call and nothing else.
            let cancellation = sender.cancellation();
            let outcome = tokio::select! {
                biased;
                () = cancellation.cancelled() => return,
                outcome = self.outcome(&job, &call) => outcome,
            };
            sender.done(outcome);
        })
    }

    async fn outcome(&self, runner: &Runner, call: &Call) -> Outcome {
        let answered = match self.kind {
            Kind::Check => check::check(self, runner, call).await,
            Kind::Cancel => cancel::cancel(self, runner, call).await,
            Kind::Answer => answer::answer(self, runner, call).await,
        };
        answered.unwrap_or_else(|outcome| outcome)
    }
}
