//! Tests from outside the process: the real binary, over HTTP, with real clients, files and signals.

mod journey;
mod node;
mod refusals;
mod stream;
mod throttle;
mod token;
mod wire;
