//! Client for producers and consumers: signs, sends, retries with the same id, receives, acknowledges.
//!
//! Signing comes from the model, so that a client and the gateway can never disagree about it.

mod api;
mod client;
mod following;

pub use api::{Api, ApiError};
pub use client::{Answer, Client, Command, Credentials, Delivered, Delivery};
