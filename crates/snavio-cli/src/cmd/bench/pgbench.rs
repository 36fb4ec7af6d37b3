//! Bare inserts by `pgbench`: what PostgreSQL takes when nobody stands before it.

use std::process::Command;
use std::time::Duration;

use super::database::Database;
use super::install;
use super::latency::Percentiles;
use super::machine::Watch;
use super::round::{Round, per};
use super::scenario::apart;
use crate::cmd::Failure;

/// What is inserted into, and where ids come from: pgbench makes them on the server, as ordered as can be.
pub(super) const TABLE: &str =
    "CREATE TABLE claim (id uuid PRIMARY KEY, payload text NOT NULL); CREATE SEQUENCE ids CACHE 1000";

/// Inserts into [`TABLE`].
#[derive(Debug, Clone)]
pub(super) struct Inserts {
    pub(super) payload: Vec<u8>,
    /// Rows of each statement.
    pub(super) batch: usize,
    pub(super) clients: usize,
}

impl Inserts {
    pub(super) fn name(&self) -> String {
        match self.batch {
            1 => "single inserts".to_owned(),
            batch => format!("inserts in batches of {batch}"),
        }
    }

    /// One round in a database.
    pub(super) async fn round(
        &self,
        server: &Database,
        database: &str,
        time: Duration,
    ) -> Result<Round, Failure> {
        let script = tempfile::NamedTempFile::new()?;
        std::fs::write(script.path(), self.script())?;
        let seconds = time.as_secs().max(1).to_string();
        let mut command = Command::new(install::program("pgbench", "postgresql-contrib")?);
        command.args(["-h", "127.0.0.1", "-p", &server.address().port().to_string(), "-U", "postgres"]);
        command.args(["-n", "-M", "prepared", "-j", "1", "-T", &seconds]);
        command.args(["-c", &self.clients.to_string(), "-f"]).arg(script.path()).arg(database);
        let (used, watch) = (server.processor_time(), Watch::start());
        let said = apart(move || install::output(&mut command)).await??;
        let mut round =
            read(&said, self.batch as u64).ok_or_else(|| Failure::new(format!("pgbench said: {said}")))?;
        round.busy = watch.busy();
        let used = server.processor_time().saturating_sub(used);
        round.server_micros_per_message = per(used.as_secs_f64() * 1e6, round.messages);
        Ok(round)
    }

    fn script(&self) -> String {
        // A colon would begin one of pgbench's variables.
        let payload = String::from_utf8_lossy(&self.payload).replace(':', "=");
        let id = "lpad(to_hex(nextval('ids')), 32, '0')::uuid";
        let rows = match self.batch {
            1 => format!("VALUES ({id}, '{payload}')"),
            batch => format!("SELECT {id}, '{payload}' FROM generate_series(1, {batch})"),
        };
        format!("INSERT INTO claim (id, payload) {rows} ON CONFLICT DO NOTHING;\n")
    }
}

/// Reads transactions, mean latency and rate off the summary.
fn read(text: &str, batch: u64) -> Option<Round> {
    let after = |mark: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(mark))?;
        rest.split(|it: char| it != '.' && !it.is_ascii_digit())
            .find(|it| !it.is_empty())?
            .parse::<f64>()
            .ok()
    };
    let transactions = after("number of transactions actually processed: ")?;
    let per_second = after("tps = ")?;
    // pgbench tells the mean, not the median, unless every transaction is logged.
    let mean = (after("latency average = ")? * 1000.0) as u64;
    let messages = transactions as u64 * batch;
    Some(Round {
        seconds: transactions / per_second,
        messages,
        accepted: messages,
        per_second: per_second * batch as f64,
        latency_micros: Percentiles { p50: mean, ..Percentiles::default() },
        ..Round::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_pgbench_is_read() {
        let text = "number of transactions actually processed: 1000/0\nlatency average = 0.25 ms\ntps = 4000.5 (without initial connection time)\n";
        let round = read(text, 100).unwrap();
        assert_eq!((round.messages, round.per_second, round.latency_micros.p50), (100_000, 400_050.0, 250));
    }
}
