//! CloudEvents 1.0 over HTTP in structured, binary and batch mode (MSG-6). The gateway reads them strictly,
//! converts them into native events, and writes them again without loss.
//!
//! | CloudEvents | native event |
//! | --- | --- |
//! | `id` | `eventId` |
//! | `type` | `eventType` |
//! | `source` | `source`; also in `metadata.cloudevents` as sent, if it is a URI that names the service |
//! | `time` | `timestamp` |
//! | `data`, `data_base64` | `data` ([`Data`]) |
//! | extension `correlationid` | `correlationId` |
//! | extension `traceparent` | the message's trace |
//! | extension `eventversion` | `version` |
//! | extension `snaviometadata` | `metadata`, as JSON text |
//! | `subject`, `dataschema`, `datacontenttype`, all other extensions | `metadata.cloudevents` |
//!
//! # Attributes without a native member
//!
//! The metadata of the native event has one member for them, `cloudevents`. It is an object of attributes in
//! the JSON form of CloudEvents ([`kept`]). It is inside the metadata because every rule for metadata applies
//! to it: it is stored, archived, delivered, counted and erased with the metadata, and the content hash does
//! not cover it (MSG-9). A consumer that takes the event in its native form finds subject and extensions
//! there.
//!
//! A producer of native events may write this member itself. A delivery as a CloudEvent then omits entries
//! that are no valid attributes, and a source that does not name the sender.

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
