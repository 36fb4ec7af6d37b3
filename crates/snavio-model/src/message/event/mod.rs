//! Events on the wire in their native form (MSG-5): the gateway reads them, and clients write them.

mod envelope;
mod read;
mod write;

pub use envelope::EventEnvelope;
pub use read::NativeEvent;
pub use write::NewEvent;

#[cfg(test)]
mod tests;
