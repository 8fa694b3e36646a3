//! The principal that a task belongs to, in a form that may be stored.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::protocol::Principal;

/// Who a task belongs to: a versioned scheme and a keyed digest, so that a store that falls into the
/// wrong hands tells neither tokens nor names.
#[derive(Clone, Copy, Eq)]
pub struct Owner {
    scheme: u8,
    digest: [u8; 32],
}

/// The key of the digests. It is kept in the store, and nowhere else.
#[derive(Clone)]
pub struct OwnerKey([u8; 32]);

/// HMAC-SHA-256 over the kind of principal, a zero byte and its text.
const HMAC_OF_PRINCIPAL: u8 = 1;

impl OwnerKey {
    /// A key from the store.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key, to be put into the store.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The owner that `principal` is.
    pub fn owner(&self, principal: &Principal) -> Owner {
        let (kind, text) = match principal {
            Principal::Local => ("local", ""),
            Principal::Anonymous => ("anonymous", ""),
            Principal::Credential(secret) => ("credential", secret.as_ref()),
            Principal::Newcomers(address) => ("newcomers", &*address.to_string()),
            Principal::Named(name) => ("named", name.as_ref()),
            Principal::Subject { issuer, subject } => {
                // The length keeps an issuer that ends like a subject begins from being another.
                let length = issuer.len().to_string();
                let parts = ["subject\0", &length, "\0", issuer, subject].map(str::as_bytes);
                return Owner { scheme: HMAC_OF_PRINCIPAL, digest: self.digest(&parts) };
            }
            Principal::Recorded { scheme, digest } => return Owner { scheme: *scheme, digest: *digest },
        };
        Owner { scheme: HMAC_OF_PRINCIPAL, digest: self.digest(&[kind.as_bytes(), b"\0", text.as_bytes()]) }
    }

    /// A seal on `parts` that only the holder of the key can make; `purpose` keeps seals of different kinds apart.
    pub fn seal(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
        let lengths: Vec<[u8; 8]> = parts.iter().map(|part| (part.len() as u64).to_be_bytes()).collect();
        let mut whole: Vec<&[u8]> = vec![b"seal\0", purpose.as_bytes(), b"\0"];
        for (length, part) in lengths.iter().zip(parts) {
            whole.extend([length.as_slice(), *part]);
        }
        self.digest(&whole)
    }

    /// A keyed digest of `parts`.
    fn digest(&self, parts: &[&[u8]]) -> [u8; 32] {
        // HMAC takes keys of any length; this one has the length of a block's half.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return [0; 32] };
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for OwnerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerKey(..)")
    }
}

impl Owner {
    /// The rule that makes digests now.
    pub const SCHEME: u8 = HMAC_OF_PRINCIPAL;

    /// The owner as somebody who calls, where nothing else is known of it.
    pub const fn principal(&self) -> Principal {
        Principal::Recorded { scheme: self.scheme, digest: self.digest }
    }

    /// An owner from a record.
    pub const fn from_parts(scheme: u8, digest: [u8; 32]) -> Self {
        Self { scheme, digest }
    }

    /// Which rule made the digest.
    pub const fn scheme(&self) -> u8 {
        self.scheme
    }

    /// The digest.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

/// Takes the same time whatever differs.
impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        self.scheme == other.scheme && bool::from(self.digest.ct_eq(&other.digest))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, ..] = self.digest;
        write!(f, "Owner({first:02x}{second:02x}…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_of_different_kinds_are_different_owners() {
        let key = OwnerKey::from_bytes([7; 32]);
        let principals = [
            Principal::Local,
            Principal::Anonymous,
            Principal::Credential("ann".into()),
            Principal::Named("ann".into()),
            Principal::Named("bo".into()),
            Principal::Subject { issuer: "https://a".into(), subject: "ann".into() },
            Principal::Subject { issuer: "https://aa".into(), subject: "nn".into() },
            Principal::Subject { issuer: "https://b".into(), subject: "ann".into() },
        ];
        for (at, one) in principals.iter().enumerate() {
            for (other_at, other) in principals.iter().enumerate() {
                assert_eq!(key.owner(one) == key.owner(other), at == other_at, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_seal_depends_on_the_key_the_purpose_and_where_each_part_ends() {
        let key = OwnerKey::from_bytes([7; 32]);
        let seal = key.seal("a", &[b"bc", b"d"]);
        assert_eq!(key.seal("a", &[b"bc", b"d"]), seal);
        let others = [
            key.seal("a", &[b"b", b"cd"]),
            key.seal("ab", &[b"c", b"d"]),
            key.seal("a", &[b"bc"]),
            OwnerKey::from_bytes([8; 32]).seal("a", &[b"bc", b"d"]),
        ];
        assert!(others.iter().all(|other| *other != seal));
    }

    #[test]
    fn an_owner_from_a_record_calls_as_the_same_owner() {
        let key = OwnerKey::from_bytes([7; 32]);
        let ann = key.owner(&Principal::Named("ann".into()));
        assert_eq!(key.owner(&ann.principal()), ann);
        assert_ne!(Owner::from_parts(ann.scheme() + 1, *ann.digest()), ann, "made by another rule");
        assert!(!format!("{:?}", ann.principal()).contains(&ann.digest()[0].to_string()));
    }

    #[test]
    fn the_digest_depends_on_the_key() {
        let principal = Principal::Named("ann".into());
        assert_ne!(OwnerKey::from_bytes([1; 32]).owner(&principal), OwnerKey::from_bytes([2; 32]).owner(&principal));
    }

    #[test]
    fn every_byte_of_a_digest_tells_owners_apart() {
        let owner = Owner::from_parts(Owner::SCHEME, [7; 32]);
        for at in 0..32 {
            for bit in 0..8 {
                let mut digest = [7; 32];
                digest[at] ^= 1 << bit;
                assert_ne!(Owner::from_parts(Owner::SCHEME, digest), owner, "byte {at}, bit {bit}");
            }
        }
    }
}
