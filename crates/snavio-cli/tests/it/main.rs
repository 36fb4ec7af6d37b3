//! Tests from outside the process: the real binary, over HTTP, with real clients, files and signals.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod audit;
mod bad_input;
mod batches;
mod canary;
mod commands_line;
mod consumer;
mod consumer_kills;
mod consuming;
mod dry_run;
mod embedded;
mod engine;
mod grant_requests;
mod hanging_up;
mod health;
mod journey;
mod keys;
mod metrics;
mod node;
mod openapi;
mod overload;
mod paging;
mod patience;
mod people;
mod platform_key;
mod postgres;
mod queue;
mod races;
mod raw_wire;
mod refusals;
mod registry;
mod scripted_server;
mod server_limits;
mod shell;
mod snapshots;
mod strace;
mod stream;
mod telemetry;
mod throttle;
mod tls;
mod token;
mod walk;
mod webhooks;
mod wire;
mod workloads;
