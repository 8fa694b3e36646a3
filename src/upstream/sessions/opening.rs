//! For whom a session is opened, and who may use it.

use sha2::{Digest, Sha256};

use crate::protocol::{Abilities, Caller, ClientSession, Json, Principal};
use crate::upstream::questions::Client;

/// For whom a session is opened.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Opening {
    /// The caller whose call is the first, or the legacy client.
    pub(in crate::upstream) caller: Caller,
    /// The legacy client whose session it becomes; `None` for modern callers.
    pub(in crate::upstream) attached: Option<Attached>,
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
    /// Everybody whose client can be asked the same.
    Shared(Distinction),
    /// One principal, and of it those that are alike in this and whose client can be asked the same.
    Of(Principal, Distinction, Distinction),
    /// The legacy client with this session.
    Client(u64),
}

impl Opening {
    /// For a modern caller.
    pub(in crate::upstream) fn of(caller: &Caller) -> Self {
        Self { caller: caller.clone(), attached: None }
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

impl Key {
    /// The key of `caller`. `headers` tells callers of its principal apart.
    pub(super) fn of(caller: &Caller, share: bool, headers: impl FnOnce() -> Distinction) -> Self {
        match caller.session {
            ClientSession::Legacy(number) => Self::Client(number),
            ClientSession::Stateless => {
                let declared = declared(&caller.abilities);
                if share { Self::Shared(declared) } else { Self::Of(caller.principal.clone(), headers(), declared) }
            }
        }
    }

    /// Whether the client can be asked anything.
    pub(super) fn can_be_asked(&self) -> bool {
        match self {
            Self::Shared(declared) | Self::Of(_, _, declared) => *declared != Distinction::default(),
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
