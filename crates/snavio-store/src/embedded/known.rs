//! Where the claims and the meaning of an id are: table `known_id`.
//!
//! Claims and meanings are written behind each other as they come, numbered, and are found through this. Its rows are
//! three numbers: whatever ids look like, few pages are touched, where rows in the order of random ids would rewrite two
//! pages for every message.

use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use sha2::{Digest as _, Sha256};

/// A number for an id of a tenant. Two ids may have the same: whoever finds a row compares the id. It cannot be aimed at
/// another tenant's ids.
pub(super) fn digest(id: &str, tenant: &str) -> i64 {
    digest_of(id.as_bytes(), tenant.as_bytes())
}

fn digest_of(id: &[u8], tenant: &[u8]) -> i64 {
    let mut hash = Sha256::new();
    // No name of a tenant has a line feed.
    hash.update(tenant);
    hash.update(b"\n");
    hash.update(id);
    let bytes: [u8; 32] = hash.finalize().into();
    let (first, _) = bytes.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
    i64::from_be_bytes(*first)
}

/// Makes [`digest`] known to SQL, as `snavio_digest(id, tenant)`.
pub(super) fn offer_digest(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("snavio_digest", 2, flags, |context| {
        // A damaged text is none, and has its digest all the same.
        let bytes = |place| context.get_raw(place).as_bytes().unwrap_or_default();
        Ok(digest_of(bytes(0), bytes(1)))
    })
}

/// What a number is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Claim = 0,
    Original = 1,
}

/// Notes where a row of an id is.
pub(super) fn note(
    connection: &Connection,
    kind: Kind,
    (id, tenant): (&str, &str),
    number: i64,
) -> rusqlite::Result<()> {
    const NOTE: &str = "INSERT OR IGNORE INTO known_id (digest, kind, number) VALUES (?1, ?2, ?3)";
    connection.prepare_cached(NOTE)?.execute((digest(id, tenant), kind as i64, number)).map(|_| ())
}

/// Runs a deletion that gives back `id, tenant, number` of each row, and forgets them; says how many there were.
pub(super) fn delete(
    connection: &Connection,
    kind: Kind,
    deletion: &str,
    values: &[&dyn rusqlite::ToSql],
) -> rusqlite::Result<usize> {
    const FORGET: &str = "DELETE FROM known_id WHERE digest = ?1 AND kind = ?2 AND number = ?3";
    let mut statement = connection.prepare_cached(deletion)?;
    let digests = statement.query_map(values, |row| {
        let bytes = |place| row.get_ref(place).map(|it| it.as_bytes().unwrap_or_default());
        Ok((digest_of(bytes(0)?, bytes(1)?), row.get(2)?))
    })?;
    let deleted: Vec<(i64, i64)> = digests.collect::<Result<_, _>>()?;
    let mut forget = connection.prepare_cached(FORGET)?;
    for (digest, number) in &deleted {
        forget.execute((digest, kind as i64, number))?;
    }
    Ok(deleted.len())
}

/// What is kept of ids that does not lead to them: it would be taken for new.
pub(super) fn lost(connection: &Connection) -> rusqlite::Result<i64> {
    const LOST: &str = "SELECT count(*) FROM \
         (SELECT id, tenant, 0 AS kind, number FROM claim UNION ALL SELECT id, tenant, 1, number FROM original) AS kept \
         WHERE NOT EXISTS (SELECT 1 FROM known_id WHERE known_id.digest = snavio_digest(kept.id, kept.tenant) \
             AND known_id.kind = kept.kind AND known_id.number = kept.number)";
    offer_digest(connection)?;
    connection.query_row(LOST, [], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_of_both_and_stays_the_same_for_ever() {
        assert_eq!(digest("a", "acme"), digest("a", "acme"));
        assert_ne!(digest("a", "acme"), digest("a", "globex"));
        assert_ne!(digest("a", "acme"), digest("b", "acme"));
        // printf 'acme\ninvoice-4711' | sha256sum
        let first = i64::from_be_bytes([0x58, 0xa6, 0xa3, 0xb7, 0xbc, 0x9f, 0x11, 0x96]);
        assert_eq!(digest("invoice-4711", "acme"), first, "stores hold it");
    }
}
