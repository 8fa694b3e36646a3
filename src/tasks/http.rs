//! An MCP service made of an HTTP service that speaks 2026-07-28, so that the layer fits around both.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::future::{Ready, ready};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower::ServiceExt;
use tower_service::Service;

use crate::jobs::Jobs;
use crate::protocol::sse::SseParser;
use crate::protocol::{
    Call, Event, Failure, MODERN, Message, Outcome, Progress, Reason, Reply, ReplySender, RequestId,
};
use crate::protocol::{Retry, headers, message, room};

/// An MCP service made of an HTTP service, such as a router, that is an MCP server of 2026-07-28.
///
/// Each call is a POST with the headers of the revision; the answer may be JSON or an event stream.
/// A call that is cancelled closes its response, as the revision wants it (2026-07-28, Streamable HTTP,
/// cancellation).
#[derive(Clone, Debug)]
pub struct HttpAdapter<S> {
    inner: S,
    path: Arc<str>,
    jobs: Jobs,
    limits: HttpLimits,
    next_id: Arc<AtomicU64>,
}

/// How much is read of one answer.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Bytes of a body or an event.
    pub message: usize,
    /// Levels of arrays and objects.
    pub depth: usize,
}

impl<S> HttpAdapter<S> {
    /// The MCP service behind `path` of `inner`. Answers are read in `jobs`.
    pub fn new(inner: S, path: &str, jobs: Jobs, limits: HttpLimits) -> Self {
        Self { inner, path: Arc::from(path), jobs, limits, next_id: Arc::new(AtomicU64::new(1)) }
    }

    fn request(&self, call: &Call, id: &RequestId) -> Result<Request<Full<Bytes>>, http::Error> {
        let body = message::request(id, call.method.name(), Some(call.params.raw().clone().into()));
        let mut request = Request::post(&*self.path)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .header(headers::PROTOCOL_VERSION, MODERN)
            .header(headers::METHOD, headers::encode(call.method.name()));
        if let Some(name) = call.params.name() {
            request = request.header(headers::NAME, headers::encode(name));
        }
        request.body(Full::new(body.into_bytes()))
    }
}

impl<S, B> Service<Call> for HttpAdapter<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
{
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let id = RequestId::from_number(self.next_id.fetch_add(1, Ordering::Relaxed));
        let request = match self.request(&call, &id) {
            Ok(request) => request,
            Err(error) => {
                return ready(Ok(Reply::ready(bad_answer(&format!("no request can be made of it: {error}")))));
            }
        };
        let (sender, reply) = Reply::channel();
        let (inner, limits) = (self.inner.clone(), self.limits);
        self.jobs.spawn("ask an HTTP service", async move {
            let cancelled = sender.cancellation();
            tokio::select! {
                biased;
                // Dropping the exchange closes the response: that is the cancel.
                () = cancelled.cancelled() => {}
                outcome = exchange(inner, request, &id, limits, &sender) => sender.done(outcome),
            }
        });
        ready(Ok(reply))
    }
}

async fn exchange<S, B>(
    inner: S,
    request: Request<Full<Bytes>>,
    id: &RequestId,
    limits: HttpLimits,
    events: &ReplySender,
) -> Outcome
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>>,
    B: Body<Data = Bytes>,
{
    let Ok(response) = inner.oneshot(request).await else {
        return Outcome::Failed(Failure::outcome_unknown("the HTTP service failed"));
    };
    let media = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_stream = media.starts_with("text/event-stream");
    let mut body = std::pin::pin!(response.into_body());
    let (mut parser, mut whole) = (SseParser::new(limits.message), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Outcome::Failed(Failure::outcome_unknown("the answer of the HTTP service broke off"));
        };
        let Ok(chunk) = frame.into_data() else { continue };
        if !is_stream {
            if whole.len() + chunk.len() > limits.message {
                return too_large(limits.message);
            }
            room::make(&mut whole, chunk.len(), limits.message);
            whole.extend_from_slice(&chunk);
            continue;
        }
        parser.feed(chunk);
        loop {
            match parser.next_event() {
                Ok(Some(event)) => {
                    if let Some(outcome) = read(&event.data, id, limits.depth, events) {
                        return outcome;
                    }
                }
                Ok(None) => break,
                Err(_) => return too_large(limits.message),
            }
        }
    }
    let rest = if is_stream { parser.pending().unwrap_or_default() } else { whole.freeze() };
    read(&rest, id, limits.depth, events).unwrap_or_else(|| bad_answer("it holds no answer to the call"))
}

/// The outcome that a message is, if it is one; events go on to the caller.
fn read(text: &Bytes, id: &RequestId, depth: usize, events: &ReplySender) -> Option<Outcome> {
    match Message::parse(text, depth) {
        Ok(Message::Result { id: answered, result }) if answered == *id.token() => Some(Outcome::Result(result)),
        Ok(Message::Error { id: answered, error })
            if answered.as_ref().is_none_or(|answered| answered == id.token()) =>
        {
            Some(Outcome::Error(error))
        }
        Ok(Message::Notification { method, params: Some(params) }) => {
            match method.as_str() {
                "notifications/progress" => {
                    if let Some(progress) = Progress::read(&params) {
                        events.event(Event::Progress(progress));
                    }
                }
                "notifications/message" => events.event(Event::Log(params)),
                _ => {}
            }
            None
        }
        _ => None,
    }
}

fn too_large(limit: usize) -> Outcome {
    let message = format!("the answer of the HTTP service is larger than {limit} bytes; the tool has run");
    Outcome::Failed(Failure::new(Reason::TooLarge, message, Retry::No))
}

fn bad_answer(why: &str) -> Outcome {
    let message = format!("the answer of the HTTP service cannot be used: {why}");
    Outcome::Failed(Failure::new(Reason::BadAnswer, message, Retry::Unknown))
}
