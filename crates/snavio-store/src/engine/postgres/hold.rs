//! Legal holds: table `hold`, numbered by serial; a row is in force until it is lifted (CLM-18).

use snavio_model::archive::hold::{Hold, InForce, Lifted};
use snavio_model::bounds;
use snavio_model::id::Serial;
use snavio_model::name::TenantName;
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::audit;
use super::client::{Client, GenericClient};
use super::horizon::BLOCK;
use super::pool::sql;
use crate::api::archive::{NewHold, held, hold_deed, lifted, of_hold, parts};
use crate::record::check_value::usable;
use crate::{Act, StoreError};

const COLUMNS: &str =
    "seq, tenant, event_id, destination, at, who, why, lifted_at, lifted_by, lifted_why, check_value";

/// Nothing if the tenant has as many in force as it may.
pub(super) async fn set(client: &mut Client, hold: NewHold, act: &Act) -> Result<Option<Hold>, StoreError> {
    const ALONE: &str = "LOCK TABLE hold IN SHARE ROW EXCLUSIVE MODE";
    const COUNT: &str = "SELECT count(*) FROM hold WHERE tenant = $1 AND lifted_at IS NULL";
    let transaction = client.transaction().await.map_err(sql)?;
    transaction.execute(ALONE, &[]).await.map_err(sql)?;
    let row = transaction.query_one(COUNT, &[&hold.tenant.as_str()]).await.map_err(sql)?;
    if row.try_get::<_, i64>(0).map_err(sql)? >= bounds::HOLDS_PER_TENANT_MAX as i64 {
        return Ok(None);
    }
    let base: i64 = transaction.query_one(BLOCK, &[]).await.and_then(|row| row.try_get(0)).map_err(sql)?;
    let hold = hold.with(Serial(base + 1), act);
    insert(&transaction, std::slice::from_ref(&hold)).await?;
    audit::append(&transaction, act, &[hold_deed(&hold)]).await?;
    transaction.commit().await.map_err(sql)?;
    Ok(Some(hold))
}

/// Writes holds that have their numbers.
pub(super) async fn insert(client: &impl GenericClient, holds: &[Hold]) -> Result<(), StoreError> {
    let insert =
        format!("INSERT INTO hold ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)");
    let statement = client.prepare_cached(&insert).await.map_err(sql)?;
    for hold in holds {
        let ((id, destination), lifted) = (parts(&hold.held), hold.lifted.as_ref());
        let (at, by, why) =
            (lifted.map(|it| it.at.0), lifted.map(|it| it.who.as_str()), lifted.map(|it| it.why.as_str()));
        let (tenant, check) = (hold.tenant.as_str(), of_hold(hold));
        let values: [&(dyn ToSql + Sync); 11] = [
            &hold.id.0,
            &tenant,
            &id,
            &destination,
            &hold.at.0,
            &hold.who,
            &hold.why,
            &at,
            &by,
            &why,
            &check,
        ];
        client.execute(&statement, &values).await.map_err(sql)?;
    }
    Ok(())
}

/// Lifts a hold that is in force.
pub(super) async fn lift(client: &mut Client, id: Serial, act: &Act) -> Result<Option<Hold>, StoreError> {
    const LIFT: &str =
        "UPDATE hold SET lifted_at = $2, lifted_by = $3, lifted_why = $4, check_value = $5 WHERE seq = $1";
    let transaction = client.transaction().await.map_err(sql)?;
    let hold = match find(&transaction, id, "FOR UPDATE").await? {
        Some(hold) if hold.lifted.is_none() => lifted(hold, act),
        other => return Ok(other),
    };
    let values: [&(dyn ToSql + Sync); 5] = [&id.0, &act.at.0, &act.who, &act.why, &of_hold(&hold)];
    transaction.execute(LIFT, &values).await.map_err(sql)?;
    audit::append(&transaction, act, &[hold_deed(&hold)]).await?;
    transaction.commit().await.map_err(sql)?;
    Ok(Some(hold))
}

pub(super) async fn find(
    client: &impl GenericClient,
    id: Serial,
    locking: &str,
) -> Result<Option<Hold>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM hold WHERE seq = $1 {locking}");
    let row = client.query_opt(&query, &[&id.0]).await.map_err(sql)?;
    row.as_ref().map(read).transpose()
}

pub(super) async fn page(
    client: &impl GenericClient,
    tenant: Option<&str>,
    lifted_too: bool,
    after: Serial,
    limit: usize,
) -> Result<Vec<Hold>, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM hold WHERE seq > $1 AND ($2::text IS NULL OR tenant = $2) \
         AND ($3 OR lifted_at IS NULL) ORDER BY seq LIMIT $4"
    );
    let statement = client.prepare_cached(&query).await.map_err(sql)?;
    let values: [&(dyn ToSql + Sync); 4] = [&after.0, &tenant, &lifted_too, &(limit as i64)];
    let mut found = Vec::new();
    for row in &client.query(&statement, &values).await.map_err(sql)? {
        found.extend(usable(read(row))?);
    }
    Ok(found)
}

/// All that are in force. A damaged one is an error: what it is on cannot be known, so nothing may go. One that was lifted
/// says by whom; one that does not is damaged.
pub(super) async fn in_force(client: &impl GenericClient) -> Result<InForce, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM hold WHERE lifted_at IS NULL OR lifted_by IS NULL OR lifted_why IS NULL"
    );
    let statement = client.prepare_cached(&query).await.map_err(sql)?;
    let rows = client.query(&statement, &[]).await.map_err(sql)?;
    Ok(InForce::of(rows.iter().map(read).collect::<Result<Vec<_>, _>>()?))
}

/// All that are in force, and no others until the transaction ends: whoever sets one waits for what is deleted by this, and
/// is answered only then.
pub(super) async fn in_force_to_the_end(client: &impl GenericClient) -> Result<InForce, StoreError> {
    client.execute("LOCK TABLE hold IN SHARE MODE", &[]).await.map_err(sql)?;
    in_force(client).await
}

fn read(row: &Row) -> Result<Hold, StoreError> {
    let number = Serial(row.try_get(0).map_err(sql)?);
    let damaged = || StoreError::Damaged { what: "hold", key: number.to_string() };
    let (hold, check) = fields(row, number).map_err(sql)?.ok_or_else(damaged)?;
    if check != of_hold(&hold) {
        return Err(damaged());
    }
    Ok(hold)
}

fn fields(row: &Row, id: Serial) -> Result<Option<(Hold, i64)>, tokio_postgres::Error> {
    let text = |column: usize| row.try_get::<_, Option<String>>(column);
    let Ok(tenant) = TenantName::new(row.try_get(1)?) else { return Ok(None) };
    let lifted = match (row.try_get::<_, Option<i64>>(7)?, text(8)?, text(9)?) {
        (Some(at), Some(who), Some(why)) => Some(Lifted { who, why, at: Timestamp(at) }),
        (None, None, None) => None,
        _ => return Ok(None),
    };
    let hold = Hold {
        id,
        tenant,
        held: held(text(2)?.as_deref(), text(3)?.as_deref()),
        who: row.try_get(5)?,
        why: row.try_get(6)?,
        at: Timestamp(row.try_get(4)?),
        lifted,
    };
    Ok(Some((hold, row.try_get(10)?)))
}
