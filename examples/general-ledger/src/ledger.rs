//! The books, in SQLite.
//!
//! One transaction holds an entry, its lines, its number and the response. So a crash at any moment leaves
//! all of them or none.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use sha2::{Digest, Sha256};
use snavio_sdk::once::OnceError;
use snavio_sdk::sqlite::rusqlite::{
    self, Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params,
};

use crate::entry::Entry;
use crate::message::Message;

/// Opens the database, or creates it.
pub(crate) fn open(path: &Path, lock_wait: Duration) -> Result<Connection, OnceError> {
    let connection = Connection::open(path).map_err(failed)?;
    connection.busy_timeout(lock_wait).map_err(failed)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
    // A response may be sent only after its commit is on disk.
    connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(failed)?;
    connection.execute_batch(include_str!("ledger.sql")).map_err(failed)?;
    Ok(connection)
}

/// Posts the entry of a message and returns the response. If the message was posted before, returns the first
/// response. The same id with other content is [`OnceError::OtherContent`].
pub(crate) fn post_once(
    connection: &mut Connection,
    message: &Message<'_>,
    entry: &Entry,
) -> Result<String, OnceError> {
    // Takes the write lock at once, so that the second of two concurrent requests finds the entry of the
    // first.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let hash = hex::encode(Sha256::digest(message.payload));
    if let Some((first_hash, answer)) = stored_response(&transaction, message).map_err(failed)? {
        return if first_hash == hash { Ok(answer) } else { Err(OnceError::OtherContent) };
    }
    let reference = post(&transaction, &message.tenant, &message.id, entry).map_err(failed)?;
    let answer = answer(&reference, &message.id, entry)?;
    let insert =
        "INSERT INTO answered (tenant, idempotency_key, payload_sha256, answer) VALUES (?1, ?2, ?3, ?4)";
    transaction.execute(insert, params![message.tenant, message.id, hash, answer]).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    Ok(answer)
}

/// The stored response to a message id and the hash of the payload that it answered.
fn stored_response(
    transaction: &Transaction<'_>,
    message: &Message<'_>,
) -> rusqlite::Result<Option<(String, String)>> {
    let select = "SELECT payload_sha256, answer FROM answered WHERE tenant = ?1 AND idempotency_key = ?2";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    transaction.query_row(select, params![message.tenant, message.id], read).optional()
}

/// Writes an entry under the next reference of its year. The caller's transaction must make sure that a
/// message is posted once.
pub(crate) fn post(
    transaction: &Transaction<'_>,
    tenant: &str,
    message_id: &str,
    entry: &Entry,
) -> rusqlite::Result<String> {
    let year = entry.posting_date().year();
    let count = "INSERT INTO counter (year, last) VALUES (?1, 1)
        ON CONFLICT (year) DO UPDATE SET last = last + 1 RETURNING last";
    let number: i64 = transaction.query_row(count, [year], |row| row.get(0))?;
    let reference = format!("JE-{year}-{number:06}");
    let insert =
        "INSERT INTO journal_entry (reference, year, number, tenant, message_id, posting_date, currency)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let date = entry.posting_date().to_string();
    transaction
        .execute(insert, params![reference, year, number, tenant, message_id, date, entry.currency()])?;
    let insert = "INSERT INTO line (reference, number, account, debit_cents, credit_cents)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    for (at, line) in (1_i64..).zip(entry.lines()) {
        let (debit, credit) = (line.debit.cents, line.credit.cents);
        transaction.execute(insert, params![reference, at, line.account, debit, credit])?;
    }
    Ok(reference)
}

/// The response. Members keep this order, because some readers compare the text.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    gl_posting_reference: &'a str,
    event_id: &'a str,
    posting_date: String,
    currency: &'a str,
    total: String,
}

fn answer(reference: &str, id: &str, entry: &Entry) -> Result<String, OnceError> {
    let answer = Answer {
        gl_posting_reference: reference,
        event_id: id,
        posting_date: entry.posting_date().to_string(),
        currency: entry.currency(),
        total: entry.total().to_string(),
    };
    serde_json::to_string(&answer).map_err(|error| OnceError::Effect(error.into()))
}

pub(crate) fn failed(error: rusqlite::Error) -> OnceError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OnceError::Busy(error.into()),
        _ => OnceError::Database(error.into()),
    }
}
