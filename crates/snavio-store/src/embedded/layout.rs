//! The tables and their versions: every change of the layout is a file in `migrations`, run once and in order.

use refinery::Runner;
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;

use super::check::{Check, column};
use super::known;

mod embedded {
    refinery::embed_migrations!("src/embedded/migrations");
}

/// Brings a store to this version's layout. One transaction for the layout and the note that it was made: a kill
/// in between must leave neither.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), refinery::Error> {
    runner().set_grouped(true).run(connection).map(|_| ())
}

/// Whether a store has this version's layout, so that its rows can be read as this version writes them.
pub(super) fn is_current(connection: &Connection) -> rusqlite::Result<bool> {
    let newest = runner().get_migrations().iter().map(|it| i64::from(it.version())).max();
    let made = "SELECT max(version) FROM refinery_schema_history";
    Ok(connection.query_row(made, [], |row| row.get::<_, Option<i64>>(0))? == newest)
}

fn runner() -> Runner {
    embedded::migrations::runner()
}

/// What is needed beyond SQL: the check value of rows that had none, and the digests of ids.
pub(super) fn offer_functions(connection: &Connection) -> rusqlite::Result<()> {
    known::offer_digest(connection)?;
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("snavio_check_value", -1, flags, |context| {
        let mut check = Check::default();
        (0..context.len()).for_each(|place| column(&mut check, context.get_raw(place)));
        Ok(check.value())
    })
}
