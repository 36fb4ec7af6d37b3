//! Order per entity: the number of a message and the decision that follows from it (ORD-1 to ORD-5, ORD-7).
//!
//! A route has ordering settings ([`Order`]); with the platform's defaults they become [`Rules`]. A message
//! has a [`Position`] or none. [`judge`] takes the state of its entity, decides, and returns the new state.
//! The state is bounded ([`EntityState`]), whatever producers send.
//!
//! The judgement is one step with the claim (ORD-2): a store loads the state under the entity's lock, judges,
//! and writes the new state in the commit of the message. If the store does not write the message, for lack
//! of space or another reason, it does not write the new state either. A message with an existing claim is
//! judged only as [`Arrival::applied`].

mod config;
mod gaps;
mod judge;
mod park;
mod place;
mod position;
mod state;

pub use config::{Mode, OnFailure, Order, OrderDefaults, Rules};
pub use gaps::{Gap, Gaps};
pub use judge::{Action, Arrival, Judged, Verdict, end_waits, judge};
pub use park::{AfterFailure, NotParked};
pub use place::{EntityRecord, Lane, Lanes, Place, Placed};
pub use position::{NumberKind, Position};
pub use state::{EntityKey, EntityState, Released, Waiting};

#[cfg(test)]
mod tests;
