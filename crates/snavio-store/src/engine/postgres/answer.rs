//! What was answered to deliveries: table `answer`, keyed by the delivery.

use foldhash::{HashMap, HashMapExt};
use snavio_model::delivery::processing::Answer;
use snavio_model::id::Serial;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::GenericClient;
use super::pool::sql;
use crate::StoreError;
use crate::record::check_value::{alert, of_answer};

pub(super) async fn put(client: &impl GenericClient, answers: &[(Serial, Answer)]) -> Result<(), StoreError> {
    const PUT: &str = "INSERT INTO answer (delivery, status, content_type, body, check_value) \
         SELECT * FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::bytea[], $5::bigint[]) \
         ON CONFLICT (delivery) DO UPDATE SET status = excluded.status, content_type = excluded.content_type, \
             body = excluded.body, check_value = excluded.check_value";
    if answers.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = answers.iter().map(|(id, _)| id.0).collect();
    let statuses: Vec<_> = answers.iter().map(|(_, it)| i32::from(it.status)).collect();
    let types: Vec<_> = answers.iter().map(|(_, it)| it.content_type.as_deref()).collect();
    let bodies: Vec<_> = answers.iter().map(|(_, it)| &it.body[..]).collect();
    let checks: Vec<_> = answers.iter().map(|(id, it)| of_answer(*id, it)).collect();
    let values: [&(dyn ToSql + Sync); 5] = [&ids, &statuses, &types, &bodies, &checks];
    let statement = client.prepare_cached(PUT).await.map_err(sql)?;
    client.execute(&statement, &values).await.map(|_| ()).map_err(sql)
}

pub(super) async fn delete(client: &impl GenericClient, deliveries: &[Serial]) -> Result<(), StoreError> {
    if deliveries.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = deliveries.iter().map(|it| it.0).collect();
    let statement =
        client.prepare_cached("DELETE FROM answer WHERE delivery = ANY ($1)").await.map_err(sql)?;
    client.execute(&statement, &[&ids]).await.map(|_| ()).map_err(sql)
}

pub(super) async fn find(
    client: &impl GenericClient,
    delivery: Serial,
) -> Result<Option<Answer>, StoreError> {
    const FIND: &str = "SELECT status, content_type, body, check_value FROM answer WHERE delivery = $1";
    let statement = client.prepare_cached(FIND).await.map_err(sql)?;
    let Some(row) = client.query_opt(&statement, &[&delivery.0]).await.map_err(sql)? else { return Ok(None) };
    let (answer, check) = fields(&row).map_err(sql)?;
    if check != of_answer(delivery, &answer) {
        return Err(StoreError::Damaged { what: "answer", key: delivery.to_string() });
    }
    Ok(Some(answer))
}

/// Those to some deliveries; nothing of one that is damaged, which is told of.
pub(super) async fn find_all(
    client: &impl GenericClient,
    deliveries: &[Serial],
) -> Result<HashMap<Serial, Option<Answer>>, StoreError> {
    const FIND: &str =
        "SELECT status, content_type, body, check_value, delivery FROM answer WHERE delivery = ANY ($1)";
    let ids: Vec<_> = deliveries.iter().map(|it| it.0).collect();
    let statement = client.prepare_cached(FIND).await.map_err(sql)?;
    let mut found = HashMap::new();
    for row in &client.query(&statement, &[&ids]).await.map_err(sql)? {
        let delivery = Serial(row.try_get(4).map_err(sql)?);
        let (answer, check) = fields(row).map_err(sql)?;
        let is_sound = check == of_answer(delivery, &answer);
        if !is_sound {
            alert(&StoreError::Damaged { what: "answer", key: delivery.to_string() });
        }
        found.insert(delivery, Some(answer).filter(|_| is_sound));
    }
    Ok(found)
}

fn fields(row: &Row) -> Result<(Answer, i64), tokio_postgres::Error> {
    let body: Vec<u8> = row.try_get(2)?;
    let status = u16::try_from(row.try_get::<_, i32>(0)?).unwrap_or_default();
    Ok((Answer { status, content_type: row.try_get(1)?, body: body.into() }, row.try_get(3)?))
}
