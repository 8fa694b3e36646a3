//! What a server says on its error output: always drained, so that it never blocks on it, and logged.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::lines::{Line, Lines};

/// The last lines, to be shown when a server fails to start.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail {
    lines: Arc<Mutex<VecDeque<String>>>,
    /// All was read.
    whole: CancellationToken,
}

/// Characters of a line that are shown.
const SHOWN: usize = 400;
/// Bytes of a line that are read at once.
const READ: usize = 8 << 10;
/// Lines that are remembered.
const REMEMBERED: usize = 32;
/// How long the end of the error output is waited for.
const PATIENCE: Duration = Duration::from_millis(500);
/// Lines that are logged in a second.
const PER_SECOND: u32 = 50;

/// Reads everything and logs it under the server's name, until a moment after the server is `gone`: what it left running on
/// purpose may hold its error output for ever.
pub(super) async fn drain<R: AsyncRead + Unpin>(
    reader: R,
    server: Arc<str>,
    tail: Tail,
    gone: impl Future<Output = ()>,
) {
    let _whole = tail.whole.clone().drop_guard();
    let patience = async {
        gone.await;
        sleep(PATIENCE).await;
    };
    tokio::select! {
        () = read(reader, &server, &tail) => {}
        () = patience => {
            tracing::debug!(%server, "a process that it left behind holds its stderr, of which nothing more is read");
        }
    }
}

/// Reads to the end.
async fn read<R: AsyncRead + Unpin>(reader: R, server: &str, tail: &Tail) {
    let mut lines = Lines::new(reader, READ);
    let mut since = Instant::now();
    let (mut logged, mut dropped) = (0, 0_u64);
    loop {
        let line = match lines.next().await {
            Line::Whole(line) | Line::Rest(line) => shown(&line),
            Line::Growing => continue,
            Line::TooLong(_) => "(a line that is too long to be shown)".to_owned(),
            Line::End => break,
        };
        if line.is_empty() {
            continue;
        }
        if since.elapsed() >= Duration::from_secs(1) {
            if dropped > 0 {
                tracing::debug!(%server, dropped, "stderr: more lines than are logged in a second");
            }
            (since, logged, dropped) = (Instant::now(), 0, 0);
        }
        if logged < PER_SECOND {
            logged += 1;
            tracing::debug!(%server, "stderr: {line}");
        } else {
            dropped += 1;
        }
        tail.push(line);
    }
}

/// A line without control characters, cut to what is shown.
fn shown(line: &[u8]) -> String {
    let head = line.get(..SHOWN * 4).unwrap_or(line);
    let text = String::from_utf8_lossy(head);
    text.trim_end().chars().filter(|character| !character.is_control()).take(SHOWN).collect()
}

/// Of the last lines the one that says most: why npm gave up, or which error a program died of; else the last.
pub(super) fn telling(lines: &[String]) -> Option<&str> {
    let mut lines = lines.iter().map(String::as_str);
    let last = lines.clone().next_back()?;
    let npm =
        |line: &str| line.strip_prefix("npm error ").or_else(|| line.strip_prefix("npm ERR! ")).map(str::to_owned);
    if npm(last).is_some() {
        // It begins with where and with which code, and ends with where its log is.
        let says = |line: &&str| {
            npm(line).is_some_and(|said| {
                !matches!(said.split(' ').next(), Some("code" | "syscall" | "path" | "errno" | "dest"))
            })
        };
        return lines.find(says).or(Some(last));
    }
    if last.starts_with("Node.js v") {
        let is_error = |line: &&str| line.split([':', ' ']).next().is_some_and(|word| word.ends_with("Error"));
        return lines.find(is_error).or(Some(last));
    }
    Some(last)
}

impl Tail {
    fn push(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == REMEMBERED {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Resolves when nothing more can come, or when that has taken too long: a process may leave its error output to
    /// others.
    pub(super) async fn whole(&self) {
        let _ = timeout(PATIENCE, self.whole.cancelled()).await;
    }

    /// The last lines.
    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::io::AsyncWriteExt;

    use super::*;

    #[test]
    fn the_line_that_says_why_is_found() {
        let npm = "npm error code E404\nnpm error 404 Not Found - GET https://registry.npmjs.org/no-such\nnpm error 404\n\
                   npm error 404  The requested resource 'no-such@*' could not be found\n\
                   npm error A complete log of this run can be found in: /root/.npm/_logs/x.log";
        let open = "npm warn old\nnpm error code ENOENT\nnpm error syscall open\nnpm error path /x/package.json\n\
                    npm error errno -2\nnpm error enoent Could not read package.json\nnpm error A complete log";
        let node = "node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\nError: Cannot find module '/x.js'\n    \
                    at Function._load (node:internal)\n  code: 'MODULE_NOT_FOUND',\n}\nNode.js v22.1.0";
        let python =
            "Traceback (most recent call last):\n  File \"x.py\", line 1\nModuleNotFoundError: No module named 'y'";
        for (said, why) in [
            (npm, "npm error 404 Not Found - GET https://registry.npmjs.org/no-such"),
            (open, "npm error enoent Could not read package.json"),
            (node, "Error: Cannot find module '/x.js'"),
            (python, "ModuleNotFoundError: No module named 'y'"),
            ("npm error code E1", "npm error code E1"),
            ("Node.js v22.1.0", "Node.js v22.1.0"),
        ] {
            let lines: Vec<String> = said.lines().map(str::to_owned).collect();
            assert_eq!(telling(&lines), Some(why));
        }
        assert_eq!(telling(&[]), None);
    }

    #[tokio::test]
    async fn everything_is_drained_and_the_end_is_remembered_without_control_characters() {
        let mut text = "x\n".repeat(10_000).into_bytes();
        text.resize(text.len() + (1 << 20), b'y');
        text.extend_from_slice(b"\n\x1b[31mError: no\x1b[0m\r\n\xff\n");
        let tail = Tail::default();
        drain(text.as_slice(), "mock".into(), tail.clone(), pending()).await;
        let lines = tail.lines();
        assert_eq!(lines.len(), REMEMBERED);
        assert_eq!(lines[REMEMBERED - 2], "[31mError: no[0m");
        assert_eq!(lines[REMEMBERED - 3], "(a line that is too long to be shown)");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_by_others_is_let_go_a_moment_after_the_server() {
        let (reader, mut held) = tokio::io::duplex(64);
        held.write_all(b"last words\n").await.unwrap();
        let tail = Tail::default();
        timeout(PATIENCE * 2, drain(reader, "mock".into(), tail.clone(), ready(()))).await.unwrap();
        assert_eq!(tail.lines(), ["last words"]);
        assert!(held.write_all(b"more\n").await.is_err());
    }
}
