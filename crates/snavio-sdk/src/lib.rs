//! Rust client of Snavio, for producers and consumers.
//!
//! - [`Client`] signs and sends commands and events. It retries under the same message id, so that a retry is
//!   at most a duplicate.
//! - [`Receiver`] is the loop of a consumer: it receives deliveries from a queue, runs your work, and
//!   acknowledges or releases each delivery.
//! - The module `once` commits your effect and its claim in one transaction of your own database, so that
//!   each message has one effect. Enable the feature `sqlite` or `postgres`.
//!
//! The client and the gateway share the code that signs and verifies, so that they cannot disagree about a
//! signature.
//!
//! See docs/guides/producing.md and docs/guides/consumers.md for complete programs.

mod api;
mod client;
mod delivered;
mod following;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub mod once;
#[cfg(feature = "postgres")]
pub mod postgres;
mod receiver;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use api::{Api, ApiError};
pub use client::{Answer, Client, Command, Credentials, Delivery, Event};
pub use delivered::{Delivered, DeliveredCommand, DeliveredEvent};
pub use receiver::{Done, Receiver};

/// Compiles the program of the producers' guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/producing.md")]
struct ProducingGuide;
