//! Credentials that nobody here can check: whether they are any good, the server behind tells by what it answers.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Credentials of a caller. The text is secret; two with the same text are the same.
#[derive(Clone)]
pub struct Credential {
    text: Box<str>,
    shown: Option<Newcomer>,
}

/// Somebody who has shown credentials that no server has taken yet.
#[derive(Clone)]
pub struct Newcomer {
    from: IpAddr,
    key: u64,
    proofs: Proofs,
}

/// Which credentials a server has taken, and has not refused since: the last tens of thousands. Clones are the same.
#[derive(Clone, Default)]
pub struct Proofs(Arc<Inner>);

#[derive(Default)]
struct Inner {
    known: Mutex<Known>,
    /// Makes keys of texts that nobody can foresee.
    keys: RandomState,
    /// More are known.
    more: Notify,
}

#[derive(Default)]
struct Known {
    /// Those that were of use lately.
    young: HashSet<u64>,
    /// Those that were before. Forgotten when there are too many young ones.
    old: HashSet<u64>,
}

/// How many of either are known.
const MOST: usize = 1 << 15;
/// Whoever has an address of this kind has all that begin with so many bits alike.
const NETWORK_BITS: u32 = 64;

impl Proofs {
    /// Credentials with this text, as they came from an address.
    pub fn shown(&self, text: impl Into<Box<str>>, from: IpAddr) -> Credential {
        let text = text.into();
        let key = self.0.keys.hash_one(&text);
        let shown = Newcomer { from: neighbourhood(from), key, proofs: self.clone() };
        Credential { text, shown: Some(shown) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Whole after every change, so a poisoned lock holds a good one.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn has(&mut self, key: u64) -> bool {
        self.young.contains(&key) || (self.old.contains(&key) && self.put(key))
    }

    /// Whether it was known before, if only as an old one.
    fn put(&mut self, key: u64) -> bool {
        if self.young.contains(&key) {
            return true;
        }
        if self.young.len() >= MOST {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key);
        self.old.remove(&key)
    }

    fn forget(&mut self, key: u64) {
        self.young.remove(&key);
        self.old.remove(&key);
    }
}

impl Credential {
    /// A server has answered who sent these.
    pub fn taken(&self) {
        if let Some(Newcomer { key, proofs, .. }) = &self.shown
            && !proofs.known().put(*key)
        {
            proofs.0.more.notify_waiters();
        }
    }

    /// A server has refused them.
    pub fn refused(&self) {
        if let Some(Newcomer { key, proofs, .. }) = &self.shown {
            proofs.known().forget(*key);
        }
    }

    /// Who has shown them, if no server has taken them yet.
    pub fn newcomer(&self) -> Option<&Newcomer> {
        self.shown.as_ref().filter(|shown| shown.is_one())
    }

    /// Resolves when a server has taken them.
    pub async fn proved(&self) {
        let Some(shown) = &self.shown else { return };
        loop {
            let more = shown.proofs.0.more.notified();
            tokio::pin!(more);
            // Before the look, so that what comes in between is not missed.
            more.as_mut().enable();
            if !shown.is_one() {
                return;
            }
            more.await;
        }
    }
}

impl Newcomer {
    /// Where it is: its address, or of IPv6 the network.
    pub fn address(&self) -> IpAddr {
        self.from
    }

    /// Whether no server has taken its credentials yet.
    pub fn is_one(&self) -> bool {
        !self.proofs.known().has(self.key)
    }
}

/// What one has who has this address.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> NETWORK_BITS << NETWORK_BITS)),
    }
}

/// Credentials that count as proved.
impl From<&str> for Credential {
    fn from(text: &str) -> Self {
        Self { text: text.into(), shown: None }
    }
}

/// Credentials that count as proved.
impl From<String> for Credential {
    fn from(text: String) -> Self {
        Self { text: text.into(), shown: None }
    }
}

impl AsRef<str> for Credential {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Credential {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Credential {}

impl Hash for Credential {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// Never shows the text.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}

impl fmt::Debug for Newcomer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Newcomer").field("from", &self.from).finish_non_exhaustive()
    }
}

impl fmt::Debug for Proofs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known();
        f.debug_struct("Proofs").field("known", &(known.young.len() + known.old.len())).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn is_new(credential: &Credential) -> bool {
        credential.newcomer().is_some()
    }

    #[test]
    fn credentials_are_proved_while_the_last_that_a_server_said_to_them_was_no_refusal() {
        let (proofs, from) = (Proofs::default(), address("10.0.0.7"));
        let (ann, again, bo) = (proofs.shown("ann", from), proofs.shown("ann", from), proofs.shown("bo", from));
        let mut proved = Box::pin(again.proved());
        assert!(is_new(&ann) && proved.as_mut().now_or_never().is_none());
        bo.taken();
        assert!(is_new(&ann) && proved.as_mut().now_or_never().is_none());
        ann.taken();
        assert!(!is_new(&again) && proved.now_or_never().is_some());
        again.refused();
        assert!(is_new(&ann) && !is_new(&bo));
        assert!(!is_new(&Credential::from("ann")), "of an owner who need not be proved");
    }

    #[test]
    fn an_address_is_what_one_caller_can_have_of_them() {
        for (one, other, same) in [
            ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "10.0.0.8", false),
            ("::ffff:10.0.0.7", "10.0.0.7", true),
            ("::ffff:10.0.0.7", "::ffff:10.0.0.8", false),
            ("2001:db8:1:2:3::4", "2001:db8:1:2:ffff::1", true),
            ("2001:db8:1:2::", "2001:db8:1:3::", false),
        ] {
            assert_eq!(neighbourhood(address(one)) == neighbourhood(address(other)), same, "{one} {other}");
        }
    }

    #[test]
    fn those_that_are_of_use_are_remembered_and_never_too_many() {
        let (proofs, from) = (Proofs::default(), address("10.0.0.7"));
        let [used, unused] = ["used", "unused"].map(|text| proofs.shown(text, from));
        used.taken();
        unused.taken();
        for number in 0..3 * MOST {
            proofs.shown(number.to_string(), from).taken();
            if number % 1000 == 0 {
                assert!(!is_new(&used), "{number}");
            }
        }
        assert!(is_new(&unused));
        let known = proofs.known();
        assert!(known.young.len() <= MOST && known.old.len() <= MOST);
    }
}
