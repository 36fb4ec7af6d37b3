//! Outside destinations: what this gateway calls, one file for each kind, and the guard that all of them go through.
//!
//! The only place of a node that makes calls. It depends on the model, knows no store, and decides nothing about a
//! message: what came of a call is an [`Ending`](snavio_model::processing::Ending), and the rest is the caller's.

mod address;
pub mod guard;
mod http_processor;
mod parcel;

pub use address::Network;
pub use http_processor::{Call, HttpProcessor};
