//! What takes calls.

use std::convert::Infallible;

use tower_service::Service;

use super::call::Call;
use super::reply::Reply;

/// An MCP server, as each layer sees the next: a tower service of [`Call`]s that is told in the [`Reply`] what went wrong, and
/// never fails itself. Every service of that shape is one.
pub trait McpService:
    Service<Call, Response = Reply, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<S> McpService for S where
    S: Service<Call, Response = Reply, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}
