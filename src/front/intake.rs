//! Reads the body of a request, within bounds of size, time and memory.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::EXPECT;
use http::request::Parts;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::refusal::Refusal;
use crate::config::Limits;
use crate::protocol::error::code;
use crate::protocol::{RpcError, room};
use crate::wakes;

/// Reads bodies.
#[derive(Debug)]
pub(super) struct Intake {
    /// Bytes of a body.
    limit: usize,
    /// How long a body may take.
    patience: Duration,
    /// Blocks of memory for large bodies that are being read, so that a crowd of senders cannot fill the memory. Taken as
    /// the bytes come: whoever announces much and sends little keeps nobody waiting.
    blocks: Semaphore,
}

/// A body that is being read.
#[derive(Debug, Default)]
struct Reading {
    /// Most bodies come in one frame, which is then not copied.
    first: Bytes,
    /// The whole, once there is a second frame; `first` is empty then.
    whole: BytesMut,
}

/// Bodies up to this size need no block, and no more memory than this is set aside before any of it has come.
const SMALL: usize = 64 << 10;
/// Bytes of a block.
const BLOCK: usize = 64 << 10;
/// Bodies of the largest size that there are blocks for; what comes beyond that waits.
const LARGE_AT_ONCE: usize = 32;
/// How long the rest of a body that is too large is read and thrown away, so that the client, which is still
/// sending, comes to read the answer instead of a reset.
const DRAIN: Duration = Duration::from_secs(2);

impl Intake {
    /// Reads bodies within these limits.
    pub(super) fn new(limits: &Limits) -> Self {
        let blocks = limits.body.div_ceil(BLOCK).saturating_mul(LARGE_AT_ONCE).min(Semaphore::MAX_PERMITS);
        Self { limit: limits.body, patience: limits.read_timeout, blocks: Semaphore::new(blocks) }
    }

    /// The whole body; 413 if it is too large, 408 if it does not come in time, 400 if it breaks off.
    pub(super) async fn read(&self, body: Incoming, parts: &Parts) -> Result<Bytes, Refusal> {
        let patience = self.patience;
        tokio::time::timeout(patience, self.collect(body, parts)).await.unwrap_or_else(|_| {
            let message = format!("the body was not read within limits.read_timeout ({patience:?})");
            Err(Refusal::http(StatusCode::REQUEST_TIMEOUT, &message).closing())
        })
    }

    async fn collect(&self, mut body: Incoming, parts: &Parts) -> Result<Bytes, Refusal> {
        let announced = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if announced.is_some_and(|length| length > self.limit) {
            // A client that expects to be told to go on has sent nothing yet.
            if !parts.headers.contains_key(EXPECT) {
                self.drain(body).await;
            }
            return Err(self.too_large());
        }
        let mut reading = Reading::default();
        let mut taken: Option<SemaphorePermit<'_>> = None;
        while !body.is_end_stream()
            && let Some(frame) = wakes::frame(&mut body, parts.version).await
        {
            let broken = |_| Refusal::http(StatusCode::BAD_REQUEST, "the body broke off or is malformed").closing();
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            let length = reading.len() + data.len();
            if length > self.limit {
                self.drain(body).await;
                return Err(self.too_large());
            }
            if length > SMALL {
                self.take(&mut taken, length).await;
            }
            reading.push(data, announced.unwrap_or_default(), self.limit);
        }
        Ok(reading.finish())
    }

    /// Takes blocks for `length` bytes in all.
    async fn take<'a>(&'a self, taken: &mut Option<SemaphorePermit<'a>>, length: usize) {
        let have = taken.as_ref().map_or(0, SemaphorePermit::num_permits);
        let more = u32::try_from(length.div_ceil(BLOCK).saturating_sub(have)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let Ok(more) = self.blocks.acquire_many(more).await else { return };
        match taken {
            Some(taken) => taken.merge(more),
            None => *taken = Some(more),
        }
    }

    /// Reads on until the end, for twice as many bytes as the limit and a short time.
    async fn drain(&self, mut body: Incoming) {
        let mut left = self.limit.saturating_mul(2);
        let rest = async {
            while let Some(Ok(frame)) = body.frame().await {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
                if left == 0 {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(DRAIN, rest).await;
    }

    fn too_large(&self) -> Refusal {
        let limit = self.limit;
        let message = format!("Invalid request: the body is larger than limits.body allows ({limit} bytes)");
        Refusal::rpc(StatusCode::PAYLOAD_TOO_LARGE, RpcError::new(code::INVALID_REQUEST, message)).closing()
    }
}

impl Reading {
    fn len(&self) -> usize {
        self.first.len() + self.whole.len()
    }

    fn push(&mut self, data: Bytes, announced: usize, most: usize) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        if self.whole.is_empty() {
            self.whole.reserve(announced.min(SMALL).max(self.first.len() + data.len()));
            self.whole.extend_from_slice(&std::mem::take(&mut self.first));
        }
        room::make(&mut self.whole, data.len(), most);
        self.whole.extend_from_slice(&data);
    }

    fn finish(self) -> Bytes {
        if self.whole.is_empty() { self.first } else { self.whole.freeze() }
    }
}
