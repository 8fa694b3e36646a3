//! Gives up on HTTP/2 clients that open requests and never take the answers.
//!
//! Over HTTP/1 an answer that is not read stops the socket, which [`super::socket::Socket`] sees. Over HTTP/2 each
//! stream has a window of its own: a client can keep the connection going and the answers of all its streams in our
//! memory.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

use super::body::Body;
use crate::visitors::Asking;

/// The answers of one connection that are being sent.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<Vec<Weak<Taking>>>);

/// Since when the client could take more of an answer and does not; `None` while there is nothing to take.
#[derive(Debug)]
struct Taking(Mutex<Option<Instant>>);

/// A body that is watched over HTTP/2.
pub(super) struct Watched {
    body: Body,
    /// What is left of the last piece.
    rest: Bytes,
    taking: Option<Arc<Taking>>,
    /// Whose answer it is: its connection is not idle before this is gone.
    _asking: Option<Asking>,
}

/// Bytes that are handed over at once: HTTP/2 keeps what it was given, however small the client's window is.
const AT_ONCE: usize = 64 << 10;

impl Answers {
    /// Watches `body`.
    pub(super) fn watch(&self, body: Body) -> Watched {
        let taking = Arc::new(Taking(Mutex::new(Some(Instant::now()))));
        let mut answers = lock(&self.0);
        if answers.len() == answers.capacity() {
            answers.retain(|taking| taking.strong_count() > 0);
        }
        answers.push(Arc::downgrade(&taking));
        drop(answers);
        Watched { body, rest: Bytes::new(), taking: Some(taking), _asking: None }
    }

    /// Whether the client has left an answer for longer than `patience`.
    pub(super) fn is_stalled(&self, patience: Duration) -> bool {
        let mut answers = lock(&self.0);
        answers.retain(|taking| taking.strong_count() > 0);
        let since = |taking: &Weak<Taking>| *lock(&taking.upgrade()?.0);
        answers.iter().filter_map(since).any(|since| since.elapsed() >= patience)
    }
}

impl Watched {
    /// Not watched: the socket is.
    pub(super) fn plain(body: Body) -> Self {
        Self { body, rest: Bytes::new(), taking: None, _asking: None }
    }

    /// The answer to this question.
    pub(super) fn to(self, asking: Asking) -> Self {
        Self { _asking: Some(asking), ..self }
    }
}

/// What is locked is replaced whole, so a poisoned lock holds a good value.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    /// Asked for a piece when the client has room for one, so the time counts from each piece to the next question.
    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let Some(taking) = &this.taking else { return Pin::new(&mut this.body).poll_frame(context) };
        if this.rest.is_empty() {
            let frame = Pin::new(&mut this.body).poll_frame(context);
            *lock(&taking.0) = frame.is_ready().then(Instant::now);
            match ready!(frame).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(piece))) => this.rest = piece,
                Some(Ok(Err(frame))) => return Poll::Ready(Some(Ok(frame))),
                None => return Poll::Ready(None),
            }
        } else {
            *lock(&taking.0) = Some(Instant::now());
        }
        let piece = this.rest.split_to(this.rest.len().min(AT_ONCE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        self.body.size_hint().exact().map_or_else(SizeHint::default, |exact| SizeHint::with_exact(exact + rest))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::protocol::Rope;

    const PATIENCE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_stalled_while_it_could_be_taken_and_is_not() {
        let answers = Answers::default();
        let text = Bytes::from(vec![b'x'; 3 * AT_ONCE]);
        let mut body = answers.watch(Body::text(Rope::from(text.clone())));
        assert_eq!(body.size_hint().exact(), Some(text.len() as u64));
        let mut taken = 0;
        while !body.is_end_stream() {
            tokio::time::advance(PATIENCE / 2).await;
            assert!(!answers.is_stalled(PATIENCE));
            taken += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
            assert!(taken == text.len() || !body.is_end_stream());
        }
        assert_eq!(taken, text.len());
        tokio::time::advance(PATIENCE).await;
        assert!(answers.is_stalled(PATIENCE));
        drop(body);
        assert!(!answers.is_stalled(PATIENCE));
    }
}
