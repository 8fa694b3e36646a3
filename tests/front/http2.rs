use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use raincheck::jobs::Place;
use raincheck::protocol::reply::Delivery;
use raincheck::protocol::{Handle, Outcome, Reply, Rope};

use crate::support::*;

pub(crate) fn request(server: &Server) -> http::Request<Full<Bytes>> {
    let (text, headers) = call("7", "slow", "");
    let mut request = http::Request::post(format!("http://localhost:{}/mcp", server.address.port()))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    for (name, value) in headers.lines().filter_map(|line| line.split_once(": ")) {
        request = request.header(name, value);
    }
    request.body(Full::from(text)).unwrap()
}

#[tokio::test]
async fn http2_without_tls_serves_many_calls_on_one_connection() {
    let mut server = Setup::new().start().await;
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let waiting: Vec<_> = (0..5).map(|_| tokio::spawn(client.request(request(&server)))).collect();
    for _ in 0..4 {
        server.asked().await.sender.done(result("{}"));
    }
    let (delivery, delivered) = Delivery::new();
    let created = Rope::from(json(r#"{"resultType":"task","taskId":"t"}"#));
    server.asked().await.sender.done(Outcome::Task(Handle { created, delivery }));
    let mut handles = 0;
    for response in waiting {
        let response = bounded(response).await.unwrap().unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        handles += usize::from(body.windows(6).any(|bytes| bytes == b"taskId"));
    }
    assert_eq!(handles, 1);
    bounded(delivered).await.unwrap();
}

#[tokio::test]
async fn a_call_of_http1_is_made_by_the_worker_of_its_connection_and_streams_of_http2_by_whoever_is_free() {
    let (told, mut places) = tokio::sync::mpsc::unbounded_channel();
    let server = Setup::new().start_answering(move |_| {
        told.send(Place::here()).unwrap();
        Reply::ready(result("{}"))
    });
    let server = server.await;
    for (http2, place) in [(false, Place::Worker(0)), (true, Place::Shared)] {
        let client = Client::builder(TokioExecutor::new()).http2_only(http2).build_http();
        let response = bounded(client.request(request(&server))).await.unwrap();
        assert_eq!((response.status().as_u16(), bounded(places.recv()).await.unwrap()), (200, place));
    }
}

#[tokio::test]
async fn leaving_a_stream_of_http2_cancels_its_call_only() {
    let mut server = Setup::new().start().await;
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let leaving = tokio::spawn(client.request(request(&server)));
    let mut left = server.asked().await;
    let staying = tokio::spawn(client.request(request(&server)));
    let stays = server.asked().await;
    leaving.abort();
    bounded(left.sender.abandoned()).await;
    assert!(!stays.sender.is_cancelled());
    stays.sender.done(result("{}"));
    assert_eq!(bounded(staying).await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn a_stop_lets_calls_of_http2_end() {
    let mut server = Setup::new().start().await;
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let waiting = tokio::spawn(client.request(request(&server)));
    let asked = server.asked().await;
    server.jobs.stop();
    asked.sender.done(result("{}"));
    assert_eq!(bounded(waiting).await.unwrap().unwrap().status(), 200);
    drop(client);
    bounded(server.served).await.unwrap().unwrap();
}
