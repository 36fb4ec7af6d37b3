//! Tests from outside the process: the real binary, over HTTP, with real clients, files and signals.

mod bench;
mod journey;
mod node;
