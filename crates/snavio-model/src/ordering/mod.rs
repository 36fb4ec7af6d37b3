//! Order per entity: which number a message has, and what that means for it (ORD-1 to ORD-5, ORD-7).
//!
//! A route says how its messages are ordered ([`Order`]); with the platform's defaults that becomes [`Rules`]. A message
//! has a [`Position`] or none. [`judge`] takes the state of its entity, decides, and gives the state after it. The state is
//! bounded ([`EntityState`]), whatever is sent.
//!
//! Judging is one step with the claim (ORD-2): a store loads the state under the lock of its entity, judges, and writes the
//! new state in the commit of the message. If the message is not written, for want of room or whatever else, its new state
//! is not written either. A message that its claim knows is never judged but as [`Arrival::applied`].

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
