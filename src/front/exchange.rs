//! One HTTP exchange, from its headers to its answer.
//!
//! The checks come in this order, so that each client learns first what it can mend first: host and origin, path,
//! preflight, HTTP method, who is asking, types of media, size, message, era and version, headers.

use std::net::IpAddr;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method as HttpMethod, Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::asked::{self, Asked, Request};
use super::body::Body;
use super::call_key;
use super::gate::Gate;
use super::intake::Intake;
use super::legacy::{Legacy, Sender};
use super::listen::{Filter, Subscription, Terms};
use super::media::{self, Accepts};
use super::param_headers::ToolHeaders;
use super::principal::Identity;
use super::refusal::{self, Refusal};
use super::resource::Resources;
use super::running::{Answer, Running, Step, Wanted};
use super::socket::Outbox;
use super::stream::CallStream;
use super::{Mount, running, sse};
use crate::config::Limits;
use crate::jobs::Jobs;
use crate::protocol::headers::SESSION_ID;
use crate::protocol::{Call, Caller, McpService, Method, Reply, hops};
use crate::share::Places;

/// What all exchanges share.
pub(super) struct Shared<S> {
    pub(super) mounts: Vec<Mount<S>>,
    pub(super) legacy: Legacy,
    pub(super) gate: Gate,
    pub(super) identity: Identity,
    pub(super) resources: Resources,
    pub(super) intake: Intake,
    pub(super) limits: Limits,
    pub(super) keep_alive: Duration,
    pub(super) calls: Places,
    pub(super) streams: Places,
    pub(super) tool_headers: ToolHeaders,
    pub(super) jobs: Jobs,
}

/// The connection on which an exchange takes place.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: IpAddr,
    pub(super) local: IpAddr,
    pub(super) outbox: Outbox,
}

/// How long an answer may take before a stream is opened for it. Plain JSON is simplest for both sides; this is
/// far below what anybody on the way takes for silence.
const QUICK: Duration = Duration::from_millis(150);
/// The same for all that is no call of a tool: it takes long only where the server has to be connected to first, and a
/// server that wants other credentials must still be able to say so by its status.
const PATIENT: Duration = Duration::from_secs(5);

/// Answers one request. Dropping the future, or the body of the response, drops the call: the client left.
pub(super) async fn respond<S: McpService>(
    shared: &Shared<S>,
    link: &Link,
    request: http::Request<Incoming>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let cors = match shared.gate.admit(&parts, link.local) {
        Ok(cors) => cors,
        Err(refusal) => return refusal.into_response(),
    };
    let path = parts.uri.path().to_owned();
    let resource = shared.resources.endpoint(&path);
    let mut response = match shared.mount(&parts, resource.unwrap_or(&path), link).await {
        Err(refusal) => refusal.into_response(),
        Ok(_) if parts.method == HttpMethod::OPTIONS => {
            let mut response = empty(StatusCode::NO_CONTENT);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, GET, DELETE, OPTIONS"));
            cors.preflight(&parts.headers, response.headers_mut());
            response
        }
        Ok(mount) if resource.is_some() => {
            let told = shared.resources.tell(&parts.method, &mount.name, resource.unwrap_or_default()).await;
            told.unwrap_or_else(Refusal::into_response)
        }
        Ok(mount) => shared.answer(mount, link, parts, body).await.unwrap_or_else(Refusal::into_response),
    };
    shared.resources.mark(&path, response.headers_mut());
    cors.mark(response.headers_mut());
    response
}

impl<S: McpService> Shared<S> {
    /// The server at `path`: `/NAME/mcp`, and `/mcp` where there is one server only.
    async fn mount(&self, parts: &Parts, path: &str, link: &Link) -> Result<&Mount<S>, Refusal> {
        let path = path.strip_suffix('/').unwrap_or(path);
        let found = match (path.strip_suffix("/mcp"), self.mounts.as_slice()) {
            (Some(""), [only]) => Some(only),
            (Some(name), mounts) => {
                let name = name.strip_prefix('/').unwrap_or_default();
                mounts.iter().find(|mount| mount.name == name)
            }
            (None, _) => None,
        };
        if let Some(found) = found {
            return Ok(found);
        }
        // The names of the servers are for those who may use them.
        let known = Box::pin(self.identity.of(&parts.headers, link.peer)).await.is_ok();
        let alone = (self.mounts.len() == 1).then(|| "/mcp".to_owned());
        let named = self.mounts.iter().map(|mount| format!("/{}/mcp", mount.name));
        let paths: Vec<_> = alone.into_iter().chain(named).collect();
        let paths = if known { paths.join(", ") } else { "/NAME/mcp".to_owned() };
        let old = if path.ends_with("/sse") { "; clients of HTTP+SSE (2024-11-05) are not served" } else { "" };
        let message = format!("there is no MCP endpoint at this path; endpoints: {paths}{old}");
        Err(Refusal::http(StatusCode::NOT_FOUND, &message))
    }

    async fn answer(
        &self,
        mount: &Mount<S>,
        link: &Link,
        parts: Parts,
        body: Incoming,
    ) -> Result<Response<Body>, Refusal> {
        let has_session = parts.headers.contains_key(SESSION_ID);
        match parts.method {
            HttpMethod::POST => {}
            HttpMethod::GET | HttpMethod::DELETE if has_session => {
                // Boxed, as all that is not the way of a modern call: what this future takes is moved for each request.
                return Box::pin(self.without_body(mount, link, &parts)).await;
            }
            _ => return Err(Refusal::method_not_allowed()),
        }
        let principal = self.identity.of(&parts.headers, link.peer).await?;
        if hops::has_come_round(&parts.headers, &mount.name) {
            return Err(Refusal::come_round(&mount.name));
        }
        if !media::is_json(&parts.headers) {
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Refusal::http(status, "the body must be application/json, not compressed"));
        }
        let accepts = accepts(&parts.headers)?;
        let text = self.intake.read(body, &parts).await?;
        let asked = asked::read(&text, &parts.headers, self.limits.depth)?;
        let request = match asked {
            Asked::Notification => return Ok(empty(StatusCode::ACCEPTED)),
            Asked::Request(request) => request,
            Asked::Legacy(message) => {
                let sender = Sender { server: &mount.name, principal, headers: &parts.headers, accepts };
                let credentials = self.identity.credentials(&parts.headers);
                return Box::pin(self.legacy.post(&sender, message, credentials)).await;
            }
            Asked::LegacyBroken(answer, refusal) => {
                let sender = Sender { server: &mount.name, principal, headers: &parts.headers, accepts };
                let credentials = self.identity.credentials(&parts.headers);
                let taken = Box::pin(self.legacy.post(&sender, answer, credentials)).await;
                return Err(taken.err().unwrap_or(refusal));
            }
            Asked::LegacyBatch(messages) => {
                let sender = Sender { server: &mount.name, principal, headers: &parts.headers, accepts };
                let credentials = self.identity.credentials(&parts.headers);
                return self.legacy.post_batch(&sender, messages, credentials).await;
            }
        };
        let mut caller = Caller::of_modern(&request.params, principal, self.identity.credentials(&parts.headers));
        caller.key = call_key::read(&request.method, &request.params, &caller.credentials)
            .map_err(|error| Refusal::rpc(StatusCode::BAD_REQUEST, error).to(Some(&request.id)))?;
        if request.method == Method::Listen {
            let id = request.id.clone();
            let listening = Box::pin(self.listen(mount, request, caller, accepts)).await;
            return listening.map_err(|refusal| refusal.to(Some(&id)));
        }
        let id = request.id.clone();
        self.call(mount, link, request, caller, accepts).await.map_err(|refusal| refusal.to(Some(&id)))
    }

    /// GET and DELETE, which belong to the sessions of legacy clients.
    async fn without_body(&self, mount: &Mount<S>, link: &Link, parts: &Parts) -> Result<Response<Body>, Refusal> {
        let principal = self.identity.of(&parts.headers, link.peer).await?;
        // Nothing but a status answers a DELETE.
        if parts.method == HttpMethod::DELETE {
            let accepts = Accepts::Anything;
            return self.legacy.delete(&Sender { server: &mount.name, principal, headers: &parts.headers, accepts });
        }
        let accepts = accepts(&parts.headers)?;
        self.legacy.get(&Sender { server: &mount.name, principal, headers: &parts.headers, accepts })
    }

    async fn listen(
        &self,
        mount: &Mount<S>,
        request: Request,
        caller: Caller,
        accepts: Accepts,
    ) -> Result<Response<Body>, Refusal> {
        let Request { id, method, params, .. } = request;
        let filter = Filter::read(&params, caller.tasks)?;
        if accepts == Accepts::Json {
            let message = "subscriptions/listen is answered by text/event-stream only";
            return Err(Refusal::http(StatusCode::NOT_ACCEPTABLE, message));
        }
        let place = self.streams.take(&caller.principal).map_err(|why| {
            let limits = format!("limits.streams = {}", self.limits.streams);
            Refusal::failed(&refusal::crowded(why, "open subscriptions", &limits))
        })?;
        let reply = ask(mount.service.clone(), Call { method, params, caller, arrived: Instant::now() });
        let terms = Terms { place, keep_alive: self.keep_alive, jobs: self.jobs.clone() };
        let stream = Subscription::open(id, filter, reply, terms).await?;
        Ok(sse::response(Body::Listen(Box::new(stream))))
    }

    async fn call(
        &self,
        mount: &Mount<S>,
        link: &Link,
        request: Request,
        caller: Caller,
        accepts: Accepts,
    ) -> Result<Response<Body>, Refusal> {
        let Request { id, method, params, log_level } = request;
        let place = match method {
            // A client must always be able to ask after its tasks.
            Method::GetTask | Method::UpdateTask | Method::CancelTask => None,
            _ => Some(
                self.calls
                    .take(&caller.principal)
                    .map_err(|why| Refusal::failed(&refusal::too_many_calls(why, self.calls.most())))?,
            ),
        };
        if method == Method::CallTool {
            let ask = |call| ask(mount.service.clone(), call);
            self.tool_headers.check(&mount.name, &params, &caller, ask).await?;
        }
        let learner =
            (method == Method::ListTools).then(|| self.tool_headers.learner(&mount.name, &params, &caller.principal));
        let wanted = Wanted { progress: caller.progress_token.clone(), log: log_level };
        let span = running::span(&mount.name, &method, params.name());
        let call = Call { method: method.clone(), params, caller, arrived: Instant::now() };
        let reply = ask(mount.service.clone(), call);
        let mut running = Running::new(reply, &method, wanted, place, span);
        if let Some(learner) = learner {
            running.on_outcome(learner);
        }
        let first = self.jobs.within(patience(&method), running.step()).await;
        let first = match first {
            Some(Step::Done(outcome)) => {
                let mut answer = Answer::new(&id, &method, outcome, &link.outbox);
                answer.hold(running.take_place(), &link.outbox);
                // An error that has a status of its own is plain JSON for everybody.
                if accepts.takes_json() || answer.status != StatusCode::OK {
                    return Ok(plain(answer));
                }
                return Ok(sse::response(Body::carrying(sse::event(answer.text), answer.parcel)));
            }
            Some(Step::Notification(notification)) => Some(notification),
            None => None,
        };
        running.send_to_background();
        if !accepts.takes_events() {
            let outcome = running.outcome().await;
            let mut answer = Answer::new(&id, &method, outcome, &link.outbox);
            answer.hold(running.take_place(), &link.outbox);
            return Ok(plain(answer));
        }
        let mut stream = CallStream::new(id, method, running, link.outbox.clone(), self.keep_alive);
        if let Some(notification) = first {
            stream.push(notification);
        }
        Ok(sse::response(Body::Call(Box::new(stream))))
    }
}

fn patience(method: &Method) -> Duration {
    if *method == Method::CallTool { QUICK } else { PATIENT }
}

/// Asks `service`, once it is ready.
pub(super) async fn ask<S: McpService>(mut service: S, call: Call) -> Reply {
    let Ok(()) = std::future::poll_fn(|context| service.poll_ready(context)).await;
    let Ok(reply) = service.call(call).await;
    reply
}

fn accepts(headers: &HeaderMap) -> Result<Accepts, Refusal> {
    let neither = || Refusal::http(StatusCode::NOT_ACCEPTABLE, "answers are application/json or text/event-stream");
    Accepts::of(headers).ok_or_else(neither)
}

fn plain(answer: Answer) -> Response<Body> {
    let mut response = Response::new(Body::carrying(answer.text, answer.parcel));
    *response.status_mut() = answer.status;
    response.headers_mut().insert(CONTENT_TYPE, media::JSON);
    for wanted in answer.challenge {
        response.headers_mut().append(WWW_AUTHENTICATE, wanted);
    }
    response
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
