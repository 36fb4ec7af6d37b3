//! Tests from outside the process: the real binary, over HTTP, with real clients, files and signals.

mod bad_input;
mod batches;
mod consumer;
mod flush_order;
mod journey;
mod node;
mod patience;
mod queue;
mod races;
mod registry;
mod strace;
mod telemetry;
mod webhooks;
mod wire;
