//! Effects once (CLM-10) on both databases, with the real engines: a suite that both run, and what is about one alone.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod consumer;
mod lost_commit;
mod on_postgres;
mod on_sqlite;
mod processes;
mod seen;
mod suite;
