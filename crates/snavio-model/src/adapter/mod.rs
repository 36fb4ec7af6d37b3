//! Adapters: a foreign webhook becomes an event of the service that the adapter acts for (MSG-7).
//!
//! An adapter is data ([`Adapter`]): the verification of the caller, the places of the external id and other
//! members, and the form of the event. [`Verification::verify`] checks that the provider sent the request;
//! [`Adapter::event`] converts it into a native event. The id is derived from the content as in the Python
//! reference ([`event_id`]), so that a repeated webhook is the same event; or it is the external id itself.

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
