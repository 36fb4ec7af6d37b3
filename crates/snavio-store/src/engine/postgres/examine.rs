//! A look at a database that changes nothing: what a node would find there.

use std::collections::BTreeMap;

use snavio_model::time::Timestamp;
use tokio_postgres::Client;

use super::promise::fitness;
use super::version::Version;
use super::{OpenError, Options, layout, pool};
use crate::Durability;

/// Everything that a node reads and writes.
const TABLES: [&str; 14] = [
    "layout",
    "pin",
    "batch",
    "message",
    "claim",
    "delivery",
    "dead_letter",
    "telemetry",
    "registry_version",
    "registry_entry",
    "registry_change",
    "audit",
    "node",
    "lease",
];
/// What the third layout added.
const TABLES_OF_3: [&str; 2] = ["note", "seal"];
/// And the fourth.
const TABLES_OF_4: [&str; 2] = ["original", "conflict"];
/// And the fifth.
const TABLES_OF_5: [&str; 1] = ["answer"];
/// And the sixth.
const TABLES_OF_6: [&str; 2] = ["hold", "segment"];
/// And the seventh.
const TABLES_OF_7: [&str; 1] = ["entity"];
const SEQUENCES: [&str; 2] = ["serial", "fence"];

/// What a database that answers is like.
#[derive(Debug, Clone)]
pub struct Examined {
    /// The server's version.
    pub version: String,
    /// The layout of its tables; nothing while there are none.
    pub layout: Option<i32>,
    /// Why a node could not use the tables, or not make them.
    pub unusable: Option<String>,
    /// Whether it keeps the promise of a 2xx.
    pub durability: Durability,
    /// Facts that all of its nodes must share.
    pub pins: BTreeMap<String, String>,
    /// Its time.
    pub now: Timestamp,
}

/// Connects and looks. Whatever keeps a node from connecting is the error.
pub async fn examine(options: &Options) -> Result<Examined, OpenError> {
    let client = pool::connect(options).await?;
    client.batch_execute(pool::SESSION).await?;
    client.batch_execute("SET default_transaction_read_only = on").await?;
    let version = Version::ask(&client).await?;
    version.verdict()?;
    const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let mut examined = Examined {
        version: version.text,
        layout: None,
        unusable: None,
        durability: fitness(&client).await?.durability,
        pins: BTreeMap::new(),
        now: Timestamp(client.query_one(NOW, &[]).await?.try_get(0)?),
    };
    if !layout::is_there(&client).await? {
        examined.unusable = no_place_for_tables(&client).await?;
        return Ok(examined);
    }
    examined.unusable = out_of_reach(&client).await?;
    // What may not be used may not be read either.
    if examined.unusable.is_none() {
        examined.layout = layout::version(&client).await?;
        examined.unusable = layout::outdated(&client, layout::LAYOUT).await?;
        examined.pins = pins(&client).await?;
    }
    Ok(examined)
}

/// Why a node could not write to the tables that there are.
async fn out_of_reach(client: &Client) -> Result<Option<String>, tokio_postgres::Error> {
    const DENIED: &str = "SELECT name FROM unnest($1::text[]) AS needed (name) \
         WHERE NOT coalesce(has_table_privilege(to_regclass(name), 'SELECT') \
             AND has_table_privilege(to_regclass(name), 'INSERT') \
             AND has_table_privilege(to_regclass(name), 'UPDATE') \
             AND has_table_privilege(to_regclass(name), 'DELETE'), false) \
         UNION ALL SELECT name FROM unnest($2::text[]) AS needed (name) \
         WHERE NOT coalesce(has_sequence_privilege(to_regclass(name), 'USAGE') \
             AND has_sequence_privilege(to_regclass(name), 'SELECT'), false)";
    // Those of a layout that the next node makes are not there yet.
    let newer = "SELECT to_regclass('note') IS NOT NULL, to_regclass('original') IS NOT NULL, \
         to_regclass('answer') IS NOT NULL, to_regclass('hold') IS NOT NULL, to_regclass('entity') IS NOT NULL";
    let row = client.query_one(newer, &[]).await?;
    let newer: [(&[&str], bool); 5] = [
        (&TABLES_OF_3, row.try_get(0)?),
        (&TABLES_OF_4, row.try_get(1)?),
        (&TABLES_OF_5, row.try_get(2)?),
        (&TABLES_OF_6, row.try_get(3)?),
        (&TABLES_OF_7, row.try_get(4)?),
    ];
    let newer = newer.into_iter().filter(|(_, is_there)| *is_there).flat_map(|(tables, _)| tables);
    let tables: Vec<_> = TABLES.iter().chain(newer).copied().collect();
    let rows = client.query(DENIED, &[&tables, &&SEQUENCES[..]]).await?;
    let denied: Vec<&str> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    if !denied.is_empty() {
        let role = role(client).await?;
        return Ok(Some(format!("role {role} may not use {}", denied.join(", "))));
    }
    replica(client).await
}

/// Why the role could not make the tables.
async fn no_place_for_tables(client: &Client) -> Result<Option<String>, tokio_postgres::Error> {
    const ALLOWED: &str = "SELECT coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)";
    if client.query_one(ALLOWED, &[]).await?.try_get(0)? {
        return replica(client).await;
    }
    let role = role(client).await?;
    Ok(Some(format!("there are no tables, and role {role} may not make any")))
}

async fn replica(client: &Client) -> Result<Option<String>, tokio_postgres::Error> {
    let replica: bool = client.query_one("SELECT pg_is_in_recovery()", &[]).await?.try_get(0)?;
    Ok(replica.then(|| "the server is a replica, which takes no writes".to_owned()))
}

async fn role(client: &Client) -> Result<String, tokio_postgres::Error> {
    client.query_one("SELECT current_user::text", &[]).await?.try_get(0)
}

async fn pins(client: &Client) -> Result<BTreeMap<String, String>, tokio_postgres::Error> {
    let rows = client.query("SELECT name, value FROM pin", &[]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}
