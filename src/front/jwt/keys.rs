//! The issuer's keys: fetched when they are first needed or do not have what a token names, renewed in the background when
//! they are old, kept while the issuer cannot be reached.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{AlgorithmFamily, DecodingKey, Header};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::fetch::{FetchError, Fetcher};
use crate::config::KeySource;
use crate::jobs::Jobs;

/// The keys of one issuer. Clones share them.
#[derive(Clone)]
pub(super) struct Keys(Arc<Inner>);

struct Inner {
    fetcher: Fetcher,
    current: RwLock<Option<Arc<KeySet>>>,
    /// Held by whoever fetches, so that a crowd of callers asks the issuer once.
    turn: Mutex<Turn>,
    /// Where they are renewed.
    jobs: Jobs,
}

/// How the last attempt went.
#[derive(Debug, Default)]
struct Turn {
    last_attempt: Option<Instant>,
    /// When no fetch counts any more of those that were made so far.
    paid: Option<Instant>,
    last_error: Option<FetchError>,
    generation: u64,
}

/// A key set that was fetched.
pub(super) struct KeySet {
    keys: Vec<Key>,
    fetched: Instant,
    /// Changes when the keys do.
    generation: u64,
}

struct Key {
    id: Option<String>,
    algorithm: Option<String>,
    public: DecodingKey,
    /// The key as it was written, to see whether it has changed.
    written: String,
}

/// What a key set has for a token.
pub(super) enum Lookup {
    /// These keys may have signed it.
    Found(Vec<DecodingKey>),
    /// None of its keys.
    Unknown,
}

/// Keys older than this are fetched again, while they are used.
const FRESH: Duration = Duration::from_mins(10);
/// For how long keys are used while the issuer cannot be reached.
const STALE: Duration = Duration::from_hours(24);
/// The time between two fetches in the long run, and after one that failed: tokens with made-up key ids must not become a
/// load on the issuer.
const PAUSE: Duration = Duration::from_secs(10);
/// So many fetches that succeed may come one after the other, so that a made-up key id does not hold up who has a new key.
const AT_ONCE: u32 = 4;
/// Keys of a set that are tried for a token that names none.
const TRIED: usize = 8;
/// Bytes of the shortest RSA key that may be used (RFC 7518, 3.3 and 3.5).
const RSA_BYTES: usize = 2048 / 8;
/// Keys of a set that are looked at.
const MOST: usize = 100;

impl Keys {
    /// No keys yet. They are renewed in `jobs`.
    pub(super) fn new(source: KeySource, jobs: Jobs) -> Self {
        let (fetcher, current, turn) = (Fetcher::new(source), RwLock::new(None), Mutex::new(Turn::default()));
        Self(Arc::new(Inner { fetcher, current, turn, jobs }))
    }

    /// The keys, fetched first if there are none that can be used. Those that are old are renewed in the background: callers
    /// do not wait for the issuer while there are keys.
    pub(super) async fn get(&self) -> Result<Arc<KeySet>, FetchError> {
        let Some(keys) = usable(self.current()) else { return self.fetch(Instant::now()).await };
        if keys.fetched.elapsed() >= FRESH {
            self.renew();
        }
        Ok(keys)
    }

    /// Fetches in the background, unless somebody does, or it was tried too short a time ago.
    fn renew(&self) {
        let is_due =
            self.0.turn.try_lock().is_ok_and(|turn| turn.last_attempt.is_none_or(|last| last.elapsed() >= PAUSE));
        if !is_due {
            return;
        }
        let keys = self.clone();
        self.0.jobs.spawn("renew the keys of the issuer", async move {
            let fetched = async {
                // A failure was logged, and the keys that there are serve on.
                let _ = keys.fetch(Instant::now()).await;
            };
            tokio::select! {
                () = fetched => {}
                () = keys.0.jobs.stopping() => {}
            }
        });
    }

    /// The jobs in which they are renewed.
    #[cfg(test)]
    pub(super) fn jobs(&self) -> &Jobs {
        &self.0.jobs
    }

    /// Keys that were fetched after this was called, since `seen` did not have what was looked for. An error if they
    /// cannot be had now: then nobody can say whether the issuer knows more by now.
    pub(super) async fn renewed(&self, seen: &Arc<KeySet>) -> Result<Arc<KeySet>, FetchError> {
        let asked = Instant::now();
        match self.current() {
            Some(keys) if !Arc::ptr_eq(&keys, seen) => return Ok(keys),
            _ => {}
        }
        let keys = self.fetch(asked).await?;
        if keys.fetched >= asked { Ok(keys) } else { Err(FetchError::TooSoon) }
    }

    /// Fetches, unless somebody else has since `asked`, or it was tried too short a time ago.
    async fn fetch(&self, asked: Instant) -> Result<Arc<KeySet>, FetchError> {
        let mut turn = self.0.turn.lock().await;
        let current = self.current();
        if let Some(keys) = &current
            && keys.fetched >= asked
        {
            return Ok(Arc::clone(keys));
        }
        if !turn.may_fetch(Instant::now()) {
            return usable(current).ok_or_else(|| turn.last_error.clone().unwrap_or(FetchError::TooSoon));
        }
        turn.last_attempt = Some(Instant::now());
        match self.0.fetcher.fetch().await {
            Ok(set) => {
                turn.last_error = None;
                let keys: Vec<Key> = set.iter().take(MOST).filter_map(Key::read).collect();
                if keys.is_empty() {
                    tracing::warn!("the key set of owner.jwt.jwks holds no key that can be used");
                }
                let same = current.as_ref().is_some_and(|current| current.keys == keys);
                turn.generation += u64::from(!same);
                let keys = Arc::new(KeySet { keys, fetched: Instant::now(), generation: turn.generation });
                *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&keys));
                Ok(keys)
            }
            Err(error) => {
                let (why, from) = (std::error::Error::source(&error), &self.0.fetcher);
                tracing::warn!(%error, why, ?from, "the keys of owner.jwt.jwks could not be fetched");
                turn.last_error = Some(error.clone());
                usable(current).ok_or(error)
            }
        }
    }

    fn current(&self) -> Option<Arc<KeySet>> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Turn {
    /// Whether another fetch may be made now; counts it if so.
    fn may_fetch(&mut self, now: Instant) -> bool {
        let failed_just_now = self.last_error.is_some() && self.last_attempt.is_some_and(|last| now < last + PAUSE);
        let paid = self.paid.map_or(now, |paid| paid.max(now));
        if failed_just_now || paid > now + PAUSE * (AT_ONCE - 1) {
            return false;
        }
        self.paid = Some(paid + PAUSE);
        true
    }
}

/// Keys that are not too old to be used.
fn usable(keys: Option<Arc<KeySet>>) -> Option<Arc<KeySet>> {
    keys.filter(|keys| keys.fetched.elapsed() < STALE)
}

impl KeySet {
    /// Changes when the keys do.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether there is no key that could have signed anything.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys that may have signed a token with this header.
    pub(super) fn find(&self, header: &Header) -> Lookup {
        let family = header.alg.family();
        let spelled = format!("{:?}", header.alg);
        let fits = |key: &&Key| {
            key.public.family() == family && key.algorithm.as_ref().is_none_or(|algorithm| *algorithm == spelled)
        };
        let found: Vec<DecodingKey> = match &header.kid {
            Some(id) => self.keys.iter().filter(|key| key.id.as_ref() == Some(id)).filter(fits).collect::<Vec<_>>(),
            None => self.keys.iter().filter(fits).take(TRIED).collect(),
        }
        .into_iter()
        .map(|key| key.public.clone())
        .collect();
        if found.is_empty() { Lookup::Unknown } else { Lookup::Found(found) }
    }
}

impl Key {
    /// A key that can check signatures; `None` for all else in a set.
    fn read(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        if !matches!(common.public_key_use, None | Some(PublicKeyUse::Signature)) {
            return None;
        }
        if common.key_operations.as_ref().is_some_and(|operations| !operations.contains(&KeyOperations::Verify)) {
            return None;
        }
        if let AlgorithmParameters::RSA(rsa) = &jwk.algorithm
            && modulus_bytes(&rsa.n)? < RSA_BYTES
        {
            return None;
        }
        let key = DecodingKey::from_jwk(jwk).ok()?;
        // A shared secret has no place in a public set.
        if key.family() == AlgorithmFamily::Hmac {
            return None;
        }
        let algorithm = common.key_algorithm.map(|algorithm| algorithm.to_string());
        let written = serde_json::to_string(&jwk.algorithm).ok()?;
        Some(Self { id: common.key_id.clone(), algorithm, public: key, written })
    }
}

/// How many bytes the modulus of an RSA key has; `None` if it cannot be read.
fn modulus_bytes(modulus: &str) -> Option<usize> {
    let bytes = BASE64URL_NOPAD.decode(modulus.as_bytes()).ok()?;
    Some(bytes.iter().skip_while(|byte| **byte == 0).count())
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.algorithm == other.algorithm && self.written == other.written
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("fetcher", &self.0.fetcher).finish_non_exhaustive()
    }
}
