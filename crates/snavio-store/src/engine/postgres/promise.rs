//! What a server with its settings can promise (PIP-12).

use crate::Durability;

/// Whether a connection may be used for writing, and what becomes of what is written.
pub(super) struct Fitness {
    pub(super) durability: Durability,
    pub(super) is_read_only: bool,
}

/// PIP-12: asks the engine itself what it does.
pub(super) async fn fitness(client: &tokio_postgres::Client) -> Result<Fitness, tokio_postgres::Error> {
    const SETTINGS: &str = "SELECT current_setting('fsync'), current_setting('full_page_writes'), \
         current_setting('synchronous_commit'), \
         pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean";
    let row = client.query_one(SETTINGS, &[]).await?;
    let setting = |place: usize| row.try_get::<_, &str>(place);
    let durability = promise(setting(0)?, setting(1)?, setting(2)?);
    Ok(Fitness { durability, is_read_only: row.try_get(3)? })
}

/// Whether a server with these settings can keep the promise of a 2xx.
fn promise(fsync: &str, full_page_writes: &str, synchronous_commit: &str) -> Durability {
    let because = |name: &str, value: &str, what: &str| {
        Durability::Relaxed(format!("PostgreSQL's {name} is {value}: {what}"))
    };
    if fsync != "on" {
        return because("fsync", fsync, "a crash of its machine may lose or damage anything");
    }
    if full_page_writes != "on" {
        return because("full_page_writes", full_page_writes, "a crash may leave half-written pages");
    }
    if synchronous_commit == "off" {
        return because(
            "synchronous_commit",
            synchronous_commit,
            "commits are answered before they are flushed",
        );
    }
    Durability::Durable
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PIP-12
    #[test]
    fn only_settings_that_flush_keep_the_promise() {
        for (fsync, pages, commit, named) in [
            ("on", "on", "on", None),
            ("on", "on", "remote_apply", None),
            ("on", "on", "local", None),
            ("off", "on", "on", Some("fsync is off")),
            ("on", "off", "on", Some("full_page_writes is off")),
            ("on", "on", "off", Some("synchronous_commit is off")),
        ] {
            match promise(fsync, pages, commit) {
                Durability::Durable => assert_eq!(named, None, "{fsync} {pages} {commit}"),
                Durability::Relaxed(why) => assert!(named.is_some_and(|it| why.contains(it)), "{why}"),
            }
        }
    }
}
