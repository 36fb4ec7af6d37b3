//! Tests from outside the process: the real binary, over HTTP, with real clients, files and signals.

mod crash;
mod faults;
mod flush_order;
mod journey;
mod node;
mod strace;
