//! Tests from outside the process: the real binary, over HTTP, with real clients, files and signals.

mod health;
mod journey;
mod node;
mod openapi;
mod paging;
mod refusals;
mod server_limits;
mod stream;
mod throttle;
mod tls;
mod token;
mod wire;
