//! The server for the one client on stdin and stdout (2026-07-28 and older revisions, stdio).
//!
//! One message a line, all on one channel: requests run at the same time, what belongs to them goes out between
//! the answers of others. The client is this machine's user.

mod ahead;
mod batch;
mod call;
mod connection;
mod in_flight;
mod legacy;
mod listen;
mod outbox;
mod refused;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use self::connection::{Connection, Ended};
use self::legacy::Legacy;
use self::outbox::Outbox;
use crate::config::Limits;
use crate::jobs::Jobs;
use crate::protocol::McpService;
use crate::upstream::lines::Lines;

/// The client side over stdio: one server, one client.
pub struct StdioFront<S> {
    server: Arc<str>,
    service: S,
    limits: Limits,
    left: CancellationToken,
}

/// For how long a client may take nothing when nothing runs any more.
const UNREAD: Duration = Duration::from_secs(3);

impl<S> StdioFront<S> {
    /// A front for the server of that name, whose calls `service` answers.
    pub fn new(server: &str, service: S, limits: Limits) -> Self {
        Self { server: server.into(), service, limits, left: CancellationToken::new() }
    }

    /// Told once the client has ended its input, or reads no more.
    pub fn left(&self) -> CancellationToken {
        self.left.clone()
    }
}

impl<S: McpService + Sync> StdioFront<S> {
    /// Serves the client that writes to `input` and reads from `output`, until the input ends, nobody reads the
    /// output any more (`gone` resolves, or a write fails), or [`Jobs::stop`] is called on `jobs`.
    ///
    /// Then `jobs` is stopped, once every request that was read is on its way; running calls may end within
    /// `grace`, unless there is nobody to answer to. Once `settled` resolves none is left, and the client is waited for no
    /// longer than it reads.
    pub async fn serve<R, W>(
        self,
        input: R,
        output: W,
        gone: impl Future<Output = ()>,
        jobs: Jobs,
        grace: Duration,
        settled: impl Future<Output = ()>,
    ) where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (writer, calls) = (Jobs::new(), jobs.child());
        let (outbox, queue) = Outbox::new(self.limits.line, self.left(), calls.clone());
        writer.spawn("stdout", queue.write_to(output));
        let lines = Lines::new(input, self.limits.body);
        let (outgoing, left) = (outbox.clone(), self.left());
        let connection = Connection::new(self, outbox, calls.clone());
        let served = async move {
            let mut session = Legacy::default();
            let ended = connection.read(lines, &mut session).await;
            if !matches!(ended, Ended::Stopped) {
                left.cancel();
            }
            tracing::debug!(?ended, "nothing more is read");
            session.hang_up();
            connection.finish(&calls, grace, settled, || jobs.stop()).await;
            // Without its session a legacy client's calls would have ended at once.
            drop(session);
        };
        {
            let mut served = pin!(served);
            tokio::select! {
                () = served.as_mut() => {}
                () = gone => {
                    outgoing.close();
                    served.await;
                }
            }
        }
        let progress = outgoing.progress();
        drop(outgoing);
        tokio::select! {
            () = writer.idle() => {}
            () = progress.stalled(UNREAD) => tracing::info!("the client left its last answers unread"),
        }
    }
}

impl<S> fmt::Debug for StdioFront<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdioFront").field("server", &self.server).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;
    use crate::protocol::{Call, Json, Outcome, Reply};

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Serves a client that ends its input, or one that does nothing, until `jobs` are stopped; whether it is said to have left.
    async fn has_left(ends_its_input: bool, jobs: Jobs) -> bool {
        let service = tower::service_fn(|_: Call| {
            ready(Ok::<_, Infallible>(Reply::ready(Outcome::Result(Json::empty_object()))))
        });
        let front = StdioFront::new("s", service, Limits::default());
        let left = front.left();
        assert!(!left.is_cancelled());
        let ((near, far), (output, _reader)) = (tokio::io::duplex(64), tokio::io::duplex(64));
        let _open = (!ends_its_input).then_some(far);
        let served = front.serve(near, output, pending(), jobs, Duration::from_secs(1), ready(()));
        timeout(PATIENCE, served).await.unwrap();
        left.is_cancelled()
    }

    #[tokio::test]
    async fn a_client_that_ends_its_input_has_left_and_one_that_is_stopped_has_not() {
        assert!(has_left(true, Jobs::new()).await);
        let stopped = Jobs::new();
        stopped.stop();
        assert!(!has_left(false, stopped).await);
    }

    /// It ends its input when it has half of the answers.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_late_and_slowly_gets_every_answer_and_is_taken_no_more_from_than_it_reads() {
        const LINES: usize = 4000;
        let service = tower::service_fn(|_: Call| {
            ready(Ok::<_, Infallible>(Reply::ready(Outcome::Result(Json::empty_object()))))
        });
        let front = StdioFront::new("s", service, Limits::default());
        let left = front.left();
        let ((near, mut far), (output, reader)) = (tokio::io::duplex(4096), tokio::io::duplex(4096));
        let has_ended = AtomicBool::new(false);
        let served = async {
            front.serve(near, output, pending(), Jobs::new(), Duration::from_hours(1), ready(())).await;
            has_ended.store(true, Ordering::Relaxed);
        };
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{}\",\"method\":\"tools/list\"}}\n", "q".repeat(1000));
        let (half_read, may_end) = oneshot::channel();
        let written = AtomicUsize::new(0);
        let writing = async {
            for _ in 0..LINES {
                far.write_all(line.as_bytes()).await.unwrap();
                written.fetch_add(line.len(), Ordering::Relaxed);
            }
            may_end.await.unwrap();
            drop(far);
        };
        let reading = async {
            tokio::time::sleep(Duration::from_mins(1)).await;
            let taken = written.load(Ordering::Relaxed);
            assert!(taken < 2 << 20 && !left.is_cancelled(), "{taken}");
            let (mut answers, mut half_read) = (BufReader::new(reader).lines(), Some(half_read));
            let mut count = 0;
            while let Some(answer) = answers.next_line().await.unwrap() {
                assert!(answer.contains("initialize"), "{answer}");
                count += 1;
                // The last few are in the pipe.
                assert!(count > LINES - 16 || !has_ended.load(Ordering::Relaxed), "not waited for: {count}");
                if count == LINES / 2 {
                    half_read.take().unwrap().send(()).unwrap();
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            assert_eq!(count, LINES);
        };
        tokio::join!(served, writing, reading);
    }
}
