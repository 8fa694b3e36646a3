//! HTTP, with TLS where the URL asks for it.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as SendError};
use hyper_util::rt::TokioExecutor;
use url::Url;

use super::line::{Connector, Door};

/// Connections to one server.
pub(crate) struct Wire {
    client: Kind,
    door: Door,
}

/// Without TLS no certificates are looked for, so plain HTTP works where there are none.
enum Kind {
    Plain(Client<Connector, Full<Bytes>>),
    Tls(Client<HttpsConnector<Connector>, Full<Bytes>>),
}

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

impl Wire {
    /// What the scheme of `url` needs. Errors are for the user: a wrong scheme, or no certificates on this machine.
    pub(crate) fn to(url: &Url) -> Result<Self, String> {
        let door = Door::default();
        let connector = Connector::new(connector(), door.clone());
        let client = match url.scheme() {
            "http" => Kind::Plain(Client::builder(TokioExecutor::new()).build(connector)),
            "https" => {
                let tls = HttpsConnectorBuilder::new()
                    .with_native_roots()
                    .map_err(|error| format!("no certificate authorities are found on this machine: {error}"))?;
                let connector = tls.https_only().enable_http1().enable_http2().wrap_connector(connector);
                Kind::Tls(Client::builder(TokioExecutor::new()).build(connector))
            }
            other => return Err(format!("the scheme must be http or https, found \"{other}\"")),
        };
        Ok(Self { client, door })
    }

    /// Tells the server that nobody waits for its answers any more. One that was on its way still comes.
    pub(crate) fn leave(&self) {
        self.door.leave();
    }

    /// Sends a request.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, SendError> {
        match &self.client {
            Kind::Plain(client) => client.request(request),
            Kind::Tls(client) => client.request(request),
        }
        .await
    }
}

fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_nodelay(true);
    connector
}
