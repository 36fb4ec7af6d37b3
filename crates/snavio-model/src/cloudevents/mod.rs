//! CloudEvents 1.0 over HTTP, in structured, binary and batch mode (MSG-6): read strictly, turned into the native event
//! and written from it again without loss.
//!
//! | CloudEvents | native event |
//! | --- | --- |
//! | `id` | `eventId` |
//! | `type` | `eventType` |
//! | `source` | `source`; as it was given in `metadata.cloudevents` when it is a URI that names the service |
//! | `time` | `timestamp` |
//! | `data`, `data_base64` | `data` ([`Data`]) |
//! | extension `correlationid` | `correlationId` |
//! | extension `traceparent` | the message's trace |
//! | extension `eventversion` | `version` |
//! | extension `snaviometadata` | `metadata`, as JSON text |
//! | `subject`, `dataschema`, `datacontenttype`, all other extensions | `metadata.cloudevents` |
//!
//! # Where the rest is kept
//!
//! What the native event has no member for is kept in one member of its metadata, `cloudevents`, an object of attributes
//! as CloudEvents' own JSON has them ([`kept`]). It is not a field beside the metadata, because everything that is right
//! for metadata is right for it: it is stored, archived, delivered, counted and erased with it, it is outside the domain
//! hash (MSG-9), and whoever takes the event in its native form finds subject and extensions there. A producer of native
//! events may write the member by itself; what is no attribute there is not written out, and a source that does not name
//! the sender neither.

mod attribute;
mod binary;
mod data;
mod draft;
mod event;
pub mod kept;
mod media;
mod mode;
mod source;
mod structured;
mod write;

pub use attribute::Value;
pub use binary::BinaryForm;
pub use data::{Data, DataKind};
pub use event::CloudEvent;
pub use media::is_utf8;
pub use mode::{Mode, UTF8_RULE};
pub use source::Source;
pub use structured::batch;

#[cfg(test)]
mod tests;
