//! Legal holds: table `hold`, numbered by serial; a row is in force until it is lifted (CLM-18).

use rusqlite::{Connection, Row, params};
use snavio_model::archive::hold::{Hold, InForce, Lifted};
use snavio_model::bounds;
use snavio_model::id::Serial;
use snavio_model::name::TenantName;
use snavio_model::time::Timestamp;

use super::audit;
use super::check::{self, unreadable};
use super::writer::{Transaction, sql};
use crate::api::archive::{NewHold, held, hold_deed, lifted, of_hold, parts};
use crate::{Act, StoreError};

const COLUMNS: &str =
    "seq, tenant, event_id, destination, at, who, why, lifted_at, lifted_by, lifted_why, check_value";

/// Nothing if the tenant has as many in force as it may.
pub(super) fn set(
    transaction: &mut Transaction<'_>,
    hold: NewHold,
    act: &Act,
) -> Result<Option<Hold>, StoreError> {
    const COUNT: &str = "SELECT count(*) FROM hold WHERE tenant = ?1 AND lifted_at IS NULL";
    let mut statement = transaction.connection.prepare_cached(COUNT).map_err(sql)?;
    let in_force = statement.query_row([hold.tenant.as_str()], |row| row.get::<_, i64>(0)).map_err(sql)?;
    if in_force >= bounds::HOLDS_PER_TENANT_MAX as i64 {
        return Ok(None);
    }
    let hold = hold.with(transaction.numbers.next(), act);
    insert(transaction.connection, &hold).map_err(sql)?;
    let deed = hold_deed(&hold);
    audit::append(transaction, deed.action, &deed.object, act, &deed.outcome)?;
    Ok(Some(hold))
}

fn insert(connection: &Connection, hold: &Hold) -> rusqlite::Result<()> {
    let insert =
        format!("INSERT INTO hold ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)");
    let ((id, destination), lifted) = (parts(&hold.held), hold.lifted.as_ref());
    let values = params![
        hold.id.0,
        hold.tenant.as_str(),
        id,
        destination,
        hold.at.0,
        hold.who,
        hold.why,
        lifted.map(|it| it.at.0),
        lifted.map(|it| &it.who),
        lifted.map(|it| &it.why),
        of_hold(hold),
    ];
    connection.prepare_cached(&insert)?.execute(values).map(|_| ())
}

/// Lifts a hold that is in force.
pub(super) fn lift(
    transaction: &mut Transaction<'_>,
    id: Serial,
    act: &Act,
) -> Result<Option<Hold>, StoreError> {
    const LIFT: &str =
        "UPDATE hold SET lifted_at = ?2, lifted_by = ?3, lifted_why = ?4, check_value = ?5 WHERE seq = ?1";
    let hold = match find(transaction.connection, id)? {
        Some(hold) if hold.lifted.is_none() => lifted(hold, act),
        other => return Ok(other),
    };
    let values = params![id.0, act.at.0, act.who, act.why, of_hold(&hold)];
    transaction.connection.prepare_cached(LIFT).and_then(|mut it| it.execute(values)).map_err(sql)?;
    let deed = hold_deed(&hold);
    audit::append(transaction, deed.action, &deed.object, act, &deed.outcome)?;
    Ok(Some(hold))
}

pub(super) fn find(connection: &Connection, id: Serial) -> Result<Option<Hold>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM hold WHERE seq = ?1");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query([id.0]).map_err(sql)?;
    rows.next().map_err(sql)?.map(read).transpose()
}

pub(super) fn page(
    connection: &Connection,
    tenant: Option<&str>,
    lifted_too: bool,
    after: Serial,
    limit: usize,
) -> Result<Vec<Hold>, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM hold WHERE seq > ?1 AND (?2 IS NULL OR tenant = ?2) \
         AND (?3 OR lifted_at IS NULL) ORDER BY seq"
    );
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query(params![after.0, tenant, lifted_too]).map_err(sql)?;
    check::page(&mut rows, limit, read)
}

/// All that are in force. A damaged one is an error: what it is on cannot be known, so nothing may go. One that was lifted
/// says by whom; one that does not is damaged.
pub(super) fn in_force(connection: &Connection) -> Result<InForce, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM hold WHERE lifted_at IS NULL OR lifted_by IS NULL OR lifted_why IS NULL"
    );
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query([]).map_err(sql)?;
    let mut holds = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        holds.push(read(row)?);
    }
    Ok(InForce::of(holds))
}

/// Hands out all of them in the order of their numbers.
pub(super) fn each(
    connection: &Connection,
    take: impl FnMut(Result<Hold, StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    check::each(connection, &format!("SELECT {COLUMNS} FROM hold ORDER BY seq"), read, take)
}

fn read(row: &Row<'_>) -> Result<Hold, StoreError> {
    let number = Serial(row.get(0).map_err(sql)?);
    let damaged = || StoreError::Damaged { what: "hold", key: number.to_string() };
    let fields = fields(row, number).map_err(|error| unreadable(error, "hold", number))?;
    let (hold, check) = fields.ok_or_else(damaged)?;
    if check != of_hold(&hold) {
        return Err(damaged());
    }
    Ok(hold)
}

fn fields(row: &Row<'_>, id: Serial) -> rusqlite::Result<Option<(Hold, i64)>> {
    let text = |column: usize| row.get::<_, Option<String>>(column);
    let Ok(tenant) = TenantName::new(row.get_ref(1)?.as_str()?) else { return Ok(None) };
    let lifted = match (row.get::<_, Option<i64>>(7)?, text(8)?, text(9)?) {
        (Some(at), Some(who), Some(why)) => Some(Lifted { who, why, at: Timestamp(at) }),
        (None, None, None) => None,
        _ => return Ok(None),
    };
    let hold = Hold {
        id,
        tenant,
        held: held(text(2)?.as_deref(), text(3)?.as_deref()),
        who: row.get(5)?,
        why: row.get(6)?,
        at: Timestamp(row.get(4)?),
        lifted,
    };
    Ok(Some((hold, row.get(10)?)))
}
