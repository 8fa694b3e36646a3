//! For whom a session is opened, and who may use it.

use sha2::{Digest, Sha256};

use crate::protocol::{Abilities, Caller, ClientSession, Json, Principal};
use crate::upstream::questions::Client;

/// For whom a session is opened.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Opening {
    /// The caller whose call is the first, or the legacy client.
    pub(in crate::upstream) caller: Caller,
    /// Who hears what the server says on it.
    pub(in crate::upstream) hearer: Hearer,
}

/// Who hears what a server says outside of calls.
#[derive(Clone, Debug)]
pub(in crate::upstream) enum Hearer {
    /// Modern callers that listen.
    Audience(Audience),
    /// The legacy client whose session it is.
    Client(Attached),
}

/// Modern callers that share sessions, but for what their clients can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::upstream) enum Audience {
    /// Everybody.
    Everybody,
    /// One principal, and of it those that are alike in this.
    One(Principal, Distinction),
}

/// A legacy client that gets a session of its own.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Attached {
    /// The parameters of its `initialize`.
    pub(in crate::upstream) params: Json,
    /// To be asked and told what belongs to no call.
    pub(in crate::upstream) client: Client,
}

/// A digest of what tells callers of one principal apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::upstream) struct Distinction([u8; 32]);

/// Who may use a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// Those of an audience whose clients can be asked the same.
    Of(Audience, Distinction),
    /// The legacy client with this session.
    Client(u64),
}

impl Opening {
    /// The legacy client whose session it becomes.
    pub(in crate::upstream) fn attached(&self) -> Option<&Attached> {
        match &self.hearer {
            Hearer::Audience(_) => None,
            Hearer::Client(attached) => Some(attached),
        }
    }
}

impl Distinction {
    /// The digest of `parts`, which may be secret.
    pub(in crate::upstream) fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            // With its length, so that no two lists of parts read alike.
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
        Self(digest.finalize().into())
    }
}

impl Audience {
    /// That of `caller`. `headers` tells callers of its principal apart.
    pub(super) fn of(caller: &Caller, share: bool, headers: impl FnOnce() -> Distinction) -> Self {
        if share { Self::Everybody } else { Self::One(caller.principal.clone(), headers()) }
    }
}

impl Key {
    /// The key of `caller`. `headers` tells callers of its principal apart.
    pub(super) fn of(caller: &Caller, share: bool, headers: impl FnOnce() -> Distinction) -> Self {
        match caller.session {
            ClientSession::Legacy(number) => Self::Client(number),
            ClientSession::Stateless => Self::Of(Audience::of(caller, share, headers), declared(&caller.abilities)),
        }
    }

    /// Whether the client can be asked anything.
    pub(super) fn can_be_asked(&self) -> bool {
        match self {
            Self::Of(_, declared) => *declared != Distinction::default(),
            Self::Client(_) => false,
        }
    }
}

/// What tells clients apart that can be asked different things; the default where nothing can be asked.
fn declared(abilities: &Abilities) -> Distinction {
    let questions = abilities.questions();
    if questions.is_empty() {
        return Distinction::default();
    }
    Distinction::of(
        questions.iter().flat_map(|(kind, settings)| [kind.capability().as_bytes(), settings.as_str().as_bytes()]),
    )
}
