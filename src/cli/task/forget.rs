//! `raincheck task forget`: takes out of the file what leads nowhere any more.

use std::collections::BTreeSet;

use http::StatusCode;

use super::super::call::{Common, Stop};
use super::super::client::{ClientError, Handle, Handles};
use super::super::{exit, terminal};
use super::{is_at, kept, origin, state};
use crate::protocol::error::code;

/// Which handles are forgotten.
#[derive(Clone, Copy)]
pub(super) struct Which {
    /// Those of tasks that have ended.
    pub(super) ended: bool,
    /// Those that their servers do not know.
    pub(super) unknown: bool,
}

/// What became of the tasks.
#[derive(Default)]
struct Found {
    forgotten: Vec<Handle>,
    kept: usize,
    unknown: usize,
    /// Kept since the server tells nobody without credentials.
    refused: usize,
    /// Servers that give no answer, which is no reason to ask them once for each handle.
    away: BTreeSet<String>,
}

/// Forgets what leads to a server that is gone.
pub(super) fn server(url: &str) -> Result<u8, Stop> {
    let handles = Handles::of_user().map_err(Stop::failure)?;
    let all = handles.newest(usize::MAX).map_err(Stop::failure)?;
    let (gone, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|handle| is_at(&handle.url, url));
    if !gone.is_empty() {
        handles.forget(&gone).map_err(Stop::failure)?;
    }
    say(&Found { forgotten: gone, kept: kept.len(), ..Found::default() });
    Ok(exit::OK)
}

/// Whether a server tells nobody without (other) credentials.
fn wants_credentials(error: &ClientError) -> bool {
    match error {
        ClientError::Status { status, .. } => matches!(*status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN),
        ClientError::Rpc(error) => {
            let data = error.raw().member("data");
            let reason = data.and_then(|data| data.member("reason")?.read::<String>().ok());
            reason.as_deref() == Some("unauthorized")
        }
        _ => false,
    }
}

/// Asks after every handle, and forgets those that are meant.
pub(super) async fn all(which: Which, url: Option<&str>, common: &Common) -> Result<u8, Stop> {
    let mut found = Found::default();
    for handle in kept(usize::MAX, url, common)? {
        let server = origin(&handle.url);
        if found.away.contains(&server) {
            found.kept += 1;
            continue;
        }
        let is_meant = match state(&handle, common).await? {
            Ok(task) => which.ended && task.is_terminal(),
            Err(ClientError::Rpc(error)) if error.code() == code::INVALID_PARAMS => {
                found.unknown += usize::from(!which.unknown);
                which.unknown
            }
            Err(error) => {
                found.refused += usize::from(wants_credentials(&error));
                if error.is_passing() {
                    found.away.insert(server);
                }
                false
            }
        };
        if is_meant {
            found.forgotten.push(handle);
        } else {
            found.kept += 1;
        }
    }
    if !found.forgotten.is_empty() {
        Handles::of_user().and_then(|handles| handles.forget(&found.forgotten)).map_err(Stop::failure)?;
    }
    say(&found);
    Ok(exit::OK)
}

fn say(found: &Found) {
    let handles = |count: usize, what: &str| match count {
        1 => format!("1 handle is {what}"),
        many => format!("{many} handles are {what}"),
    };
    terminal::say(&format!("{}, {}", handles(found.forgotten.len(), "forgotten"), handles(found.kept, "kept")));
    if found.unknown > 0 {
        let unknown = handles(found.unknown, "kept that the server does not know");
        terminal::say(&format!("{unknown}: expired (--unknown forgets them too), or made with other headers (-H)"));
    }
    if found.refused > 0 {
        let refused = handles(found.refused, "kept that the server tells nobody of without credentials");
        terminal::say(&format!("{refused}: give them with -H 'Authorization: Bearer ...'"));
    }
    for server in &found.away {
        let server = terminal::one_line(server, 120);
        terminal::say(&format!("no answer from {server}; its handles are kept (--server {server} forgets them)"));
    }
}
