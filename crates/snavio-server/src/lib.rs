//! Snavio over HTTP: configuration, authentication, endpoints, start and stop.
//!
//! The only place that knows axum, the environment and the machine's clock.

mod arriving;
pub mod config;
mod door;
mod failures;
mod http;
mod machine;
mod node;
mod platform;
mod principal;

pub use machine::{MachineClock, random};
pub use node::{Node, StartError};
pub use platform::{OPERATOR_TOKEN_FILE, PLATFORM_KEY_FILE, PlatformError};
pub use snavio_store::embedded::Plant;
