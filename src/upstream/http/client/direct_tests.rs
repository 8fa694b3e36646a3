use std::collections::VecDeque;

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, oneshot};

use super::*;
use crate::jobs::Workers;
use crate::protocol::Rope;
use crate::upstream::http::client::Taken;

/// What a server does with one request.
#[derive(Clone, Copy)]
enum Deed {
    /// Writes this.
    Answers(&'static str),
    /// Writes this, and closes the connection when it is told to.
    AnswersAndCloses(&'static str),
    /// Closes the connection.
    Closes,
}

/// What happened to a server: on which of its connections, in their order.
#[derive(Debug, PartialEq, Eq)]
enum Happened {
    Asked(usize),
    Closed(usize),
}

const PATIENCE: Duration = Duration::from_secs(10);
const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A server that does these things in turn, and tells what happened.
async fn server(deeds: impl IntoIterator<Item = Deed>) -> (Uri, mpsc::UnboundedReceiver<Happened>) {
    let closes = Arc::new(Notify::new());
    closes.notify_one();
    server_that_closes(deeds, closes).await
}

/// The same, which closes when it is told to.
async fn server_that_closes(
    deeds: impl IntoIterator<Item = Deed>,
    closes: Arc<Notify>,
) -> (Uri, mpsc::UnboundedReceiver<Happened>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/mcp?a=b", listener.local_addr().unwrap()).parse().unwrap();
    let deeds = Arc::new(Mutex::new(deeds.into_iter().collect::<VecDeque<_>>()));
    let (told, tale) = mpsc::unbounded_channel();
    let jobs = Jobs::new();
    jobs.clone().spawn("server", async move {
        for number in 0.. {
            let Ok((stream, _)) = listener.accept().await else { return };
            jobs.spawn("connection", serve(stream, number, Arc::clone(&deeds), told.clone(), Arc::clone(&closes)));
        }
    });
    (uri, tale)
}

async fn serve(
    mut stream: TcpStream,
    number: usize,
    deeds: Arc<Mutex<VecDeque<Deed>>>,
    told: mpsc::UnboundedSender<Happened>,
    closes: Arc<Notify>,
) {
    let (mut read, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        read.extend_from_slice(&buffer[..length]);
        let text = String::from_utf8_lossy(&read).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        assert!(head.starts_with("POST /mcp?a=b HTTP/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("host: {}", stream.local_addr().unwrap())), "{head}");
        if body.len() < "ask".len() {
            continue;
        }
        read.clear();
        told.send(Happened::Asked(number)).unwrap();
        let deed = deeds.lock().unwrap().pop_front().expect("a request too many");
        match deed {
            Deed::Answers(text) => stream.write_all(text.as_bytes()).await.unwrap(),
            Deed::AnswersAndCloses(text) => {
                stream.write_all(text.as_bytes()).await.unwrap();
                closes.notified().await;
                break;
            }
            Deed::Closes => break,
        }
    }
    // What a test may have ended before.
    let _ = stream.shutdown().await;
    let _ = told.send(Happened::Closed(number));
}

fn direct(idle: Duration) -> Arc<Direct> {
    Arc::new(Direct::new(Bounded(HttpConnector::new(), PATIENCE), idle))
}

async fn ask(direct: &Arc<Direct>, uri: &Uri) -> Result<Response<ServerBody>, SendError> {
    let request = Request::post(uri).body(RopeBody::from(Rope::from(bytes::Bytes::from_static(b"ask")))).unwrap();
    tokio::time::timeout(PATIENCE, direct.send(request)).await.unwrap()
}

async fn asked(direct: &Arc<Direct>, uri: &Uri) -> String {
    let body = ask(direct, uri).await.unwrap().into_body();
    let read = tokio::time::timeout(PATIENCE, body.collect()).await.unwrap();
    String::from_utf8(read.unwrap().to_bytes().to_vec()).unwrap()
}

async fn next(tale: &mut mpsc::UnboundedReceiver<Happened>) -> Happened {
    tokio::time::timeout(PATIENCE, tale.recv()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_connection_whose_answer_was_read_takes_the_next_request() {
    let in_pieces = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
    let empty = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
    let (uri, mut tale) = server([HELLO, in_pieces, empty, HELLO].map(Deed::Answers)).await;
    let direct = direct(PATIENCE);
    for expected in ["hello", "hello", "", "hello"] {
        assert_eq!(asked(&direct, &uri).await, expected);
        assert_eq!(next(&mut tale).await, Happened::Asked(0));
    }
}

#[tokio::test]
async fn a_connection_takes_the_next_request_if_what_nobody_read_is_there_already() {
    let (uri, mut tale) = server([HELLO, HELLO].map(Deed::Answers)).await;
    let direct = direct(PATIENCE);
    drop(ask(&direct, &uri).await.unwrap());
    assert_eq!(asked(&direct, &uri).await, "hello");
    assert_eq!([next(&mut tale).await, next(&mut tale).await], [Happened::Asked(0), Happened::Asked(0)]);
}

#[tokio::test]
async fn a_connection_is_closed_with_an_answer_that_nobody_reads_to_its_end() {
    let endless = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n";
    let (uri, mut tale) = server([Deed::Answers(endless), Deed::Answers(HELLO)]).await;
    let direct = direct(PATIENCE);
    let mut body = ask(&direct, &uri).await.unwrap().into_body();
    let frame = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap().unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "hel");
    drop(body);
    assert_eq!([next(&mut tale).await, next(&mut tale).await], [Happened::Asked(0), Happened::Closed(0)]);
    assert_eq!(asked(&direct, &uri).await, "hello");
    assert_eq!(next(&mut tale).await, Happened::Asked(1));
}

#[tokio::test]
async fn a_request_that_meets_the_close_of_a_kept_connection_goes_to_another() {
    let closes = Arc::new(Notify::new());
    let deeds = [Deed::AnswersAndCloses(HELLO), Deed::Answers(HELLO)];
    let (uri, mut tale) = server_that_closes(deeds, Arc::clone(&closes)).await;
    let direct = direct(PATIENCE);
    assert_eq!(asked(&direct, &uri).await, "hello");
    assert_eq!(direct.kept().lines.len(), 1);
    closes.notify_one();
    assert_eq!([next(&mut tale).await, next(&mut tale).await], [Happened::Asked(0), Happened::Closed(0)]);
    assert_eq!(asked(&direct, &uri).await, "hello");
    assert_eq!(next(&mut tale).await, Happened::Asked(1));
}

#[tokio::test]
async fn a_request_that_was_written_is_sent_once() {
    let (uri, mut tale) = server([Deed::Answers(HELLO), Deed::Closes]).await;
    let direct = direct(PATIENCE);
    assert_eq!(asked(&direct, &uri).await, "hello");
    assert_eq!(ask(&direct, &uri).await.unwrap_err().taken, Taken::Unknown);
    let told = [next(&mut tale).await, next(&mut tale).await, next(&mut tale).await];
    assert_eq!(told, [Happened::Asked(0), Happened::Asked(0), Happened::Closed(0)]);
}

#[tokio::test]
async fn a_call_that_is_dropped_closes_its_connection() {
    let (uri, mut tale) = server([Deed::Answers("")]).await;
    let direct = direct(PATIENCE);
    let told = tokio::select! {
        sent = ask(&direct, &uri) => panic!("{sent:?}"),
        told = next(&mut tale) => told,
    };
    assert_eq!([told, next(&mut tale).await], [Happened::Asked(0), Happened::Closed(0)]);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error() {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel";
    let (uri, _tale) = server([Deed::AnswersAndCloses(half)]).await;
    let body = ask(&direct(PATIENCE), &uri).await.unwrap().into_body();
    assert!(tokio::time::timeout(PATIENCE, body.collect()).await.unwrap().is_err());
}

#[tokio::test]
async fn a_connection_that_nobody_takes_is_closed_after_its_time() {
    let (uri, mut tale) = server([HELLO, HELLO].map(Deed::Answers)).await;
    let direct = direct(Duration::from_millis(20));
    for number in 0..2 {
        assert_eq!(asked(&direct, &uri).await, "hello");
        assert_eq!([next(&mut tale).await, next(&mut tale).await], [Happened::Asked(number), Happened::Closed(number)]);
    }
    assert!(direct.kept().lines.is_empty());
}

/// What `work` gives, done by the worker with that number.
async fn at<T: Send + 'static>(workers: &Workers, number: usize, work: impl Future<Output = T> + Send + 'static) -> T {
    let [first, second] = [(); 2].map(|()| workers.seat().unwrap());
    let (done, is_done) = oneshot::channel();
    let seat = if number == 0 { first } else { second };
    Jobs::new().spawn_at(seat, "call", async move { _ = done.send(work.await) }).await.unwrap();
    is_done.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_takes_a_connection_of_its_own_first_and_then_anybodys() {
    let (uri, mut tale) = server([Deed::Answers(HELLO); 5]).await;
    let (workers, direct) = (Workers::start(|| ()).unwrap(), direct(PATIENCE));
    let asks = || {
        let (direct, uri) = (Arc::clone(&direct), uri.clone());
        async move { ask(&direct, &uri).await.unwrap().into_body() }
    };
    let of_first = at(&workers, 0, asks()).await;
    let of_second = at(&workers, 1, asks()).await;
    // The last that is kept is the first's.
    for body in [of_second, of_first] {
        body.collect().await.unwrap();
    }
    for number in [1, 0] {
        at(&workers, number, asks()).await.collect().await.unwrap();
    }
    // Whoever has none takes the last.
    asks().await.collect().await.unwrap();
    for expected in [0, 1, 1, 0, 0] {
        assert_eq!(next(&mut tale).await, Happened::Asked(expected));
    }
}
