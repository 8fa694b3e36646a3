//! What goes out: one line a message, through one bounded queue.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::refused;
use crate::front::sse;
use crate::jobs::Jobs;
use crate::protocol::reply::Delivery;
use crate::protocol::{RequestId, Rope};

/// Where messages for the client are put. Clones share the queue.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    queue: mpsc::Sender<Item>,
    closed: CancellationToken,
    /// Cancelled when nobody waits for answers any more: what has no place then is dropped.
    cut: CancellationToken,
    /// Cancelled when the client has ended its input.
    left: CancellationToken,
    /// Answers for which the reading does not wait.
    late: Jobs,
    /// Bytes that were written.
    written: Arc<AtomicU64>,
    /// Bytes of a line that the client takes.
    longest: usize,
}

/// Bytes that the client has taken.
#[derive(Debug)]
pub(super) struct Progress(Arc<AtomicU64>);

/// The other end, which writes.
#[derive(Debug)]
pub(super) struct Queue {
    items: mpsc::Receiver<Item>,
    closed: CancellationToken,
    written: Arc<AtomicU64>,
}

/// A place in the queue.
#[derive(Debug)]
pub(super) struct Place<'a>(mpsc::Permit<'a, Item>);

/// One message, and the handle in it, if there is one.
#[derive(Debug)]
struct Item {
    text: Rope,
    handle: Option<Delivery>,
}

/// Messages that wait. Answers wait for a place; they are held by their calls anyway.
const WAITING: usize = 64;
/// Places among them that progress and logs leave free.
const RESERVED: usize = 32;
/// Bytes that are written at once, where several messages wait.
const JOINED: usize = 64 << 10;
/// So much of an answer is written at a time.
const PIECE: usize = 16 << 10;

impl Outbox {
    /// An empty queue, for a client that takes lines of up to `longest` bytes. `left` is cancelled when that has ended
    /// its input; answers that come too late to be waited for by whoever reads it are jobs of `late`.
    pub(super) fn new(longest: usize, left: CancellationToken, late: Jobs) -> (Self, Queue) {
        let (queue, items) = mpsc::channel(WAITING);
        let (closed, cut, written) = (CancellationToken::new(), CancellationToken::new(), Arc::default());
        let outbox = Self { queue, closed: closed.clone(), cut, left, late, written: Arc::clone(&written), longest };
        (outbox, Queue { items, closed, written })
    }

    /// Sends what keeps the next line of the client waiting, so that a client that does not read is not read either.
    /// Once that has ended its input there is little more to come, and nothing is gained by waiting: then a job does.
    pub(super) async fn tell(&self, text: Rope) {
        let place = tokio::select! {
            biased;
            place = self.place() => place,
            () = self.left.cancelled() => {
                let outbox = self.clone();
                self.late.spawn("answer", async move { outbox.send(text).await });
                return;
            }
        };
        if let Some(place) = place {
            place.send(text, None);
        }
    }

    /// Sends a message, once there is a place for it; dropped if nobody reads any more, or waits for it.
    pub(super) async fn send(&self, text: Rope) {
        if let Some(place) = self.place().await {
            place.send(text, None);
        }
    }

    /// Waits for a place; `None` if nobody reads any more, or nobody waits for answers and there is none now.
    pub(super) async fn place(&self) -> Option<Place<'_>> {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => None,
            place = self.queue.reserve() => place.ok().map(Place),
            () = self.cut.cancelled() => None,
        }
    }

    /// The answer to the request `id`, or what is said in its place if it is too long for the client.
    pub(super) fn fitting(&self, id: &RequestId, text: Rope) -> Rope {
        let length = text.len();
        if length <= self.longest {
            return text;
        }
        tracing::warn!(length, limit = self.longest, "an answer is too long for the client (limits.line)");
        refused::too_long_to_send(id, length, self.longest)
    }

    /// Sends a message that may be dropped when the client is behind, or when it is too long for it.
    pub(super) fn offer(&self, text: Rope) {
        if text.len() <= self.longest && self.queue.capacity() > RESERVED {
            let _ = self.queue.try_send(Item { text, handle: None });
        }
    }

    /// Nobody reads any more.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    /// To be cancelled when nobody waits for answers any more.
    pub(super) fn cut(&self) -> &CancellationToken {
        &self.cut
    }

    /// To be cancelled when the client has ended its input.
    pub(super) fn left(&self) -> &CancellationToken {
        &self.left
    }

    /// What the client takes.
    pub(super) fn progress(&self) -> Progress {
        Progress(Arc::clone(&self.written))
    }

    /// Resolves when nobody reads any more.
    pub(super) fn closed(&self) -> impl Future<Output = ()> + '_ {
        self.closed.cancelled()
    }
}

impl Progress {
    /// Resolves when the client has taken nothing for this long.
    pub(super) async fn stalled(&self, patience: Duration) {
        loop {
            let before = self.0.load(Ordering::Relaxed);
            tokio::time::sleep(patience).await;
            if self.0.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }
}

impl Place<'_> {
    /// Sends a message; `handle` learns when its last byte is out, or that it never will be.
    pub(super) fn send(self, text: Rope, handle: Option<Delivery>) {
        self.0.send(Item { text, handle });
    }
}

impl Queue {
    /// Writes until the last [`Outbox`] is gone, or nobody reads any more.
    pub(super) async fn write_to<W: AsyncWrite + Unpin>(mut self, mut output: W) {
        let closed = self.closed.clone();
        tokio::select! {
            () = closed.cancelled() => {}
            written = self.write_all(&mut output) => if let Err(error) = written {
                tracing::info!(%error, "the client reads no more");
                self.closed.cancel();
            }
        }
    }

    async fn write_all<W: AsyncWrite + Unpin>(&mut self, output: &mut W) -> std::io::Result<()> {
        let mut waiting = Vec::new();
        while self.items.recv_many(&mut waiting, WAITING).await > 0 {
            let mut joined = Vec::new();
            let mut handles = Vec::new();
            for Item { text, handle } in waiting.drain(..) {
                handles.extend(handle);
                for piece in text.into_pieces().into_iter().map(sse::single_line).chain([LINE_END]) {
                    if joined.len() + piece.len() <= JOINED {
                        joined.extend_from_slice(&piece);
                        continue;
                    }
                    self.put(output, &joined).await?;
                    joined.clear();
                    self.put(output, &piece).await?;
                }
            }
            self.put(output, &joined).await?;
            output.flush().await?;
            handles.into_iter().for_each(Delivery::delivered);
        }
        Ok(())
    }

    /// Writes in pieces, so that it shows that a client takes them.
    async fn put<W: AsyncWrite + Unpin>(&self, output: &mut W, bytes: &[u8]) -> std::io::Result<()> {
        for piece in bytes.chunks(PIECE) {
            output.write_all(piece).await?;
            self.written.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

const LINE_END: Bytes = Bytes::from_static(b"\n");

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

    use super::*;

    fn outbox() -> (Outbox, Queue) {
        Outbox::new(usize::MAX, CancellationToken::new(), Jobs::new())
    }

    fn text(text: &str) -> Rope {
        Rope::from(Bytes::from(text.to_owned()))
    }

    #[tokio::test]
    async fn a_handle_is_out_when_its_last_byte_was_taken() {
        let (outbox, queue) = outbox();
        let (near, far) = tokio::io::duplex(16);
        let writing = queue.write_to(near);
        let (handle, mut delivered) = Delivery::new();
        let reading = async {
            outbox.place().await.unwrap().send(text(&"x".repeat(64)), Some(handle));
            drop(outbox);
            let mut far = BufReader::with_capacity(1, far);
            let mut seen = vec![0; 40];
            far.read_exact(&mut seen).await.unwrap();
            assert!(delivered.try_recv().is_err());
            far.read_to_end(&mut seen).await.unwrap();
            assert_eq!(seen.len(), 65);
            delivered.await.unwrap();
        };
        tokio::join!(writing, reading);
    }

    #[tokio::test]
    async fn a_handle_that_nobody_reads_is_lost() {
        let (outbox, queue) = outbox();
        let (near, far) = tokio::io::duplex(16);
        drop(far);
        let (handle, delivered) = Delivery::new();
        outbox.place().await.unwrap().send(text("{}"), Some(handle));
        queue.write_to(near).await;
        delivered.await.unwrap_err();
        outbox.closed().await;
        // Nor does anybody wait for a place.
        for _ in 0..2 * WAITING {
            outbox.send(text("{}")).await;
        }
    }

    #[tokio::test]
    async fn what_has_no_place_when_nobody_waits_any_more_is_dropped_and_what_has_one_goes_out() {
        let (outbox, queue) = outbox();
        for _ in 0..WAITING {
            outbox.send(text("1")).await;
        }
        let mut late = Box::pin(outbox.send(text("2")));
        assert!(futures_util::poll!(late.as_mut()).is_pending());
        outbox.cut().cancel();
        late.await;
        let (near, mut far) = tokio::io::duplex(1 << 20);
        drop(outbox);
        queue.write_to(near).await;
        let mut seen = String::new();
        far.read_to_string(&mut seen).await.unwrap();
        assert_eq!(seen, "1\n".repeat(WAITING));
    }

    #[tokio::test]
    async fn progress_leaves_places_for_answers() {
        let (outbox, queue) = outbox();
        for _ in 0..10 * WAITING {
            outbox.offer(text("\"progress\""));
        }
        for _ in 0..RESERVED {
            outbox.send(text("\"answer\"")).await;
        }
        drop(outbox);
        let (near, far) = tokio::io::duplex(1 << 20);
        queue.write_to(near).await;
        let mut lines = BufReader::new(far).lines();
        let mut seen = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            seen.push(line);
        }
        let count = |wanted: &str| seen.iter().filter(|line| *line == wanted).count();
        assert_eq!((count("\"progress\""), count("\"answer\"")), (WAITING - RESERVED, RESERVED));
    }

    #[tokio::test]
    async fn a_message_is_one_line_of_any_length() {
        let (outbox, queue) = outbox();
        let long = "y".repeat(3 * JOINED);
        outbox.send(text("{\"a\":\r\n\"\u{2028}\"}")).await;
        outbox.send(text(&format!("\"{long}\""))).await;
        outbox.send(text("1")).await;
        drop(outbox);
        let (near, mut far) = tokio::io::duplex(1 << 20);
        queue.write_to(near).await;
        let mut seen = String::new();
        far.read_to_string(&mut seen).await.unwrap();
        assert_eq!(seen, format!("{{\"a\":\"\\u2028\"}}\n\"{long}\"\n1\n"));
    }
}
