//! `raincheck task forget`: takes out of the file what leads nowhere any more.

use std::collections::BTreeSet;

use super::super::call::{Common, Stop};
use super::super::client::{ClientError, Handle, Handles};
use super::super::{exit, terminal};
use super::{kept, origin, state};
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
    /// Servers that give no answer, which is no reason to ask them once for each handle.
    away: BTreeSet<String>,
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
    for server in &found.away {
        terminal::say(&format!("no answer from {}; its handles are kept", terminal::one_line(server, 120)));
    }
}
