//! What was answered to deliveries: table `answer`, keyed by the delivery.

use rusqlite::{Connection, Row, params};
use snavio_model::delivery::processing::Answer;
use snavio_model::id::Serial;

use super::check;
use super::writer::sql;
use crate::StoreError;
use crate::record::check_value::of_answer;

pub(super) fn put(connection: &Connection, delivery: Serial, answer: &Answer) -> rusqlite::Result<()> {
    const PUT: &str = "INSERT OR REPLACE INTO answer (delivery, status, content_type, body, check_value) \
         VALUES (?1, ?2, ?3, ?4, ?5)";
    let check = of_answer(delivery, answer);
    let values = params![delivery.0, answer.status, answer.content_type, &answer.body[..], check];
    connection.prepare_cached(PUT)?.execute(values).map(|_| ())
}

pub(super) fn delete(connection: &Connection, delivery: Serial) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM answer WHERE delivery = ?1")?.execute([delivery.0]).map(|_| ())
}

pub(super) fn find(connection: &Connection, delivery: Serial) -> Result<Option<Answer>, StoreError> {
    const FIND: &str =
        "SELECT delivery, status, content_type, body, check_value FROM answer WHERE delivery = ?1";
    let mut statement = connection.prepare_cached(FIND).map_err(sql)?;
    let mut rows = statement.query([delivery.0]).map_err(sql)?;
    rows.next().map_err(sql)?.map(|row| read(row).map(|(_, answer)| answer)).transpose()
}

/// Hands out all of them in the order of their deliveries.
pub(super) fn each(
    connection: &Connection,
    take: impl FnMut(Result<(Serial, Answer), StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    const ALL: &str =
        "SELECT delivery, status, content_type, body, check_value FROM answer ORDER BY delivery";
    check::each(connection, ALL, read, take)
}

fn read(row: &Row<'_>) -> Result<(Serial, Answer), StoreError> {
    let delivery = Serial(row.get(0).map_err(sql)?);
    let fields = |row: &Row<'_>| {
        let body: Vec<u8> = row.get(3)?;
        Ok((
            Answer { status: row.get(1)?, content_type: row.get(2)?, body: body.into() },
            row.get::<_, i64>(4)?,
        ))
    };
    let (answer, check) = fields(row).map_err(|error| check::unreadable(error, "answer", delivery))?;
    if check != of_answer(delivery, &answer) {
        return Err(StoreError::Damaged { what: "answer", key: delivery.to_string() });
    }
    Ok((delivery, answer))
}
