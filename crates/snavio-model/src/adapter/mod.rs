//! Adapters: a foreign webhook becomes an event of the service that the adapter speaks for (MSG-7).
//!
//! An adapter is data ([`Adapter`]): how the caller is verified, where the external id and other members come from, and
//! what the event is. [`Verification::verify`] says whether a request is the provider's, [`Adapter::event`] makes a native
//! event of it. The id is made from the content, as the Python reference makes it ([`event_id`]), so that the same webhook
//! is the same event however often it is sent; or it is the external id itself.

mod config;
mod convert;
mod id;
mod python;
mod ready;
mod request;
mod secret;
mod stripe;
mod verification;

pub(crate) use config::EVIDENCE;
pub use config::{Adapter, DataRule, IdRule, Origin, UNSIGNED_ADVICE};
pub use id::{InvalidSource, event_id};
pub use python::dumps;
pub use ready::Preset;
pub use request::WebhookRequest;
pub use secret::{ForeignSecret, InvalidForeignSecret};
pub use verification::{Algorithm, Encoding, Verification, Verified, pretend};

#[cfg(test)]
mod tests;
