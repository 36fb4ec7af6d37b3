//! Where the claims and the meaning of an id are: table `known_id`.
//!
//! Claims and meanings are written behind each other as they come, numbered, and are found through this. Its rows are
//! small: whatever ids look like, few pages are touched, where rows in the order of random ids would rewrite two pages for
//! every message.

use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// What an id of a tenant is found by. A UUID stands for itself, so that ids which are made in the order of time stay in
/// it; all others are hashed. Two ids may have the same: whoever finds a row compares the id. Nobody can make many of them.
pub(super) fn digest(id: &str, tenant: &str) -> [u8; 16] {
    digest_of(id.as_bytes(), tenant.as_bytes())
}

fn digest_of(id: &[u8], tenant: &[u8]) -> [u8; 16] {
    uuid_of(id).unwrap_or_else(|| {
        let mut hash = Sha256::new();
        // No name of a tenant has a line feed.
        hash.update(tenant);
        hash.update(b"\n");
        hash.update(id);
        let bytes: [u8; 32] = hash.finalize().into();
        std::array::from_fn(|place| bytes[place])
    })
}

/// Whether an id is found whoever's it is.
pub(super) fn is_uuid(id: &str) -> bool {
    uuid_of(id.as_bytes()).is_some()
}

/// A UUID in the one form in which ids are kept: other spellings would be many texts for one.
fn uuid_of(id: &[u8]) -> Option<[u8; 16]> {
    let uuid = Uuid::try_parse_ascii(id).ok().filter(|_| id.len() == Hyphenated::LENGTH)?;
    let mut text = [0; Hyphenated::LENGTH];
    (uuid.as_hyphenated().encode_lower(&mut text).as_bytes() == id).then(|| uuid.into_bytes())
}

/// Makes [`digest`] known to SQL, as `snavio_digest(id, tenant)`.
pub(super) fn offer_digest(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("snavio_digest", 2, flags, |context| {
        // A damaged text is none, and has its digest all the same.
        let bytes = |place| context.get_raw(place).as_bytes().unwrap_or_default();
        Ok(digest_of(bytes(0), bytes(1)).to_vec())
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

/// Whether there may be a row of an id.
pub(super) fn is_there(
    connection: &Connection,
    kind: Kind,
    (id, tenant): (&str, &str),
) -> rusqlite::Result<bool> {
    const THERE: &str = "SELECT 1 FROM known_id WHERE digest = ?1 AND kind = ?2 LIMIT 1";
    connection.prepare_cached(THERE)?.exists((digest(id, tenant), kind as i64))
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
    let deleted: Vec<([u8; 16], i64)> = digests.collect::<Result<_, _>>()?;
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
        assert_ne!(digest("a", "acme"), digest("a", "globex"));
        assert_ne!(digest("a", "acme"), digest("b", "acme"));
        // printf 'acme\ninvoice-4711' | sha256sum: stores hold it.
        let first = [0x58, 0xa6, 0xa3, 0xb7, 0xbc, 0x9f, 0x11, 0x96];
        assert_eq!(digest("invoice-4711", "acme")[..8], first);
    }

    #[test]
    fn uuids_stay_in_their_order_and_have_one_spelling() {
        let id = "0193a1c2-7d1e-7c3a-9f51-2b6f6f0a9d11";
        assert_eq!(digest(id, "acme")[..4], [0x01, 0x93, 0xa1, 0xc2]);
        assert!(digest(id, "acme") < digest("0193a1c2-7d1f-7000-8000-000000000000", "acme"));
        let (upper, plain) = (id.to_uppercase(), id.replace('-', ""));
        for other in [upper, plain, format!("{{{id}}}"), format!("urn:uuid:{id}")] {
            assert_ne!(digest(&other, "acme"), digest(id, "acme"), "{other}");
        }
    }
}
