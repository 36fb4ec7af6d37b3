//! The report: tables for people and for the documentation, or JSON with all figures.

use comfy_table::Table;
use serde::Serialize;

use super::contest::{Comparison, Ratio};
use super::fairness::Fairness;
use super::machine::Machine;
use super::memory::{IdleConnections, MemoryOverTime};
use super::round::{Rounds, Spread};
use crate::CommandResult;
use crate::output::{print_line, render_table};

/// The format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Text,
    Markdown,
    Json,
}

/// All figures of a bench.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) settings: Settings,
    /// Ingest by one node, for each combination.
    pub(super) ingest: Vec<Rounds>,
    /// Receive and acknowledge, without other load.
    pub(super) consume: Vec<Rounds>,
    pub(super) comparisons: Vec<Comparison>,
    pub(super) fairness: Option<Fairness>,
    pub(super) memory: Option<MemoryOverTime>,
    pub(super) idle_connections: Option<IdleConnections>,
}

/// The settings of a bench.
#[derive(Debug, Serialize)]
pub(super) struct Settings {
    pub(super) command: String,
    pub(super) version: &'static str,
    /// Whether the program is a release build.
    pub(super) optimised: bool,
    pub(super) seconds: f64,
    pub(super) rounds: usize,
    pub(super) payload_bytes: usize,
    /// The number of claims in the store before the first round.
    pub(super) preloaded: usize,
}

impl Report {
    pub(super) fn print(&self, style: Style) -> CommandResult {
        if style == Style::Json {
            print_line(&serde_json::to_string(self)?);
            return Ok(());
        }
        print_line(&format!("{}\n", self.heading()));
        for table in self.tables() {
            print_line(&format!("{}\n", table.render(style)));
        }
        Ok(())
    }

    fn heading(&self) -> String {
        let (machine, settings) = (&self.machine, &self.settings);
        let unoptimised = if settings.optimised { "" } else { " (a debug build: its figures mean nothing)" };
        format!(
            "{} × {}, {} MiB, Linux {}, a small append and its flush take {} µs\n\
             `{}`, version {}{unoptimised}: {} rounds of {} s, payloads of {} bytes, {} claims in the store before",
            machine.cores,
            machine.processor,
            machine.memory_mib,
            machine.kernel,
            machine.flush_micros,
            settings.command,
            settings.version,
            settings.rounds,
            settings.seconds,
            settings.payload_bytes,
            settings.preloaded,
        )
    }

    fn tables(&self) -> Vec<Figures> {
        let mut tables = Vec::new();
        if !self.ingest.is_empty() {
            tables.push(Figures::of_rounds("Ingest, durable when answered", &self.ingest));
        }
        if !self.consume.is_empty() {
            tables.push(Figures::of_rounds("Receive 10 and acknowledge 10", &self.consume));
        }
        for comparison in &self.comparisons {
            tables.push(Figures::of_rounds(&comparison.title, &comparison.contestants));
            tables.push(Figures::of_settings(&comparison.contestants));
        }
        let ratios: Vec<_> = self.comparisons.iter().flat_map(|comparison| &comparison.ratios).collect();
        if !ratios.is_empty() {
            tables.push(Figures::of_ratios(&ratios));
        }
        tables.extend(self.fairness.as_ref().map(Figures::of_fairness));
        tables.extend(self.memory.as_ref().map(Figures::of_memory));
        tables.extend(self.idle_connections.as_ref().map(Figures::of_idle));
        tables
    }
}

/// A table: a title, columns and rows.
struct Figures {
    title: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Figures {
    fn of_rounds(title: &str, all: &[Rounds]) -> Self {
        let columns = vec![
            "what",
            "per second",
            "range",
            "p50 ms",
            "p90",
            "p99",
            "p99.9",
            "max",
            "messages per flush",
            "server µs",
            "database µs",
            "statements per message",
            "round trips per message",
            "client µs",
            "consumed per second",
            "refused",
            "others busy",
        ];
        let rows = all.iter().map(rounds_row).collect();
        Self { title: title.to_owned(), columns, rows }.without_empty_columns()
    }

    fn of_settings(all: &[Rounds]) -> Self {
        let rows = all.iter().map(|rounds| vec![rounds.what.clone(), rounds.how.clone()]).collect();
        Self { title: "Settings".to_owned(), columns: vec!["what", "how"], rows }
    }

    fn of_ratios(all: &[&Ratio]) -> Self {
        Self {
            title: "Ratios".to_owned(),
            columns: vec!["ours", "to", "ratio", "range", "wanted"],
            rows: all.iter().map(|ratio| ratio_row(ratio)).collect(),
        }
    }

    fn of_fairness(fairness: &Fairness) -> Self {
        let neighbours = [None, Some(fairness.share_per_second), Some(fairness.flood_per_second)];
        let rounds = [&fairness.alone, &fairness.beside_share, &fairness.beside_flood];
        let row = |(rounds, neighbour): (&Rounds, Option<f64>)| {
            let latency = rounds.latency_micros;
            let ratio = latency.p99 as f64 / fairness.alone.latency_micros.p99.max(1) as f64;
            vec![
                rounds.what.clone(),
                count(rounds.per_second.median),
                neighbour.map(count).unwrap_or_default(),
                millis(latency.p50),
                millis(latency.p99),
                format!("{ratio:.1}"),
            ]
        };
        Self {
            title: "The calm tenant".to_owned(),
            columns: vec!["when", "per second", "neighbour per second", "p50 ms", "p99", "p99 to alone"],
            rows: rounds.into_iter().zip(neighbours).map(row).collect(),
        }
    }

    fn of_memory(memory: &MemoryOverTime) -> Self {
        let samples = memory.stretch_samples;
        let rows = vec![
            vec!["at the start".to_owned(), format!("{:.0}", memory.at_start_mib)],
            vec![format!("first {samples} s"), spread_text(memory.first)],
            vec![format!("last {samples} s"), spread_text(memory.last)],
        ];
        let title = format!("Resident memory over {:.0} s and {} messages", memory.seconds, memory.messages);
        Self { title, columns: vec!["when", "MiB, median and range"], rows }
    }

    fn of_idle(idle: &IdleConnections) -> Self {
        let row = vec![
            idle.connections.to_string(),
            idle.open.to_string(),
            format!("{:.0}", idle.before_mib),
            format!("{:.0}", idle.with_mib),
            format!("{:.1}", idle.kib_per_connection),
        ];
        Self {
            title: "Connections that do nothing".to_owned(),
            columns: vec!["connections", "still open", "MiB before", "MiB with them", "KiB each"],
            rows: vec![row],
        }
    }

    fn without_empty_columns(mut self) -> Self {
        let filled: Vec<bool> = (0..self.columns.len())
            .map(|column| self.rows.iter().any(|row| !row[column].is_empty()))
            .collect();
        let mut keep = filled.iter().copied();
        self.columns.retain(|_| keep.next().unwrap_or(true));
        for row in &mut self.rows {
            let mut keep = filled.iter().copied();
            row.retain(|_| keep.next().unwrap_or(true));
        }
        self
    }

    fn render(&self, style: Style) -> String {
        if style == Style::Markdown {
            return self.markdown();
        }
        let mut table = Table::new();
        table.set_header(&self.columns);
        for row in &self.rows {
            table.add_row(row);
        }
        format!("{}\n{}", self.title, render_table(table))
    }

    fn markdown(&self) -> String {
        let line =
            |cells: &mut dyn Iterator<Item = &str>| format!("| {} |", cells.collect::<Vec<_>>().join(" | "));
        let mut lines = vec![format!("**{}**\n", self.title)];
        lines.push(line(&mut self.columns.iter().copied()));
        lines.push(line(&mut self.columns.iter().map(|_| "---")));
        lines.extend(self.rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
        lines.join("\n")
    }
}

fn rounds_row(rounds: &Rounds) -> Vec<String> {
    let latency = rounds.latency_micros;
    let latencies = [latency.p50, latency.p90, latency.p99, latency.p999, latency.max].map(millis);
    let mut row = vec![rounds.what.clone(), count(rounds.per_second.median), range(rounds.per_second)];
    row.extend(latencies);
    row.extend([rounds.messages_per_flush, rounds.server_micros_per_message].map(tenths));
    row.push(tenths(rounds.database_micros_per_message));
    row.extend([rounds.statements_per_message, rounds.round_trips_per_message].map(thousandths));
    row.push(tenths(rounds.client_micros_per_message));
    row.push(rounds.consumed_per_second.map(count).unwrap_or_default());
    let refused = rounds.refused_percent;
    row.push(if refused > 0.0 { format!("{refused:.1} %") } else { String::new() });
    row.push(format!("{:.0} %", rounds.others_percent_max));
    row
}

fn ratio_row(ratio: &Ratio) -> Vec<String> {
    let Spread { median, least, most } = ratio.ratio;
    vec![
        ratio.ours.clone(),
        ratio.theirs.clone(),
        format!("{median:.2}"),
        format!("{least:.2}–{most:.2}"),
        ratio.wanted.map(|wanted| format!("{wanted:.1}")).unwrap_or_default(),
    ]
}

fn spread_text(spread: Spread) -> String {
    format!("{:.0} ({:.0}–{:.0})", spread.median, spread.least, spread.most)
}

fn millis(micros: u64) -> String {
    if micros == 0 { String::new() } else { format!("{:.2}", micros as f64 / 1000.0) }
}

fn tenths(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.1}")).unwrap_or_default()
}

fn thousandths(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.3}")).unwrap_or_default()
}

fn range(spread: Spread) -> String {
    format!("{}–{}", count(spread.least), count(spread.most))
}

/// A whole number with commas between its thousands.
fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_commas_between_thousands() {
        assert_eq!([7.4, 1234.0, 1_234_567.0].map(count), ["7", "1,234", "1,234,567"]);
    }

    #[test]
    fn markdown_table_leaves_out_empty_columns() {
        let rows = vec![vec!["x".to_owned(), String::new(), "1".to_owned()]];
        let table = Figures { title: "T".to_owned(), columns: vec!["a", "b", "c"], rows };
        assert_eq!(table.without_empty_columns().markdown(), "**T**\n\n| a | c |\n| --- | --- |\n| x | 1 |");
    }
}
