//! Connections that are not woken for nothing.
//!
//! hyper wakes an HTTP/1 connection for each frame that is taken of a body that came on it, even for the last, when there
//! is nothing left to read. A request's body is taken in the connection's own task, which is then run once more, and
//! another thread is woken to help with it: for a short call that is a large part of its cost.
//!
//! So connections are driven with a waker that can be held back ([`Sparing`]), and frames are taken by who holds it
//! back as long as it takes ([`frame`]): the wake for the last frame is dropped, any other is passed on.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use http::Version;
use http_body::{Body, Frame};
use hyper::rt::Executor;
use pin_project_lite::pin_project;

pin_project! {
    /// Drives a connection with a waker that [`frame`] can hold back.
    #[derive(Debug)]
    pub struct Sparing<F> {
        #[pin]
        connection: F,
        waker: Option<(Arc<Gate>, Waker)>,
    }
}

/// Spawns what an executor is given as [`Sparing`].
#[derive(Clone, Debug)]
pub struct SparingExecutor<E>(pub E);

/// Wakes the task of a connection, or leaves the wake to who holds it back.
#[derive(Debug)]
struct Gate(Waker);

/// Whether wakes are held back on this thread.
#[derive(Debug)]
enum Hold {
    Off,
    On,
    /// This one was.
    Missed(Arc<Gate>),
}

thread_local! {
    static HOLD: RefCell<Hold> = const { RefCell::new(Hold::Off) };
}

impl<F> Sparing<F> {
    /// Drives `connection`.
    pub fn new(connection: F) -> Self {
        Self { connection, waker: None }
    }

    /// The connection.
    pub fn connection(self: Pin<&mut Self>) -> Pin<&mut F> {
        self.project().connection
    }
}

impl<F: Future> Future for Sparing<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let is_current = this.waker.as_ref().is_some_and(|(gate, _)| gate.0.will_wake(context.waker()));
        if !is_current {
            *this.waker = None;
        }
        let (_, waker) = this.waker.get_or_insert_with(|| {
            let gate = Arc::new(Gate(context.waker().clone()));
            let waker = Waker::from(Arc::clone(&gate));
            (gate, waker)
        });
        this.connection.poll(&mut Context::from_waker(waker))
    }
}

impl<E, F> Executor<F> for SparingExecutor<E>
where
    E: Executor<Sparing<F>>,
{
    fn execute(&self, job: F) {
        self.0.execute(Sparing::new(job));
    }
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_held = HOLD.with_borrow_mut(|hold| {
            let is_on = matches!(hold, Hold::On);
            if is_on {
                *hold = Hold::Missed(Arc::clone(self));
            }
            is_on
        });
        if !is_held {
            self.0.wake_by_ref();
        }
    }
}

/// A piece of a body, or why there is none.
pub type Taken<B> = Result<Frame<<B as Body>::Data>, <B as Body>::Error>;

/// The next frame of a body that came by HTTP of this version. Cancel safe.
pub async fn frame<B: Body + Unpin>(body: &mut B, version: Version) -> Option<Taken<B>> {
    poll_fn(|context| poll_frame(body, version, context)).await
}

/// The same, for who polls.
pub fn poll_frame<B: Body + Unpin>(
    body: &mut B,
    version: Version,
    context: &mut Context<'_>,
) -> Poll<Option<Taken<B>>> {
    // Over HTTP/2 the connection has to tell its peer that there is room again.
    if version > Version::HTTP_11 {
        return Pin::new(body).poll_frame(context);
    }
    HOLD.set(Hold::On);
    let frame = Pin::new(&mut *body).poll_frame(context);
    let held = HOLD.replace(Hold::Off);
    if let Hold::Missed(gate) = held
        && !(matches!(frame, Poll::Ready(Some(Ok(_)))) && body.is_end_stream())
    {
        gate.0.wake_by_ref();
    }
    frame
}

/// The next frame of a body for who drives its connection, over HTTP/1, as well: nobody is woken, neither the connection
/// nor the reader, who has to poll the connection for the next frame.
pub fn poll_driven<B: Body + Unpin>(body: &mut B) -> Poll<Option<Taken<B>>> {
    HOLD.set(Hold::On);
    let frame = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
    HOLD.set(Hold::Off);
    frame
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Wakes its connection for each frame, as hyper does.
    struct Pieces(VecDeque<Bytes>, Option<Waker>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.1.as_ref().unwrap().wake_by_ref();
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty()
        }
    }

    /// The wakes of a connection after each frame of a body in two pieces and its end.
    fn wakes(version: Version) -> Vec<usize> {
        let count = Arc::new(Count::default());
        let task = Waker::from(Arc::clone(&count));
        let mut body = Pieces([Bytes::from_static(b"a"), Bytes::from_static(b"b")].into(), None);
        let mut connection = Box::pin(Sparing::new(poll_fn(|context| {
            body.1 = Some(context.waker().clone());
            Poll::<()>::Pending
        })));
        assert!(connection.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
        drop(connection);
        let mut after = Vec::new();
        for _ in 0..3 {
            assert!(poll_frame(&mut body, version, &mut Context::from_waker(Waker::noop())).is_ready());
            after.push(count.0.load(Ordering::SeqCst));
        }
        body.1.unwrap().wake();
        assert_eq!(count.0.load(Ordering::SeqCst), after[2] + 1);
        after
    }

    #[test]
    fn the_last_frame_wakes_nobody_and_all_else_does() {
        assert_eq!(wakes(Version::HTTP_11), [1, 1, 2]);
    }

    #[test]
    fn a_connection_of_http_2_is_woken_for_the_last_frame_too() {
        assert_eq!(wakes(Version::HTTP_2), [1, 2, 3]);
    }
}
