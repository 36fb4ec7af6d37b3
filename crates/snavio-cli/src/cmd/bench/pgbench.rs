//! Bare inserts by `pgbench`: the throughput of PostgreSQL without Snavio.

use std::process::Command;
use std::time::Duration;

use super::database::Database;
use super::install;
use super::latency::Percentiles;
use super::machine::LoadWatch;
use super::round::{Round, divide};
use super::scenario::run_blocking;
use crate::cmd::Failure;

/// The table for the inserts and the sequence for their ids. The server makes the ids, in order.
pub(super) const TABLE: &str =
    "CREATE TABLE claim (id uuid PRIMARY KEY, payload text NOT NULL); CREATE SEQUENCE ids CACHE 1000";

/// Inserts into [`TABLE`].
#[derive(Debug, Clone)]
pub(super) struct Inserts {
    pub(super) payload: Vec<u8>,
    /// Rows in a statement.
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

    /// Measures one round in a database.
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
        let (used, watch) = (server.processor_time(), LoadWatch::start());
        let summary = run_blocking(move || install::run(&mut command)).await??;
        let mut round = read_summary(&summary, self.batch as u64)
            .ok_or_else(|| Failure::new(format!("cannot read the output of pgbench: {summary}")))?;
        round.busy = watch.busy();
        let used = server.processor_time().saturating_sub(used);
        round.server_micros_per_message = divide(used.as_secs_f64() * 1e6, round.messages);
        Ok(round)
    }

    fn script(&self) -> String {
        // In a script of pgbench a colon begins a variable.
        let payload = String::from_utf8_lossy(&self.payload).replace(':', "=");
        let id = "lpad(to_hex(nextval('ids')), 32, '0')::uuid";
        let rows = match self.batch {
            1 => format!("VALUES ({id}, '{payload}')"),
            batch => format!("SELECT {id}, '{payload}' FROM generate_series(1, {batch})"),
        };
        format!("INSERT INTO claim (id, payload) {rows} ON CONFLICT DO NOTHING;\n")
    }
}

/// Reads the transactions, the mean latency and the rate from the summary of pgbench.
fn read_summary(text: &str, batch: u64) -> Option<Round> {
    let transactions = number_after(text, "number of transactions actually processed: ")?;
    let per_second = number_after(text, "tps = ")?;
    // pgbench reports the mean. For the median it would have to log every transaction.
    let mean = (number_after(text, "latency average = ")? * 1000.0) as u64;
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

/// The number in the line that begins with `label`.
fn number_after(text: &str, label: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    let mut parts = rest.split(|c: char| c != '.' && !c.is_ascii_digit());
    parts.find(|part| !part.is_empty())?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pgbench_summary_is_read() {
        let text = "number of transactions actually processed: 1000/0\nlatency average = 0.25 ms\ntps = 4000.5 (without initial connection time)\n";
        let round = read_summary(text, 100).unwrap();
        assert_eq!((round.messages, round.per_second, round.latency_micros.p50), (100_000, 400_050.0, 250));
    }
}
