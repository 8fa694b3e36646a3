use std::time::Duration;

use futures_util::FutureExt as _;

use super::*;
use crate::config::{JwtConfig, KeySource, NamedToken};

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3));

fn identity(tokens: bool, allow_anonymous: bool, loopback: bool) -> Identity {
    let tokens = if tokens {
        vec![
            NamedToken { name: "ann".to_owned(), token: TokenProof::Plain("s3cret".to_owned()) },
            NamedToken { name: "bo".to_owned(), token: TokenProof::Sha256(Sha256::digest("other").into()) },
        ]
    } else {
        Vec::new()
    };
    Identity::new(
        OwnerConfig { from: OwnerSource::Authorization, tokens, jwt: None, allow_anonymous },
        loopback,
        &Jobs::new(),
    )
}

fn gateway(allow_anonymous: bool, trusted: &str) -> Identity {
    let trusted = Network { address: trusted.parse().unwrap(), prefix: 8 };
    let from = OwnerSource::Header { name: HeaderName::from_static("x-user"), trusted: vec![trusted] };
    Identity::new(OwnerConfig { from, tokens: Vec::new(), jwt: None, allow_anonymous }, true, &Jobs::new())
}

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    list.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
}

/// The principal, or the status of the refusal.
fn who(identity: &Identity, list: &[(&'static str, &str)]) -> Result<Principal, u16> {
    let mut map = HeaderMap::new();
    for (name, value) in list {
        map.append(HeaderName::from_static(name), value.parse().unwrap());
    }
    identity.of(&map, PEER).now_or_never().unwrap().map_err(|refusal| refusal.status().as_u16())
}

fn credential(text: &str) -> Principal {
    Principal::Credential(text.into())
}

/// Headers of a request.
type Sent<'a> = &'a [(&'static str, &'a str)];

#[test]
fn a_caller_is_who_its_authorization_says() {
    let open = identity(false, false, true);
    let cases: [(Sent<'_>, Result<Principal, u16>); 10] = [
        (&[], Ok(Principal::Local)),
        (&[("authorization", "")], Ok(Principal::Local)),
        (&[("authorization", "Bearer ")], Ok(Principal::Local)),
        (&[("authorization", "Bearer abc")], Ok(credential("Bearer abc"))),
        (&[("authorization", "bearer  abc")], Ok(credential("Bearer abc"))),
        (&[("authorization", "Basic dTpw")], Ok(credential("Basic dTpw"))),
        (&[("authorization", "Bearer a"), ("authorization", "Bearer b")], Err(401)),
        (&[("authorization", "Bearer a"), ("authorization", "Bearer a")], Err(401)),
        (&[("x-user", "ann")], Ok(Principal::Local)),
        (&[("authorization", "abc")], Ok(credential("abc"))),
    ];
    for (list, expected) in cases {
        assert_eq!(who(&open, list), expected, "{list:?}");
    }
}

#[test]
fn listed_tokens_stand_for_names_and_no_other_gets_in() {
    let closed = identity(true, false, true);
    assert_eq!(who(&closed, &[("authorization", "Bearer s3cret")]), Ok(Principal::Named("ann".into())));
    assert_eq!(who(&closed, &[("authorization", "bearer other")]), Ok(Principal::Named("bo".into())));
    for wrong in ["Bearer s3cre", "Bearer s3cret2", "Bearer S3cret", "Basic s3cret", "Bearer ", "s3cret"] {
        assert_eq!(who(&closed, &[("authorization", wrong)]), Err(401), "{wrong}");
    }
    assert_eq!(who(&closed, &[]), Err(401));
    assert_eq!(who(&identity(true, true, true), &[]), Ok(Principal::Anonymous));
    assert_eq!(who(&identity(true, true, true), &[("authorization", "Bearer no")]), Err(401));
}

#[test]
fn without_credentials_only_the_one_user_of_a_loopback_listener_is_let_in() {
    assert_eq!(who(&identity(false, false, false), &[]), Err(401));
    assert_eq!(who(&identity(false, true, false), &[]), Ok(Principal::Anonymous));
    assert_eq!(who(&identity(false, false, true), &[]), Ok(Principal::Local));
}

#[test]
fn a_gateways_header_is_believed_from_the_gateway_only() {
    assert_eq!(who(&gateway(false, "10.0.0.0"), &[("x-user", "ann")]), Ok(Principal::Named("ann".into())));
    assert_eq!(who(&gateway(true, "11.0.0.0"), &[("x-user", "ann")]), Err(403));
    assert_eq!(who(&gateway(false, "10.0.0.0"), &[("x-user", "ann"), ("x-user", "bo")]), Err(401));
    assert_eq!(who(&gateway(false, "10.0.0.0"), &[]), Err(401));
    assert_eq!(who(&gateway(false, "10.0.0.0"), &[("authorization", "Bearer ann")]), Err(401));
    assert_eq!(who(&gateway(true, "10.0.0.0"), &[]), Ok(Principal::Anonymous));
}

#[test]
fn who_comes_without_the_gateways_header_is_told_its_name_and_not_asked_for_a_token() {
    for sent in [&[][..], &[("x-user", "ann"), ("x-user", "bo")], &[("authorization", "Bearer ann")]] {
        let mut map = HeaderMap::new();
        for (name, value) in sent {
            map.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        let refusal = gateway(false, "10.0.0.0").of(&map, PEER).now_or_never().unwrap().unwrap_err();
        let says = refusal.error().message().to_owned();
        assert_eq!(refusal.error().raw().member("data").unwrap().member("header").unwrap().as_str(), "\"x-user\"");
        assert!(says.contains("the header x-user") && !says.contains("Authorization"), "{sent:?}: {says}");
        let response = refusal.into_response();
        assert_eq!((response.status().as_u16(), response.headers().get("www-authenticate")), (401, None), "{sent:?}");
    }
    let token = headers(&[("authorization", "Bearer wrong")]);
    let refusal = identity(true, false, true).of(&token, PEER).now_or_never().unwrap().unwrap_err();
    let says = refusal.error().message().to_owned();
    assert!(says.contains("not known here") && says.contains("owner.token"), "{says}");
    let response = refusal.into_response();
    let challenge = response.headers().get("www-authenticate").unwrap().to_str().unwrap();
    assert_eq!(challenge, format!("Bearer error=\"invalid_token\", error_description=\"{says}\""));
    for none in ["Basic s3cret", "Bearer "] {
        let refusal = identity(true, false, true).of(&headers(&[("authorization", none)]), PEER).now_or_never();
        let response = refusal.unwrap().unwrap_err().into_response();
        assert_eq!(response.headers().get("www-authenticate").unwrap(), "Bearer", "{none}");
    }
    let refusal = identity(true, false, true).of(&HeaderMap::new(), PEER).now_or_never().unwrap().unwrap_err();
    assert!(refusal.error().message().contains("Authorization: Bearer"));
    assert_eq!(refusal.into_response().headers().get("www-authenticate").unwrap(), "Bearer");
}

#[test]
fn what_is_passed_on_has_nothing_of_the_connection_or_of_mcp() {
    let sent = headers(&[
        ("authorization", "Bearer abc"),
        ("x-tenant", "t"),
        ("host", "localhost"),
        ("content-length", "7"),
        ("content-type", "application/json"),
        ("transfer-encoding", "chunked"),
        ("connection", "keep-alive, X-Hop"),
        ("x-hop", "1"),
        ("mcp-method", "tools/call"),
        ("mcp-param-region", "eu"),
        ("mcp-session-id", "1"),
        ("proxy-authorization", "Basic x"),
        ("accept", "*/*"),
        ("keep-alive", "timeout=5"),
        ("last-event-id", "7"),
    ]);
    let passed = identity(false, false, true).credentials(&sent);
    let mut names: Vec<_> = passed.headers().keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["authorization", "mcp-param-region", "x-tenant"]);
    let keys = KeySource::File("keys.json".into());
    let jwt = JwtConfig { issuer: "i".to_owned(), audience: vec!["a".to_owned()], keys, skew: Duration::ZERO };
    let from = OwnerSource::Authorization;
    let of_issuer = OwnerConfig { from, tokens: Vec::new(), jwt: Some(jwt), allow_anonymous: false };
    for ours in [identity(true, false, true), Identity::new(of_issuer, true, &Jobs::new())] {
        let passed = ours.credentials(&sent);
        assert!(!passed.headers().contains_key(AUTHORIZATION), "it is for Raincheck alone");
    }
}

#[test]
fn a_jwt_is_recognized() {
    let cases = [
        ("eyJhbGciOiJub25lIn0.e30.c2ln", true),
        ("eyJhbGciOiJub25lIn0.e30.", true),
        ("eyJhbGciOiJub25lIn0.e30", false),
        ("a.b.c", false),
        ("ghp_abcdef", false),
        ("eyJhbGciOiJub25lIn0.e30.c2ln.x", false),
    ];
    for (token, expected) in cases {
        assert_eq!(is_jwt(token), expected, "{token}");
    }
}
