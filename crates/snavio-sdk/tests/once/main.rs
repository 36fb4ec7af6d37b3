//! Effects that happen once (CLM-10), on SQLite and PostgreSQL: a suite that both run, and tests of one
//! database alone.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod consumer;
mod lost_commit;
mod on_postgres;
mod on_sqlite;
mod processes;
mod seen;
mod suite;
