//! Outside destinations: what this gateway calls, one file for each kind, and the guard that all of them go through.
//!
//! The only place of a node that makes calls. It depends on the model, knows no store, and decides nothing about a
//! message: what came of a call is a [`Called`](snavio_model::delivery::processing::Called), and the rest is the caller's.

mod address;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod guard;
mod http;
mod http_processor;
mod http_push;
mod lookups;
mod parcel;
mod sink;

pub use address::Network;
pub use http_processor::HttpProcessor;
pub use http_push::HttpPush;
pub use sink::{Call, Sink};
