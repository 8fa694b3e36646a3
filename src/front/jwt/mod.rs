//! Callers proved by tokens that an issuer has signed (RFC 7519, RFC 8725).
//!
//! The owner is issuer and subject, so that tasks stay in reach when the token is renewed.

mod fetch;
mod keys;

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use self::fetch::FetchError;
use self::keys::{Keys, Lookup};
use crate::config::JwtConfig;
use crate::jobs::Jobs;
use crate::protocol::Principal;
use crate::shared_map::SharedMap;

/// Proves callers by their tokens.
pub(super) struct Verifier {
    issuer: String,
    validation: Validation,
    skew: Duration,
    keys: Keys,
    /// Tokens that were proved, by their digest: polls repeat the same one, and a signature costs far more.
    proved: SharedMap<[u8; 32], Proved>,
}

/// A token that was proved.
#[derive(Clone, Debug)]
struct Proved {
    subject: Box<str>,
    /// Seconds since the Unix epoch at which it ends, with the skew.
    until: u64,
    /// The generation of the keys that proved it.
    generation: u64,
}

/// Why a token proves nothing.
#[derive(Debug)]
pub(super) enum Unproved {
    /// It is wrong, for this reason, which may be told.
    Token(&'static str),
    /// The issuer's keys cannot be had, so nobody can say.
    NoKeys(FetchError),
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    exp: f64,
    #[serde(default)]
    iss: Value,
}

/// What an issuer may sign with. No shared secrets: whoever knows the public key could forge those (RFC 8725, 2.1).
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// What is said of a token that none of the keys has signed.
const WRONG_SIGNATURE: &str = "the signature is wrong";

/// What is said of a claim that is not what the specification wants.
const MALFORMED_CLAIM: &str = "one of exp, nbf, iss, aud and sub is malformed";

/// Proved tokens that are remembered.
const REMEMBERED: usize = 4096;
/// Bytes of a token and of a subject that are looked at.
const LONGEST_TOKEN: usize = 16 << 10;
const LONGEST_SUBJECT: usize = 1024;

impl Lookup {
    fn or_unknown(self) -> Result<Vec<DecodingKey>, Unproved> {
        match self {
            Self::Found(found) => Ok(found),
            Self::Unknown => Err(Unproved::Token("the token is signed by a key that is not known")),
        }
    }
}

impl Verifier {
    /// A verifier without keys yet, which are renewed in `jobs`.
    pub(super) fn new(config: &JwtConfig, jobs: Jobs) -> Self {
        let mut validation = Validation::new(Algorithm::RS256);
        validation.algorithms = ALGORITHMS.to_vec();
        validation.set_issuer(&[&config.issuer]);
        validation.set_audience(&config.audience);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.leeway = config.skew.as_secs();
        validation.validate_nbf = true;
        Self {
            issuer: config.issuer.clone(),
            validation,
            skew: config.skew,
            keys: Keys::new(config.keys.clone(), jobs),
            proved: SharedMap::default(),
        }
    }

    /// Fetches the keys, so that a wrong address is seen before the first caller comes.
    pub(super) async fn warm(&self) {
        if let Err(error) = self.keys.get().await {
            tracing::warn!(%error, "the keys of owner.jwt.jwks cannot be had yet; callers are refused until they can");
        }
    }

    /// The principal that `token` proves.
    pub(super) async fn verify(&self, token: &str) -> Result<Principal, Unproved> {
        if token.len() > LONGEST_TOKEN {
            return Err(Unproved::Token("the token is too long"));
        }
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let keys = self.keys.get().await.map_err(Unproved::NoKeys)?;
        if let Some(proved) = self.proved.get(&digest)
            && proved.generation == keys.generation()
            && now() < proved.until
        {
            return Ok(self.principal(proved.subject));
        }
        self.proved.remove(&digest);
        let header = decode_header(token).map_err(|_| Unproved::Token("the token is no signed JWT"))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(Unproved::Token("the token is signed by a method that is not taken here"));
        }
        let mut keys = keys;
        let found = match keys.find(&header) {
            Lookup::Found(found) => found,
            // The issuer may have changed its keys since they were fetched.
            Lookup::Unknown => {
                keys = self.keys.renewed(&keys).await.map_err(Unproved::NoKeys)?;
                keys.find(&header).or_unknown()?
            }
        };
        let mut checked = self.check(token, &header, &found);
        // The issuer may also have put another key in the place of one. A forged token waits for nobody.
        if let Err(WRONG_SIGNATURE) = checked
            && let Ok(fresh) = self.keys.renewed(&keys).await
            && fresh.generation() != keys.generation()
        {
            keys = fresh;
            checked = self.check(token, &header, &keys.find(&header).or_unknown()?);
        }
        self.accept(digest, checked.map_err(Unproved::Token)?, keys.generation())
    }

    /// What the token says, if one of these keys has signed it; or what is wrong with it.
    fn check(&self, token: &str, header: &Header, keys: &[DecodingKey]) -> Result<Claims, &'static str> {
        // One algorithm at a time: which family a key is of is checked against it.
        let validation = Validation { algorithms: vec![header.alg], ..self.validation.clone() };
        let mut refused = WRONG_SIGNATURE;
        for key in keys {
            match decode::<Claims>(token, key, &validation) {
                Ok(data) => return Ok(data.claims),
                Err(error) if matches!(error.kind(), ErrorKind::InvalidSignature) => {}
                Err(error) => refused = reason(error.kind()),
            }
        }
        Err(refused)
    }

    fn accept(&self, digest: [u8; 32], claims: Claims, generation: u64) -> Result<Principal, Unproved> {
        // The library also takes a list that has the issuer in it; a token has one (RFC 7519, 4.1.1).
        if !claims.iss.is_string() {
            return Err(Unproved::Token(MALFORMED_CLAIM));
        }
        if claims.sub.is_empty() || claims.sub.len() > LONGEST_SUBJECT {
            return Err(Unproved::Token("the token's subject is empty or too long"));
        }
        if self.proved.len() >= REMEMBERED {
            let now = now();
            self.proved.retain(|_, proved| proved.until > now);
        }
        if self.proved.len() < REMEMBERED && claims.exp.is_finite() && claims.exp > 0.0 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; a cast saturates")]
            let until = (claims.exp as u64).saturating_add(self.skew.as_secs());
            let subject = claims.sub.clone().into_boxed_str();
            self.proved.insert(digest, Proved { subject, until, generation });
        }
        Ok(self.principal(claims.sub.into()))
    }

    fn principal(&self, subject: Box<str>) -> Principal {
        Principal::Subject { issuer: self.issuer.as_str().into(), subject }
    }
}

/// What may be told of a token that was refused.
fn reason(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ExpiredSignature => "the token has expired",
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidIssuer => "the token is of another issuer",
        ErrorKind::InvalidAudience => "the token is for another audience",
        ErrorKind::MissingRequiredClaim(_) => "the token lacks one of exp, iss, aud and sub",
        ErrorKind::InvalidClaimFormat(_) => MALFORMED_CLAIM,
        ErrorKind::InvalidSignature => WRONG_SIGNATURE,
        _ => "the token cannot be used",
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("issuer", &self.issuer).field("keys", &self.keys).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
