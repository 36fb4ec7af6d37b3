//! The engines that keep the state: SQLite (embedded) and PostgreSQL. They load, lock and write; the model judges.

pub(crate) mod conflict_log;
pub(crate) mod expiry;
pub(crate) mod migration_history;
pub(crate) mod notifiers;
pub mod postgres;
pub mod sqlite;
