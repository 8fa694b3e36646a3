//! The tower layer: intercepts slow `tools/call` requests, runs them in the background, returns handles,
//! and serves `tasks/get`, `tasks/update` and `tasks/cancel` from the store.
//!
//! The layer is usable alone, around any service that takes a [`Call`](crate::protocol::Call) and gives
//! a [`Reply`](crate::protocol::Reply). This one takes a while to answer, so its callers get a handle:
//!
//! ```
//! use std::convert::Infallible;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use raincheck::clock::SystemClock;
//! use raincheck::config::{Mode, ToolPolicy};
//! use raincheck::jobs::Jobs;
//! use raincheck::policy::Policies;
//! use raincheck::protocol::{Call, Caller, Credentials, Json, Method, Outcome, Params, Principal, Reply};
//! use raincheck::runner::{Bounds, Runner};
//! use raincheck::store::Store;
//! use raincheck::tasks::TasksLayer;
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let config = raincheck::config::StoreConfig {
//! #     path: folder.path().join("store"), durability: raincheck::config::Durability::Process,
//! #     cache_bytes: 8 << 20, min_free_bytes: Some(0), max_tasks: 1000,
//! # };
//! let jobs = Jobs::new();
//! let store = Store::open(&config, Arc::new(SystemClock), &jobs)?.store;
//! let runner = Runner::new(store, jobs, Bounds { running: 100, waiting: 100, rate: None });
//! let policies = Policies::uniform(ToolPolicy { mode: Mode::Task, ..ToolPolicy::default() });
//!
//! let my_mcp_service = service_fn(|_call: Call| async {
//!     tokio::time::sleep(Duration::from_millis(20)).await;
//!     let result = serde_json::json!({ "content": [{ "type": "text", "text": "the report" }] });
//!     Ok::<_, Infallible>(Reply::ready(Outcome::Result(Json::from_value(&result))))
//! });
//! let mut service =
//!     ServiceBuilder::new().layer(TasksLayer::new(runner, "reports", policies)).service(my_mcp_service);
//!
//! // A client of 2026-07-28 that declares the extension.
//! let call = |method: &str, mut params: serde_json::Value| {
//!     params["_meta"] = serde_json::json!({ "io.modelcontextprotocol/clientCapabilities": {
//!         "extensions": { "io.modelcontextprotocol/tasks": {} } } });
//!     let method = Method::of(method);
//!     let params = Params::read(&method, Some(Json::from_value(&params))).unwrap();
//!     let caller = Caller::of_modern(&params, Principal::Local, Credentials::default());
//!     Call { method, params, caller, arrived: tokio::time::Instant::now() }
//! };
//! let reply = service.ready().await?.call(call("tools/call", serde_json::json!({ "name": "report" }))).await?;
//! let Outcome::Task(handle) = reply.outcome().await else { panic!("no handle") };
//! let created: serde_json::Value = handle.created.clone().into_json().read()?;
//! handle.delivery.delivered();
//!
//! let mut task = created.clone();
//! while task["status"] == "working" {
//!     tokio::time::sleep(Duration::from_millis(created["pollIntervalMs"].as_u64().unwrap())).await;
//!     let get = call("tasks/get", serde_json::json!({ "taskId": created["taskId"] }));
//!     let Outcome::Shaped(shaped) = service.ready().await?.call(get).await?.outcome().await else { panic!() };
//!     task = shaped.into_json().read()?;
//! }
//! assert_eq!(task["result"]["content"][0]["text"], "the report");
//! # Ok(())
//! # }
//! ```
//!
//! An HTTP service that is an MCP server of 2026-07-28, such as a router, fits behind an [`HttpAdapter`]:
//!
//! ```
//! # use std::convert::Infallible;
//! # use bytes::Bytes;
//! # use http_body_util::{BodyExt, Full};
//! # use raincheck::jobs::Jobs;
//! # use raincheck::policy::Policies;
//! # use raincheck::protocol::{Call, Caller, Credentials, Json, Method, Outcome, Params, Principal};
//! # use raincheck::runner::{Bounds, Runner};
//! # use raincheck::store::Store;
//! # use raincheck::tasks::{HttpAdapter, HttpLimits, TasksLayer};
//! # use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let config = raincheck::config::StoreConfig {
//! #     path: folder.path().join("store"), durability: raincheck::config::Durability::Process,
//! #     cache_bytes: 8 << 20, min_free_bytes: Some(0), max_tasks: 1000,
//! # };
//! # let jobs = Jobs::new();
//! # let store = Store::open(&config, std::sync::Arc::new(raincheck::clock::SystemClock), &jobs)?.store;
//! # let runner = Runner::new(store, jobs.clone(), Bounds { running: 100, waiting: 100, rate: None });
//! # let policies = Policies::uniform(raincheck::config::ToolPolicy::default());
//! let my_http_service = service_fn(|request: http::Request<Full<Bytes>>| async {
//!     let asked: serde_json::Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes()).unwrap();
//!     let result = serde_json::json!({ "content": [{ "type": "text", "text": "quick" }], "resultType": "complete" });
//!     let answer = serde_json::json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result });
//!     let response = http::Response::builder().header("content-type", "application/json");
//!     Ok::<_, Infallible>(response.body(Full::new(Bytes::from(answer.to_string()))).unwrap())
//! });
//! let limits = HttpLimits { message: 1 << 20, depth: 64 };
//! let mut service = ServiceBuilder::new()
//!     .layer(TasksLayer::new(runner, "reports", policies))
//!     .service(HttpAdapter::new(my_http_service, "/mcp", jobs, limits));
//!
//! # let params = Params::read(&Method::CallTool, Some(Json::from_value(&serde_json::json!({ "name": "quick" })))).unwrap();
//! # let caller = Caller::of_modern(&params, Principal::Local, Credentials::default());
//! # let call = Call { method: Method::CallTool, params, caller, arrived: tokio::time::Instant::now() };
//! // Quick enough: the answer itself.
//! let Outcome::Result(result) = service.ready().await?.call(call).await?.outcome().await else { panic!() };
//! assert!(result.as_str().contains("quick"));
//! # Ok(())
//! # }
//! ```

mod advert;
mod companion;
mod elsewhere;
mod fallback;
mod forwards;
mod handle;
mod http;
mod layer;
mod legacy;
mod listen;
mod refused;
mod service;
mod storeless;

pub use elsewhere::Elsewhere;
pub use http::{HttpAdapter, HttpLimits};
pub use layer::TasksLayer;
pub use service::{TasksService, discover};
pub use storeless::Storeless;
