use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::config::KeySource;

// Keys made for these tests alone (PKCS #8 and PKCS #1, DER, Base64).
const EC_A: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgBN6dpTTEvzpEW2p9gsXKlse3CsGcPAJbZA2EeTRmCQGhRANCAARkH8ONffGEJUHfWEVW3u1LWdeePsleRXbW8Pw6N0RWiCJ7+uRRTDd54KLKrZjU5sHPOVe8Z8alDNZgFKFxuv8M";
const EC_B: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg8JBJs/Hv1/5LR2wuvHhINfllAOZuv/JmC2kwNOVaWOOhRANCAASfhxqgzKM6XKeNdSDfkp7f6JygcXFvj0vOgTjokYLmgxuJFE2vcIlKAFvXWQgGsjZqT6Eo3HAJCLTXrATpwsSk";
const ED: &str = "MC4CAQAwBQYDK2VwBCIEIK6UeisqNJroFkn31UH3lQcDp9TDphgji806NmMQtwGG";
const RSA: &str = include_str!("test_rsa_key.txt");

/// A private key of the issuer, under the name that it has in the key set.
struct Signer(&'static str, Algorithm, EncodingKey);

fn signer(id: &'static str, algorithm: Algorithm) -> Signer {
    let der = |text: &str| data_encoding::BASE64.decode(text.trim().as_bytes()).unwrap();
    let key = match (id, algorithm) {
        ("b", _) => EncodingKey::from_ec_der(&der(EC_B)),
        (_, Algorithm::ES256) => EncodingKey::from_ec_der(&der(EC_A)),
        (_, Algorithm::EdDSA) => EncodingKey::from_ed_der(&der(ED)),
        _ => EncodingKey::from_rsa_der(&der(RSA)),
    };
    Signer(id, algorithm, key)
}

impl Signer {
    fn public(&self) -> Jwk {
        let mut jwk = Jwk::from_encoding_key(&self.2, self.1).unwrap();
        jwk.common.key_id = Some(self.0.to_owned());
        jwk
    }

    fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.0.to_owned()), ..Header::new(self.1) };
        encode(&header, claims, &self.2).unwrap()
    }
}

fn key_set(signers: &[&Signer]) -> String {
    json!({ "keys": signers.iter().map(|signer| signer.public()).collect::<Vec<_>>() }).to_string()
}

fn claims(change: impl FnOnce(&mut Value)) -> Value {
    let mut claims = json!({ "iss": "https://issuer/", "aud": "raincheck", "sub": "ann", "exp": now() + 600 });
    change(&mut claims);
    claims
}

fn verifier(keys: KeySource) -> Verifier {
    let audience = vec!["raincheck".to_owned(), "other".to_owned()];
    let issuer = "https://issuer/".to_owned();
    Verifier::new(&JwtConfig { issuer, audience, keys, skew: Duration::from_secs(30) }, Jobs::new())
}

/// What is done in the background is done.
async fn renewed(verifier: &Verifier) {
    verifier.keys.jobs().idle().await;
}

/// A verifier that reads its keys from a file, and the file.
fn from_file(keys: &str) -> (tempfile::TempDir, PathBuf, Verifier) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.json");
    std::fs::write(&path, keys).unwrap();
    let verifier = verifier(KeySource::File(path.clone()));
    (directory, path, verifier)
}

fn subject(name: &str) -> Principal {
    Principal::Subject { issuer: "https://issuer/".into(), subject: name.into() }
}

async fn why(verifier: &Verifier, token: &str) -> &'static str {
    match verifier.verify(token).await {
        Ok(_) => "taken",
        Err(Unproved::Token(why)) => why,
        Err(Unproved::NoKeys(_)) => "no keys",
    }
}

#[tokio::test]
async fn a_signed_token_proves_issuer_and_subject_by_every_kind_of_key() {
    let kinds = [Algorithm::ES256, Algorithm::EdDSA, Algorithm::RS256, Algorithm::PS256];
    for algorithm in kinds {
        let signer = signer("a", algorithm);
        let (_directory, _, verifier) = from_file(&key_set(&[&signer]));
        let token = signer.sign(&claims(|_| {}));
        for _ in 0..2 {
            assert_eq!(verifier.verify(&token).await.unwrap(), subject("ann"), "{algorithm:?}");
        }
        // Also where the token names no key.
        let header = Header::new(algorithm);
        let token = encode(&header, &claims(|claims| claims["sub"] = "bo".into()), &signer.2).unwrap();
        assert_eq!(verifier.verify(&token).await.unwrap(), subject("bo"), "{algorithm:?}");
    }
}

#[tokio::test]
async fn a_token_that_is_wrong_in_any_way_is_refused_with_the_reason() {
    let (a, b) = (signer("a", Algorithm::ES256), signer("b", Algorithm::ES256));
    let (_directory, _, verifier) = from_file(&key_set(&[&a]));
    let cases: [(&str, Value); 13] = [
        ("taken", claims(|claims| claims["aud"] = json!(["x", "other"]))),
        ("taken", claims(|claims| claims["exp"] = (now() - 20).into())),
        ("the token has expired", claims(|claims| claims["exp"] = (now() - 40).into())),
        ("taken", claims(|claims| claims["nbf"] = (now() + 20).into())),
        ("the token is not valid yet", claims(|claims| claims["nbf"] = (now() + 60).into())),
        ("the token is of another issuer", claims(|claims| claims["iss"] = "https://issuer".into())),
        ("the token is for another audience", claims(|claims| claims["aud"] = "raincheck2".into())),
        ("the token is for another audience", claims(|claims| claims["aud"] = json!([]))),
        ("the token lacks one of exp, iss, aud and sub", claims(|claims| claims["iss"] = Value::Null)),
        ("one of exp, nbf, iss, aud and sub is malformed", claims(|claims| claims["iss"] = json!(["https://issuer/"]))),
        ("the token's subject is empty or too long", claims(|claims| claims["sub"] = "".into())),
        ("the token's subject is empty or too long", claims(|claims| claims["sub"] = "x".repeat(1025).into())),
        ("the token cannot be used", claims(|claims| claims["sub"] = 7.into())),
    ];
    for (expected, claims) in cases {
        assert_eq!(why(&verifier, &a.sign(&claims)).await, expected, "{claims}");
    }
    for missing in ["exp", "aud", "sub"] {
        let token = a.sign(&claims(|claims| drop(claims.as_object_mut().unwrap().remove(missing))));
        assert_ne!(why(&verifier, &token).await, "taken", "{missing}");
    }
    // Signed by somebody else under the name of the issuer's key.
    let forged = encode(&Header { kid: Some("a".to_owned()), ..Header::new(b.1) }, &claims(|_| {}), &b.2).unwrap();
    assert_eq!(why(&verifier, &forged).await, "the signature is wrong");
    assert_eq!(why(&verifier, &b.sign(&claims(|_| {}))).await, "the token is signed by a key that is not known");
    let good = a.sign(&claims(|_| {}));
    assert_eq!(why(&verifier, &good).await, "taken");
    let (body, signature) = good.rsplit_once('.').unwrap();
    let bent = format!("{body}.{}", signature.chars().rev().collect::<String>());
    assert_ne!(why(&verifier, &bent).await, "taken");
    assert_eq!(why(&verifier, &format!("{body}.")).await, "the signature is wrong");
    for garbage in ["", ".", "..", "a.b.c", "e30.e30.e30", &"x".repeat(LONGEST_TOKEN + 1)] {
        assert_ne!(why(&verifier, garbage).await, "taken");
    }
}

/// RFC 7517, 5, and RFC 7518, 3.3.
#[tokio::test]
async fn members_of_a_key_set_that_are_of_no_use_are_passed_over() {
    let good = signer("a", Algorithm::ES256);
    let rsa = serde_json::to_value(signer("r", Algorithm::RS256).public()).unwrap();
    let short = |rsa: &Value| {
        let mut short = rsa.clone();
        let modulus = data_encoding::BASE64URL_NOPAD.decode(rsa["n"].as_str().unwrap().as_bytes()).unwrap();
        short["n"] = data_encoding::BASE64URL_NOPAD.encode(&modulus[..128]).into();
        short
    };
    let with = |name: &str, value: Value| {
        let mut key = serde_json::to_value(good.public()).unwrap();
        (key["kid"], key[name]) = ("other".into(), value);
        key
    };
    let useless = [
        Value::Null,
        "key".into(),
        json!({}),
        short(&rsa),
        with("kid", 7.into()),
        with("key_ops", json!(["sign"])),
        with("use", "enc".into()),
        with("kty", "XY".into()),
    ];
    for useless in &useless {
        let (_directory, _, verifier) = from_file(&json!({ "keys": [useless] }).to_string());
        let refused = why(&verifier, &good.sign(&claims(|_| {}))).await;
        assert_eq!(refused, "the token is signed by a key that is not known", "{useless}");
        assert!(verifier.keys.get().await.unwrap().is_empty(), "{useless}");
    }
    let all: Vec<_> = useless.into_iter().chain([serde_json::to_value(good.public()).unwrap()]).collect();
    let (_directory, _, verifier) = from_file(&json!({ "keys": all }).to_string());
    assert_eq!(why(&verifier, &good.sign(&claims(|_| {}))).await, "taken");
    for useful in [rsa, with("key_ops", json!(["verify"]))] {
        let (_directory, _, verifier) = from_file(&json!({ "keys": [useful] }).to_string());
        assert!(!verifier.keys.get().await.unwrap().is_empty());
    }
}

/// The public key is known to all, so a token that is signed with it as a shared secret is anybody's (RFC 8725, 2.1).
#[tokio::test]
async fn a_token_cannot_choose_how_it_is_checked() {
    let (ec, rsa) = (signer("a", Algorithm::ES256), signer("r", Algorithm::RS256));
    let keys = key_set(&[&ec, &rsa]);
    let (_directory, _, verifier) = from_file(&keys);
    for id in ["a", "r"] {
        let secret = serde_json::to_vec(&ec.public()).unwrap();
        let header = Header { kid: Some(id.to_owned()), ..Header::new(Algorithm::HS256) };
        let token = encode(&header, &claims(|_| {}), &EncodingKey::from_secret(&secret).unwrap()).unwrap();
        assert_eq!(why(&verifier, &token).await, "the token is signed by a method that is not taken here");
        // Another kind of key under a name that is there.
        let header = Header { kid: Some(id.to_owned()), ..Header::new(Algorithm::EdDSA) };
        let token = encode(&header, &claims(|_| {}), &signer("e", Algorithm::EdDSA).2).unwrap();
        assert_eq!(why(&verifier, &token).await, "the token is signed by a key that is not known");
    }
    // The key says what it is for.
    let header = Header { kid: Some("r".to_owned()), ..Header::new(Algorithm::PS256) };
    let token = encode(&header, &claims(|_| {}), &rsa.2).unwrap();
    assert_eq!(why(&verifier, &token).await, "the token is signed by a key that is not known");
    let none = format!(
        "{}.{}.",
        data_encoding::BASE64URL_NOPAD.encode(br#"{"alg":"none","typ":"JWT"}"#),
        data_encoding::BASE64URL_NOPAD.encode(claims(|_| {}).to_string().as_bytes())
    );
    assert_ne!(why(&verifier, &none).await, "taken");
}

#[tokio::test(start_paused = true)]
async fn new_keys_are_found_and_tokens_of_old_ones_end_with_them() {
    let (a, b) = (signer("a", Algorithm::ES256), signer("b", Algorithm::ES256));
    let (_directory, path, verifier) = from_file(&key_set(&[&a]));
    let (old, new) = (a.sign(&claims(|_| {})), b.sign(&claims(|_| {})));
    let publish = async |signers: &[&Signer]| {
        std::fs::write(&path, key_set(signers)).unwrap();
        // What was fetched in this very moment would be taken for what is there now.
        tokio::time::advance(Duration::from_millis(1)).await;
    };
    let made_up = signer("made up", Algorithm::ES256).sign(&claims(|_| {}));
    assert_eq!(why(&verifier, &old).await, "taken");
    tokio::time::advance(Duration::from_millis(1)).await;
    // A key id that somebody has made up holds nobody up.
    assert_eq!(why(&verifier, &made_up).await, "the token is signed by a key that is not known");
    publish(&[&b]).await;
    assert_eq!(why(&verifier, &new).await, "taken");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(why(&verifier, &old).await, "the token is signed by a key that is not known");
    // But many must not become a load on the issuer; then nobody can say.
    publish(&[&a, &b]).await;
    assert_eq!(why(&verifier, &made_up).await, "no keys");
    assert_eq!(why(&verifier, &old).await, "no keys");
    assert_eq!(why(&verifier, &new).await, "taken");
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(why(&verifier, &old).await, "taken");
    tokio::time::advance(Duration::from_mins(1)).await;
    // A key of the same name that is another.
    let other = Signer("b", Algorithm::ES256, signer("a", Algorithm::ES256).2);
    publish(&[&other]).await;
    assert_eq!(why(&verifier, &new).await, "taken");
    assert_eq!(why(&verifier, &other.sign(&claims(|_| {}))).await, "taken");
    assert_eq!(why(&verifier, &new).await, "the signature is wrong");
    publish(&[&b]).await;
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(why(&verifier, &new).await, "taken");
    publish(&[&other]).await;
    tokio::time::advance(Duration::from_secs(601)).await;
    // Nobody waits for the issuer while there are keys: they are renewed in the background.
    assert_eq!(why(&verifier, &new).await, "taken");
    renewed(&verifier).await;
    assert_eq!(why(&verifier, &new).await, "the signature is wrong");
}

#[tokio::test(start_paused = true)]
async fn keys_are_used_for_a_day_while_the_issuer_is_away_and_no_longer() {
    let a = signer("a", Algorithm::ES256);
    let (_directory, path, verifier) = from_file(&key_set(&[&a]));
    let token = a.sign(&claims(|_| {}));
    assert_eq!(why(&verifier, &token).await, "taken");
    std::fs::remove_file(&path).unwrap();
    tokio::time::advance(Duration::from_hours(23)).await;
    assert_eq!(why(&verifier, &token).await, "taken");
    renewed(&verifier).await;
    tokio::time::advance(Duration::from_hours(2)).await;
    assert_eq!(why(&verifier, &token).await, "no keys");
    std::fs::write(&path, key_set(&[&a])).unwrap();
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(why(&verifier, &token).await, "taken");
}

/// Whether or not there are keys, an issuer that fails is let be for a while.
#[tokio::test(start_paused = true)]
async fn after_a_fetch_that_failed_the_issuer_is_let_be_for_ten_seconds() {
    let (a, b) = (signer("a", Algorithm::ES256), signer("b", Algorithm::ES256));
    let (_directory, path, verifier) = from_file("no key set");
    let (token, new) = (a.sign(&claims(|_| {})), b.sign(&claims(|_| {})));
    assert_eq!(why(&verifier, &token).await, "no keys");
    std::fs::write(&path, key_set(&[&a])).unwrap();
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_eq!(why(&verifier, &token).await, "no keys");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(why(&verifier, &token).await, "taken");
    tokio::time::advance(Duration::from_mins(1)).await;
    std::fs::write(&path, "no key set").unwrap();
    assert_eq!(why(&verifier, &new).await, "no keys");
    std::fs::write(&path, key_set(&[&a, &b])).unwrap();
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_eq!(why(&verifier, &new).await, "no keys");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(why(&verifier, &new).await, "taken");
}

/// Serves one answer to everybody, and counts.
async fn issuer(answer: String) -> (KeySource, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    crate::jobs::Jobs::new().spawn("issuer", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (KeySource::Url(url.parse().unwrap()), asked)
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn a_crowd_of_callers_asks_the_issuer_once() {
    let a = signer("a", Algorithm::ES256);
    let (source, asked) = issuer(answer("200 OK", &key_set(&[&a]))).await;
    let verifier = verifier(source);
    let tokens: Vec<String> =
        (0..20).map(|n| a.sign(&claims(|claims| claims["sub"] = format!("u{n}").into()))).collect();
    let all = futures_util::future::join_all(tokens.iter().map(|token| why(&verifier, token))).await;
    assert!(all.iter().all(|why| *why == "taken"));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_is_no_key_set_lets_nobody_in() {
    let a = signer("a", Algorithm::ES256);
    let token = a.sign(&claims(|_| {}));
    let huge = format!("{}{}", " ".repeat(300 << 10), key_set(&[&a]));
    for bad in [
        answer("404 Not Found", &key_set(&[&a])),
        answer("302 Found", &key_set(&[&a])),
        answer("200 OK", "<html>"),
        answer("200 OK", r#"{"keys":7}"#),
        answer("200 OK", &huge),
        String::new(),
    ] {
        let (source, _) = issuer(bad.clone()).await;
        assert_eq!(why(&verifier(source), &token).await, "no keys", "{}", &bad[..bad.len().min(80)]);
    }
    let shared = json!({ "keys": [{ "kty": "oct", "kid": "a", "k": "c2VjcmV0" }] }).to_string();
    let (source, _) = issuer(answer("200 OK", &shared)).await;
    assert_eq!(why(&verifier(source), &token).await, "the token is signed by a key that is not known");
}

#[tokio::test]
async fn a_token_that_was_proved_before_is_refused_once_it_has_expired() {
    let a = signer("a", Algorithm::ES256);
    let (_directory, _path, verifier) = from_file(&key_set(&[&a]));
    let expired = a.sign(&claims(|claims| claims["exp"] = (now() - 60).into()));
    let digest = Sha256::digest(expired.as_bytes()).into();
    let generation = verifier.keys.get().await.unwrap().generation();
    // As it was remembered in its time.
    verifier.proved.insert(digest, Proved { subject: "ann".into(), until: now() - 30, generation });
    assert!(matches!(verifier.verify(&expired).await, Err(Unproved::Token("the token has expired"))));
}
