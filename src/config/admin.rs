//! `[admin]`: the operators' side.

use std::net::SocketAddr;

use super::owner;
use super::reader::{Reader, Section};
use super::run::{AdminConfig, Listen};

/// Whether two listeners cannot be had side by side, since one of them has its port on every address. `[::]` takes those of
/// IPv4 too.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let takes = |all: SocketAddr, one: SocketAddr| all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    one.port() == other.port() && one.port() != 0 && (takes(one, other) || takes(other, one))
}

pub(super) fn read<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>, listen: &Listen) -> Option<AdminConfig> {
    let http: Option<SocketAddr> = section.get(reader, "http");
    let says_token = ["token", "token_env", "token_file", "sha256"].into_iter().any(|key| section.has(reader, key));
    if section.has(reader, "token") {
        // Where it comes from there, it is not for the servers behind.
        let _ = reader.variable("RAINCHECK_ADMIN_TOKEN");
    }
    let token = says_token.then(|| owner::proof(reader, section)).flatten();
    let Some(http) = http else {
        if says_token && !section.has(reader, "http") {
            section.fault(reader, "http", "is missing: the address for operators, such as \"127.0.0.1:8081\"");
        }
        return None;
    };
    if http == listen.http && http.port() != 0 {
        section.fault(reader, "http", "is the address of listen.http; operators need another");
    } else if collide(http, listen.http) {
        let message =
            format!("listen.http = \"{}\" takes this port on every address; operators need another", listen.http);
        let clash = if listen.http.ip().is_unspecified() {
            message
        } else {
            format!(
                "takes this port on every address, that of listen.http ({}) too; operators need another",
                listen.http
            )
        };
        section.fault(reader, "http", clash);
    }
    if !says_token && !http.ip().is_loopback() {
        let message = format!(
            "{http} can be reached from other machines, where whoever comes could stop every task: set admin.token_env \
             (or token_file, sha256, token), or bind to 127.0.0.1"
        );
        section.fault(reader, "http", message);
    }
    Some(AdminConfig { http, token })
}
