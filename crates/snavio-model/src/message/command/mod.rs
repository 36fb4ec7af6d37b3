//! Commands as they travel (MSG-1, MSG-2): read by the gateway, written by clients.

mod read;
mod write;

pub use read::CommandEnvelope;
pub use write::NewCommand;

/// The `metadata.type` of every command.
pub const COMMAND_TYPE: &str = "snavio.command-sent";

#[cfg(test)]
mod tests;
