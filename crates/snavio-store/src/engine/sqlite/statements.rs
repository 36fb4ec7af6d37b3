//! Watches the statements that the engine runs, for tests of their cost: SQLite says of each how often it had to be
//! parsed again, and which tables its bytecode opens.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rusqlite::trace::{TraceEvent, TraceEventCodes};
use rusqlite::{Connection, StatementStatus};

use super::writer::lock;

/// How often a statement ran, and how often SQLite parsed it again before a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cost {
    runs: usize,
    reparsed: i32,
}

/// The statements of each database file.
static SEEN: Mutex<BTreeMap<String, BTreeMap<String, Cost>>> = Mutex::new(BTreeMap::new());

/// Notes the statements that a connection runs from now on.
pub(super) fn watch(connection: &mut Connection) -> rusqlite::Result<()> {
    let file = connection.path().unwrap_or_default().to_owned();
    let note = move |event: TraceEvent<'_>| {
        let TraceEvent::Profile(statement, _) = event else { return };
        let mut seen = lock(&SEEN);
        let cost = seen.entry(file.clone()).or_default().entry(statement.sql().into_owned()).or_default();
        cost.runs += 1;
        cost.reparsed = cost.reparsed.max(statement.get_status(StatementStatus::RePrepare));
    };
    connection.trace_v2(TraceEventCodes::SQLITE_TRACE_PROFILE, Some(note))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Store;
    use crate::conformance::{claims, conflicts, events, ordering, processing, queue, settle};
    use crate::engine::sqlite::{EmbeddedStore, FILE, Options, connect};

    /// Runs what a busy node does all day: each case on a store of its own. Gives back the statements of them all.
    macro_rules! run {
        ($($noun:ident::$case:ident),+ $(,)?) => {{
            let mut all = BTreeMap::<String, Cost>::new();
            $(
                let folder = tempfile::tempdir().unwrap();
                let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&Options::new(folder.path())).unwrap());
                let file = folder.path().join(FILE).canonicalize().unwrap().to_string_lossy().into_owned();
                lock(&SEEN).remove(&file);
                $noun::$case(&store).await;
                store.close().await;
                for (sql, cost) in lock(&SEEN).remove(&file).unwrap_or_default() {
                    let sum = all.entry(sql).or_default();
                    sum.runs += cost.runs;
                    sum.reparsed += cost.reparsed;
                }
            )+
            all
        }};
    }

    /// PIP-5: bindings are cleared when a statement goes back to its cache, and a plan that had looked at them was made anew
    /// at every use.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_hot_statement_is_parsed_again() {
        let all = hot().await;
        let reparsed: Vec<_> = all.iter().filter(|(_, cost)| cost.reparsed > 0).collect();
        assert!(reparsed.is_empty(), "{reparsed:#?}");
    }

    /// PIP-5: a temporary table for each run costs more than the look-up itself.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_hot_statement_opens_a_temporary_table() {
        let all = hot().await;
        let folder = tempfile::tempdir().unwrap();
        EmbeddedStore::open(&Options::new(folder.path())).unwrap().close().await;
        let connection = connect(&folder.path().join(FILE), &Options::new(folder.path())).unwrap();
        crate::engine::sqlite::known::offer_digest(&connection).unwrap();
        let opens = |sql: &str| {
            let mut explain = connection.prepare(&format!("EXPLAIN {sql}")).unwrap();
            let mut codes = explain.raw_query();
            while let Some(row) = codes.next().unwrap() {
                let code: String = row.get("opcode").unwrap();
                if ["OpenEphemeral", "OpenAutoindex"].contains(&code.as_str()) {
                    return true;
                }
            }
            false
        };
        // A sweep deletes many rows with one temporary table, and a person looks up one id at a time.
        let rare = ["PRAGMA", "ORDER BY expires_at LIMIT", "ORDER BY destination"];
        let is_hot = |sql: &str| !rare.iter().any(|part| sql.contains(part));
        let costly: Vec<_> = all.keys().filter(|sql| is_hot(sql) && opens(sql)).collect();
        assert!(costly.is_empty(), "{costly:#?}");
    }

    async fn hot() -> BTreeMap<String, Cost> {
        let all = run! {
            settle::what_is_settled_is_delivered_as_it_came,
            settle::queues_keep_the_order_of_settling,
            claims::one_batch_sees_itself,
            claims::another_service_finds_it_taken,
            claims::destinations_claim_for_themselves,
            events::an_event_is_kept_as_it_came,
            conflicts::both_contents_are_on_record_and_the_first_stands,
            conflicts::an_id_means_one_thing_wherever_it_goes,
            conflicts::conflicts_do_not_hide_what_comes_after_them,
            processing::what_is_reported_done_is_complete_and_answered_again,
            processing::an_answer_is_kept_where_the_route_says_so,
            processing::a_report_whose_answer_was_lost_is_recognised,
            processing::what_failed_is_tried_again_when_it_is_due_and_then_a_dead_letter,
            processing::ids_that_come_again_are_counted,
            queue::a_lease_hides_until_it_ends,
            queue::an_extension_hides_for_longer,
            queue::a_receipt_ends_only_its_own_delivery,
            queue::receives_are_counted_to_the_last,
            queue::a_redriven_delivery_is_itself_again,
            ordering::strict_refuses_what_is_late_and_knows_repeats,
            ordering::what_is_ahead_waits_until_the_gap_fills,
            ordering::one_message_of_an_entity_is_handed_out_at_a_time,
        };
        assert!(all.len() > 50, "few statements were seen: {all:#?}");
        let inserts = |sql: &String| sql.starts_with("INSERT INTO claim ");
        assert!(all.iter().any(|(sql, cost)| inserts(sql) && cost.runs > 5), "{all:#?}");
        all
    }
}
