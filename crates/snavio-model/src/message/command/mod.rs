//! Commands on the wire (MSG-1, MSG-2): the gateway reads them, and clients write them.

mod read;
mod write;

pub use read::CommandEnvelope;
pub use write::NewCommand;

/// The `metadata.type` of every command.
pub const COMMAND_TYPE: &str = "snavio.command-sent";

#[cfg(test)]
mod tests;
