//! Snavio over HTTP: configuration, authentication, endpoints, start and stop.
//!
//! The only place that knows axum; `machine.rs` is the one file of a node that asks for dates and randomness.
//! How long something takes is measured by tokio's clock.

mod ambiguous;
mod arriving;
pub mod config;
mod door;
mod failures;
mod host;
mod http;
mod jws;
mod key_sets;
mod listener;
mod load;
mod machine;
mod member;
mod node;
mod outlive;
mod overreach;
mod person;
mod platform;
mod platform_key;
mod polls;
mod principal;
mod processor;
mod recorder;
mod tls;
mod turns;

pub use machine::{CLOCK_DISTANCE_MAX, MachineClock, random};
pub use node::{CLOCK_BEHIND_MAX, Node, PLATFORM_KEY_PIN, StartError};
pub use overreach::SECURITY_LOG;
pub use platform::{OPERATOR_TOKEN_FILE, PLATFORM_KEY_FILE, PlatformError, changelog_public_key};
pub use platform_key::{KeySource, make_platform_key};
pub use snavio_store::engine::sqlite::Plant;
pub use tls::{TlsError, check_tls};
