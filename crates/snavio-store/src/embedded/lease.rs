//! Leases of deliveries that a claim waits for: the columns `visible_at`, `held` and `fence` of table `delivery`. The
//! index in memory decides by what it knows; this is what it knows after a restart.

use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use snavio_model::delivery::Delivery;
use snavio_model::id::Serial;
use snavio_model::time::Timestamp;

use crate::lease::{Held, KeptLease};

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
