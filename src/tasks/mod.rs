//! The tower layer: intercepts slow `tools/call` requests, runs them in the background, returns handles,
//! and serves `tasks/get`, `tasks/update` and `tasks/cancel` from the store.

mod advert;
mod handle;
mod layer;
mod service;

pub use layer::TasksLayer;
pub use service::TasksService;
