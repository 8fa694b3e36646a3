//! Which owner an operator means.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::config::OwnerRules;
use crate::protocol::Principal;
use crate::store::{ReadError, Store};
use crate::task::Owner;

/// The owners whom the configuration names.
#[derive(Debug, Default)]
pub(super) struct OwnerNames {
    names: BTreeSet<String>,
    /// Whose subjects they may be, beside the bearers of listed tokens and whom a gateway names.
    issuer: Option<String>,
}

/// The owners who have a name, by their digests.
pub(super) struct Digests<'a>(HashMap<Vec<u8>, &'a str>);

/// Who was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// This one.
    One(Owner),
    /// Nobody who has a task.
    Nobody,
    /// Several.
    Several(&'static str),
    /// What was asked for is neither a name nor the beginning of a digest.
    Unclear,
}

impl OwnerNames {
    pub(super) fn of(rules: &OwnerRules) -> Self {
        let names = rules.named.keys().chain(&rules.tokens).cloned().collect();
        Self { names, issuer: rules.issuer.clone() }
    }

    /// What their digests in this store are.
    pub(super) fn digests(&self, store: &Store) -> Digests<'_> {
        let mut digests = HashMap::new();
        for name in &self.names {
            for principal in self.principals(name) {
                digests.insert(store.owner(&principal).digest().to_vec(), name.as_str());
            }
        }
        Digests(digests)
    }

    /// Whether this owner has the name that is wanted, or a digest that begins so.
    pub(super) fn fits(&self, store: &Store, wanted: &str, owner: &Owner) -> bool {
        if self.names.contains(wanted) {
            return self.principals(wanted).any(|principal| store.owner(&principal).digest() == owner.digest());
        }
        data_encoding::HEXLOWER.encode(owner.digest()).starts_with(&wanted.to_ascii_lowercase())
    }

    /// Who may have this name.
    fn principals(&self, name: &str) -> impl Iterator<Item = Principal> {
        let issuer = self.issuer.as_deref();
        let subject = issuer.map(|issuer| Principal::Subject { issuer: issuer.into(), subject: name.into() });
        [Principal::Named(name.into())].into_iter().chain(subject)
    }

    /// The owner with this name, or whose digest begins with these hex digits. A name goes first.
    pub(super) fn find(&self, store: &Store, wanted: &str) -> Result<Found, ReadError> {
        if !self.names.contains(wanted) {
            let Ok(prefix) = data_encoding::HEXLOWER_PERMISSIVE.decode(wanted.as_bytes()) else {
                return Ok(Found::Unclear);
            };
            let found = store.owners_like(&prefix)?;
            return Ok(Found::among(&found, "several begin so; give more digits"));
        }
        let mut found = Vec::new();
        for principal in self.principals(wanted) {
            found.extend(store.owners_like(store.owner(&principal).digest())?);
        }
        Ok(Found::among(&found, "a listed token and the subject of a JWT have this name; give digits of the digest"))
    }
}

impl Digests<'_> {
    /// Adds the name of its owner to what is shown of a call, where the owner has one.
    pub(super) fn named(&self, mut shown: Value, owner: &Owner) -> Value {
        let name = self.0.get(owner.digest().as_slice());
        if let (Some(name), Some(shown)) = (name, shown.as_object_mut()) {
            shown.insert("ownerName".to_owned(), (*name).into());
        }
        shown
    }
}

impl Found {
    fn among(found: &[Owner], several: &'static str) -> Self {
        match found {
            [] => Self::Nobody,
            [owner] => Self::One(*owner),
            _ => Self::Several(several),
        }
    }
}
