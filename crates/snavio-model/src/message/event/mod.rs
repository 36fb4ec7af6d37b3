//! Events as they travel in their native form (MSG-5): read by the gateway, written by clients.

mod envelope;
mod read;
mod write;

pub use envelope::EventEnvelope;
pub use read::NativeEvent;
pub use write::NewEvent;

#[cfg(test)]
mod tests;
