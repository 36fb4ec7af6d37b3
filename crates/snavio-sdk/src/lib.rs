//! Client for producers and consumers: signs, sends, retries with the same id, receives, acknowledges.
//!
//! Signing comes from the model, so that a client and the gateway can never disagree about it.
//!
//! A consumer's effects happen once (module `once`) if they and the claim are in one transaction of its own database:
//! feature `sqlite` or `postgres`. [`Receiver`] is the loop around it. docs/guides/consumers.md says how they are used.

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

/// The producers' guide: its program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/producing.md")]
struct ProducingGuide;
