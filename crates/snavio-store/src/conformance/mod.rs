//! The suite that every backend must pass (ENG-1), as functions over [`Store`]. The test file of a backend
//! only says how to open it; [`conformance!`](crate::conformance!) runs all functions.
//!
//! Time is an argument of the interfaces, so days pass here without waiting. A backend may do some work after
//! it has answered (dead letters, receive counts). The suite polls for such work until it is done.

pub mod archive;
pub mod claims;
pub mod conflicts;
pub mod doubt;
pub mod events;
pub mod fleet;
pub mod growth;
pub mod holds;
pub mod journal;
pub mod late;
pub mod leases;
pub mod lists;
pub mod ordering;
pub mod parking;
pub mod processing;
pub mod queue;
pub mod registry;
pub mod reopen;
pub mod resets;
pub mod samples;
pub mod settle;
pub mod sweep;

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;

use crate::Store;

/// A store under test that can be closed and opened again.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Opens the store: empty at first, later as it was left.
    async fn open(&self) -> Arc<dyn Store>;

    /// Whether several nodes may have the store open at once. The leases and tasks of a node then outlive the
    /// node.
    fn is_shared(&self) -> bool {
        false
    }

    /// Counts the rows of claims, in all tables that have any.
    fn claim_rows(&self) -> usize;

    /// The number of rows for one claim of a policy that does not compare content.
    fn rows_of_a_claim(&self) -> usize {
        1
    }
}

/// The limit for work that a backend does after it has answered.
const DEADLINE: Duration = Duration::from_secs(20);

/// Polls `ask` until it has an answer.
pub(crate) async fn eventually<T>(condition: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, asking).await.unwrap_or_else(|_| panic!("timed out before: {condition}"))
}

/// Polls the call until it has been woken this many times, and then drops it. Returns `None` if the call was
/// not done by then.
pub(crate) async fn give_up_after<T>(wakes: usize, call: impl Future<Output = T>) -> Option<T> {
    let mut call = std::pin::pin!(call);
    let mut woken = 0;
    let done = std::future::poll_fn(|context| match call.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending if woken == wakes => Poll::Ready(None),
        Poll::Pending => {
            woken += 1;
            Poll::Pending
        }
    });
    done.await
}

/// Runs the suite against a backend: each function as a test of its own, on a store of its own.
#[macro_export]
macro_rules! conformance {
    ($backend:expr) => {
        $crate::conformance! { @store $backend,
            conflicts: both_contents_are_on_record_and_the_first_stands,
                an_id_means_one_thing_wherever_it_goes, racing_contents_have_one_winner_and_19_conflicts,
                conflict_is_triaged_and_resolved_once, ledger_id_is_known_for_seven_years,
                conflicts_of_a_reused_id_follow_earlier_ones, each_deciding_tenant_has_its_own_conflict,
                event_conflict_is_recorded_for_each_tenant, event_conflict_is_recorded_for_1000_tenants,
                later_id_record_has_its_own_conflicts, conflicts_do_not_hide_what_comes_after_them,
                racing_conflicts_cannot_share_a_reversal, tightened_policy_compares_with_earlier_messages,
                id_keeps_its_content_while_work_continues, id_keeps_its_content_while_a_claim_answers,
                id_keeps_its_content_while_any_destination_keeps_it;
            claims: racing_tasks_have_one_winner_for_each_id, one_batch_sees_itself,
                another_service_finds_it_taken, tenants_do_not_share_ids, claim_expires_by_time_alone,
                destinations_claim_for_themselves, expired_claim_is_shown_on_request,
                id_is_looked_up_among_all_senders, look_up_of_service_finds_its_claim_among_many,
                tenant_has_claims_as_sender_and_as_recipient;
            settle: what_is_settled_is_delivered_as_it_came, queues_keep_the_order_of_settling,
                empty_batch_settles_nothing, serials_rise, message_that_the_engine_cannot_store_fails_alone,
                abandoned_batch_is_settled_whole;
            processing: what_is_reported_done_is_complete_and_answered_again,
                an_answer_is_kept_where_the_route_says_so, audited_claim_keeps_its_response_on_any_route,
                release_reason_is_in_the_claim, late_worker_is_fenced_and_recorded,
                invented_fencing_tokens_are_not_recorded, a_report_whose_answer_was_lost_is_recognised,
                late_report_counts_until_the_next_lease, silent_worker_loses_its_claim_at_the_next_sweep,
                what_failed_is_tried_again_when_it_is_due_and_then_a_dead_letter,
                final_failure_stands_until_a_person_redrives_it, claim_settled_by_a_person_is_completed,
                unknown_outcome_is_retried_by_default, delivery_is_leased_by_its_id_once,
                ids_that_come_again_are_counted, claims_are_imported_once,
                response_of_a_failed_attempt_is_not_stored, claim_outlives_its_work,
                claim_with_unknown_outcome_does_not_expire, report_on_another_tenants_work_finds_nothing;
            lists: open_claims_are_listed_by_owner_and_status, listed_claims_have_the_requested_status;
            archive: archived_id_is_still_compared, unfinished_or_disputed_claims_stay_hot,
                repeated_move_moves_once, messages_of_one_id_move_separately_and_once,
                message_that_differs_from_its_record_stays, segment_without_pointers_ends,
                expired_claim_is_deleted_with_message_and_response, reuse_of_an_expired_id_is_audited,
                held_records_are_kept_until_the_hold_is_lifted, erased_claim_has_no_content_and_is_compared,
                work_in_progress_is_not_erased, erasure_of_an_archived_claim_rewrites_its_segment,
                partly_pointed_segment_is_loose_until_rewritten,
                repoint_that_leaves_records_behind_is_refused, object_without_pointers_ends_at_once,
                pointer_says_whether_there_is_a_response, telemetry_continues_after_messages_moved;
            holds: short_lived_claims_are_held_too, sweep_continues_past_held_claims,
                held_response_survives_redrive_and_settle, import_does_not_replace_held_claims,
                dry_run_deletes_nothing, claims_from_before_the_archive_are_audited,
                conflict_keeps_its_original_for_seven_years, disputed_id_is_not_reused,
                original_stays_while_its_id_record_is_kept, held_claim_keeps_its_archived_message,
                refused_message_deletes_nothing, every_deleted_claim_is_audited_by_name,
                holds_of_a_tenant_are_bounded, recipient_can_hold_an_id,
                evidence_of_another_tenants_conflict_is_not_erased;
            events: an_event_is_kept_as_it_came;
            ordering: strict_refuses_what_is_late_and_knows_repeats,
                lenient_delivers_and_skip_records_late_messages, what_is_ahead_waits_until_the_gap_fills,
                ended_wait_delivers_in_order_and_records_the_gap, waits_end_for_any_number_of_entities,
                one_message_of_an_entity_is_handed_out_at_a_time,
                later_messages_continue_after_a_final_failure, entity_is_parked_until_the_failure_is_fixed,
                completed_entity_is_closed_until_its_time_to_live_ends,
                late_event_is_a_dead_letter_only_where_refused, unreadable_event_is_a_dead_letter_only_there,
                dry_run_advances_no_entity, applied_message_is_a_duplicate_while_its_entity_lives;
            doubt: redrive_refuses_claims_with_unknown_outcome, silent_last_attempt_has_an_unknown_outcome,
                failure_after_an_unknown_outcome_stays_unknown, held_delivery_without_a_claim_stays_held,
                unknown_outcome_is_held_if_the_route_says_so, claim_ends_with_its_delivery,
                redriven_delivery_becomes_a_dead_letter_when_purged, work_leased_during_a_purge_is_not_failed;
            late: repeated_report_in_one_call_is_recognised, newest_report_counts_beside_late_ones,
                report_without_a_claim_is_judged_by_its_delivery, fenced_record_shows_the_present_lease;
            parking: skip_of_a_failed_message_is_audited,
                refused_work_parks_until_its_claim_is_settled, purged_ordered_messages_are_not_delivered, messages_do_not_pass_an_earlier_failure,
                messages_do_not_pass_expired_deliveries, purged_or_erased_message_parks_nothing,
                event_that_no_destination_accepts_is_refused, late_message_neither_parks_nor_frees,
                messages_do_not_pass_a_purged_attempted_one;
            resets: forced_reset_releases_waiting_messages_and_is_audited, reset_sees_concurrent_messages;
            queue: a_lease_hides_until_it_ends, abandoned_receive_spends_no_attempt,
                an_extension_hides_for_longer, release_waits_for_its_delay,
                unattempted_delivery_waits_and_spends_no_attempt, a_receipt_ends_only_its_own_delivery,
                forged_receipt_ends_nothing, receives_are_counted_to_the_last, dead_letter_has_the_last_error,
                unreceived_delivery_ends_after_its_retention, a_redriven_delivery_is_itself_again,
                purge_deletes_present_deliveries_and_is_audited, purge_of_a_long_queue_deletes_everything,
                purge_during_traffic_loses_and_doubles_nothing,
                attributes_count_depth_in_flight_delayed_and_age, queue_is_empty_only_after_its_last_delivery,
                queue_lists_the_destinations_of_its_deliveries, all_attributes_cover_every_nonempty_queue,
                arrivals_wake_their_own_queue_only, tenants_do_not_see_each_others_dead_letters,
                abandoned_acknowledgement_is_whole, abandoned_redrive_is_whole;
            registry: changes_are_kept_with_author_and_note, change_of_an_old_version_is_refused,
                racing_changes_have_one_winner, changes_since_a_version_are_paged,
                message_is_written_only_at_its_registry_version,
                no_change_comes_between_a_check_and_its_commit, changelog_and_seals_are_kept_as_written,
                seal_follows_the_last_or_is_refused, racing_seals_have_one_winner;
            journal: telemetry_pages_without_gap_or_repeat, telemetry_wakes_its_readers,
                telemetry_wakes_no_other_tenant, reader_among_writers_misses_nothing,
                page_of_messages_is_bounded_in_bytes, tenants_read_only_their_own_records,
                permission_uses_are_read_newest_first, audit_and_dead_letters_page_by_number,
                records_of_an_id_are_found_among_the_newest;
            sweep: expired_telemetry_is_deleted_and_counted, record_of_dropped_telemetry_expires_silently,
                telemetry_of_every_tenant_expires;
        }
        $crate::conformance! { @backend $backend,
            reopen: work_outlives_a_restart, order_outlives_a_restart, late_worker_is_fenced_after_a_restart,
                everything_is_kept, event_outlives_a_restart, serials_and_fencing_tokens_rise,
                claims_outlive_a_restart, receipt_from_before_a_restart_counts,
                last_attempt_outlives_a_restart, redriven_delivery_does_not_keep_older_ones;
            growth: claims_level_off_under_steady_traffic;
            leases: work_is_not_leased_again_before_its_deadline,
                outcome_is_unknown_only_after_a_long_deadline, extension_outlives_a_restart,
                retry_pause_outlives_a_restart, lapsed_work_is_free_after_a_restart,
                late_worker_frees_nothing_after_a_restart, undelivered_work_is_free_after_a_restart;
            fleet: racing_nodes_never_advance_from_one_state, first_pin_wins,
                last_note_counts_with_its_records, racing_note_moves_have_one_winner,
                note_is_removed_only_at_its_expected_value, node_is_known_from_announce_to_leave,
                task_has_one_leader, task_is_free_after_its_term, task_is_free_after_its_node_left,
                concurrent_counts_of_repeats_add_up;
        }
    };
    (@store $backend:expr, $($noun:ident: $($rule:ident),+;)+) => {
        $(mod $noun {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $rule() {
                    let backend = $backend;
                    let store = $crate::conformance::Backend::open(&backend).await;
                    $crate::conformance::$noun::$rule(&store).await;
                    store.close().await;
                }
            )+
        })+
    };
    (@backend $backend:expr, $($noun:ident: $($rule:ident),+;)+) => {
        $(mod $noun {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $rule() {
                    $crate::conformance::$noun::$rule(&$backend).await;
                }
            )+
        })+
    };
}
