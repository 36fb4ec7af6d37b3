//! Leases of deliveries that a claim waits for: the columns `visible_at`, `held` and `fence` of table `delivery`. The
//! index in memory decides by what it knows; this is what it knows after a restart.

use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use snavio_model::delivery::Delivery;
use snavio_model::id::Serial;
use snavio_model::time::Timestamp;

use crate::record::lease::{Held, KeptLease};

/// The columns that [`read`] reads.
pub(super) const COLUMNS: &str = "visible_at, held, fence";

/// Writes how a delivery stands under a lease, unless a later lease is on record: two may come in either order.
pub(super) fn put(connection: &Connection, lease: &KeptLease, under: Serial) -> rusqlite::Result<()> {
    const PUT: &str = "UPDATE delivery SET receives = ?2, visible_at = ?3, held = ?4, fence = ?5 \
         WHERE id = ?1 AND coalesce(fence, 0) <= ?6";
    let values = params![
        lease.delivery.0,
        lease.receives,
        lease.visible_at.map(|it| it.0),
        lease.held.map(Held::as_str),
        lease.fence.map(|it| it.0),
        under.0,
    ];
    connection.prepare_cached(PUT)?.execute(values).map(|_| ())
}

/// Reads the lease of a delivery from this column on.
pub(super) fn read(row: &Row<'_>, first: usize, delivery: &Delivery) -> rusqlite::Result<KeptLease> {
    let held = row.get_ref(first + 1)?.as_str_or_null()?;
    let unknown = || rusqlite::Error::InvalidColumnType(first + 1, "held".to_owned(), Type::Text);
    Ok(KeptLease {
        delivery: delivery.id,
        receives: delivery.receives,
        fence: row.get::<_, Option<i64>>(first + 2)?.map(Serial),
        held: held.map(|word| Held::stored(word).ok_or_else(unknown)).transpose()?,
        visible_at: row.get::<_, Option<i64>>(first)?.map(Timestamp),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::sqlite::{known, layout};

    /// CLM-7
    #[test]
    fn what_is_on_record_of_a_later_lease_stands() {
        let mut connection = Connection::open_in_memory().unwrap();
        known::offer_digest(&connection).unwrap();
        layout::migrate(&mut connection).unwrap();
        let row = "INSERT INTO delivery (id, message, destination, queue, dead_letter_queue, queued_at, receives, \
             receives_max, tracking) VALUES (7, 6, 'acme/bot:book', 'acme/book', 'acme/dead', 0, 0, 3, 2)";
        connection.execute(row, []).unwrap();
        let lease = |receives, fence: Option<i64>, held, until: i64| {
            let (fence, visible_at) = (fence.map(Serial), Some(Timestamp(until)));
            KeptLease { delivery: Serial(7), receives, fence, held, visible_at }
        };
        let on_record = || {
            let query = format!("SELECT receives, {COLUMNS} FROM delivery");
            let read =
                |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get::<_, Option<String>>(2)?, row.get(3)?));
            connection.query_row(&query, [], read).unwrap()
        };
        let second = (2, Some(40), Some("leased".to_owned()), Some(20));
        put(&connection, &lease(2, Some(20), Some(Held::Leased), 40), Serial(20)).unwrap();
        put(&connection, &lease(1, Some(10), Some(Held::Leased), 30), Serial(10)).unwrap();
        assert_eq!(on_record(), second, "the first came behind the second");
        put(&connection, &lease(0, None, None, 0), Serial(10)).unwrap();
        assert_eq!(on_record(), second, "so did that it was taken back");
        put(&connection, &lease(1, None, None, 0), Serial(20)).unwrap();
        assert_eq!(on_record(), (1, Some(0), None, None::<i64>));
    }
}
