//! Signatures over messages, requests and webhooks.

pub mod ed25519;
pub mod signed_request;
pub mod signing;
pub mod webhook;
