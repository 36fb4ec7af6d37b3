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
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, asking).await.unwrap_or_else(|_| panic!("never came about: {what}"))
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
            conflicts: both_contents_are_on_record_and_the_first_stands, an_id_means_one_thing_wherever_it_goes,
                of_many_racing_contents_one_wins_and_the_others_are_conflicts, a_conflict_is_triaged_and_resolved_once,
                an_id_of_the_ledger_is_known_for_seven_years,
                an_id_that_is_free_again_has_its_conflicts_after_those_from_before,
                each_tenant_that_must_decide_has_its_own_conflict,
                a_conflict_of_an_event_for_many_is_told_to_each_tenant, as_many_tenants_as_may_subscribe_are_told,
                another_meaning_of_an_id_has_conflicts_of_its_own,
                conflicts_do_not_hide_what_comes_after_them,
                of_conflicts_that_name_one_reversal_at_once_one_does,
                a_policy_that_is_tightened_compares_with_what_was_taken_before,
                an_id_means_what_it_did_while_its_work_goes_on,
                an_id_means_what_it_did_while_a_claim_answers_for_it,
                an_id_means_what_it_did_for_as_long_as_any_keeps_it;
            claims: of_many_racing_tasks_one_wins, one_batch_sees_itself, another_service_finds_it_taken,
                tenants_do_not_share_ids, a_claim_ends_by_time_alone, destinations_claim_for_themselves,
                what_is_over_is_shown_to_who_asks_for_it,
                an_id_is_looked_up_among_all_senders, look_up_of_service_finds_its_claim_among_many,
                a_tenant_has_claims_of_its_ids_and_at_its_destinations;
            settle: what_is_settled_is_delivered_as_it_came, queues_keep_the_order_of_settling,
                an_empty_batch_settles_nothing, serials_rise, what_the_engine_cannot_hold_fails_alone,
                a_batch_that_nobody_waits_for_is_settled_whole;
            processing: what_is_reported_done_is_complete_and_answered_again,
                an_answer_is_kept_where_the_route_says_so, an_audited_claim_keeps_its_answer_whatever_its_route_says_by_now,
                why_it_was_given_back_is_in_the_claim,
                a_worker_that_comes_back_late_is_fenced_off_on_the_record,
                what_no_lease_was_given_for_is_fenced_off_the_record,
                a_report_whose_answer_was_lost_is_recognised, a_late_report_counts_while_nobody_else_took_it_up,
                no_work_is_without_an_owner_past_its_deadline_and_a_sweep,
                what_failed_is_tried_again_when_it_is_due_and_then_a_dead_letter,
                what_failed_for_good_answers_so_until_a_person_puts_it_back,
                what_a_person_saw_to_be_done_is_complete_on_the_record,
                what_nobody_knows_of_is_tried_again_otherwise, one_delivery_is_handed_out_by_its_number_once,
                ids_that_come_again_are_counted,
                claims_from_elsewhere_are_taken_over_once,
                a_failed_attempts_answer_is_not_kept, a_claim_outlives_its_work,
                doubt_keeps_its_claim_until_a_person_decides,
                a_report_on_another_tenants_work_finds_nothing;
            lists: open_claims_are_listed_by_owner_and_status,
                listed_claims_have_the_status_that_was_asked_for;
            archive: an_archived_id_is_still_known_and_compared, what_is_not_over_or_still_needed_is_not_moved,
                what_is_moved_twice_moves_once, messages_that_share_an_id_move_once_and_each_by_itself,
                what_differs_from_what_was_written_stays,
                a_segment_ends_when_nothing_points_to_it_any_more,
                what_is_over_goes_with_its_message_and_answer_on_the_record,
                an_id_that_is_used_again_after_its_time_is_on_the_record,
                what_is_held_is_not_deleted_until_the_hold_is_lifted,
                what_is_erased_says_nothing_and_is_still_known, what_is_on_its_way_is_not_erased,
                what_is_archived_is_erased_by_writing_its_segment_again,
                a_segment_that_is_pointed_to_in_part_is_loose_until_it_is_written_again,
                nothing_is_pointed_elsewhere_if_something_would_be_left_behind,
                an_object_that_nothing_points_to_ends_at_once, what_was_answered_is_beside_the_pointer,
                telemetry_goes_on_after_messages_were_moved;
            holds: short_lived_claims_are_held_too, what_is_held_does_not_stand_in_the_way, what_was_answered_last_is_held_too,
                claims_from_elsewhere_do_not_replace_what_is_held, foreseeing_deletes_nothing,
                claims_of_before_the_archive_are_kept_for_an_audit,
                a_conflict_keeps_its_original_for_its_own_seven_years,
                an_id_that_a_conflict_is_about_is_not_used_again,
                what_an_id_still_means_stays_with_its_first_claim, what_is_held_keeps_its_message_in_the_archive,
                a_message_that_is_refused_deletes_nothing,
                all_that_goes_is_on_the_record_by_name,
                a_tenant_has_a_bounded_number_of_holds, whoever_was_sent_an_id_holds_it_too,
                evidence_of_anothers_open_conflict_is_not_erased;
            events: an_event_is_kept_as_it_came;
            ordering: strict_refuses_what_is_late_and_knows_repeats,
                lenient_delivers_what_is_late_and_skip_records_it, what_is_ahead_waits_until_the_gap_fills,
                a_wait_that_ends_hands_out_in_order_and_records_the_gap,
                waits_end_however_many_entities_have_them,
                one_message_of_an_entity_is_handed_out_at_a_time,
                a_message_that_fails_for_good_lets_later_ones_go_on,
                an_entity_is_parked_behind_what_failed_until_it_is_mended,
                what_is_parked_is_skipped_on_the_record, refused_work_parks_and_a_settled_claim_lets_it_go_on,
                an_entity_is_closed_by_its_completion_and_forgotten_after_its_time,
                a_late_event_is_a_dead_letter_where_it_is_refused_and_delivered_elsewhere,
                an_event_whose_number_one_cannot_read_is_a_dead_letter_there_and_delivered_elsewhere,
                foreseeing_moves_no_entity, what_was_applied_is_a_duplicate_for_as_long_as_its_entity_is_known;
            doubt: redrive_leaves_claims_in_doubt, work_whose_last_attempt_was_silent_is_in_doubt,
                what_fails_after_an_attempt_that_nobody_knows_of_is_in_doubt,
                what_is_held_and_has_no_claim_is_held_all_the_same,
                what_nobody_knows_of_is_held_for_a_person_where_the_route_says_so,
                a_claim_whose_delivery_ends_says_so,
                what_was_put_back_and_is_purged_is_a_dead_letter_again,
                what_is_taken_amid_a_purge_is_not_told_as_failed;
            late: a_report_that_is_told_twice_in_one_call_is_recognised,
                a_newest_report_counts_beside_a_late_one_of_its_call,
                without_a_claim_the_delivery_says_whether_a_report_is_late,
                fenced_record_shows_the_present_lease;
            parking: what_is_purged_of_a_lane_is_not_handed_out, what_failed_meanwhile_is_not_passed,
                what_nobody_took_in_time_is_not_passed, what_is_purged_or_erased_keeps_nothing_parked,
                what_is_late_or_unreadable_wherever_it_goes_is_refused,
                what_came_late_parks_nothing_and_mends_nothing, what_was_tried_and_is_purged_is_not_passed;
            resets: a_reset_forgets_and_hands_out_what_waits_on_the_record, a_reset_sees_what_comes_beside_it;
            queue: a_lease_hides_until_it_ends, a_receive_that_is_given_up_spends_no_attempt,
                an_extension_hides_for_longer, a_release_waits_out_its_delay,
                what_is_taken_back_waits_and_has_spent_nothing,
                a_receipt_ends_only_its_own_delivery, a_receipt_that_was_never_given_out_ends_nothing,
                receives_are_counted_to_the_last, a_dead_letter_says_what_went_wrong_last, what_nobody_takes_ends_after_its_retention,
                a_redriven_delivery_is_itself_again, a_purge_takes_what_was_there_and_is_on_the_record,
                a_purge_of_a_long_queue_takes_all_of_it, a_purge_amid_traffic_leaves_no_ghosts,
                attributes_tell_depth_flight_delay_and_age, a_queue_holds_something_until_the_last_is_gone,
                a_queue_tells_whose_deliveries_it_holds,
                all_attributes_tell_of_every_queue_that_holds_something, arrivals_wake_their_own_queue_only,
                tenants_do_not_see_each_others_dead_letters, an_acknowledgement_that_is_given_up_is_whole,
                a_redrive_that_is_given_up_is_whole;
            registry: changes_are_kept_with_their_story, a_change_based_on_the_past_is_refused,
                of_racing_changes_one_lands, the_difference_since_a_version_is_paged,
                what_hangs_on_the_registry_is_written_only_by_its_version,
                no_change_comes_between_a_check_and_its_commit,
                the_log_and_its_chain_are_kept_as_they_were_written,
                a_seal_follows_the_last_one_or_is_refused, of_racing_seals_one_lands;
            journal: telemetry_pages_without_gap_or_repeat, telemetry_wakes_its_readers,
                telemetry_wakes_nobody_else, a_reader_amid_writers_misses_nothing,
                a_page_of_messages_is_bounded_in_bytes, tenants_read_their_own, uses_are_read_newest_first,
                audit_and_dead_letters_page_by_number, what_was_told_of_an_id_is_found_among_the_newest;
            sweep: telemetry_ages_out_and_says_so,
                that_telemetry_was_dropped_is_dropped_in_silence, every_tenants_telemetry_ages_out;
        }
        $crate::conformance! { @backend $backend,
            reopen: work_outlives_a_restart, order_outlives_a_restart, a_late_worker_is_fenced_over_a_restart, everything_is_kept, an_event_outlives_a_restart, serials_and_fences_rise, claims_still_hold,
                a_receipt_from_before_stands, the_last_attempt_outlives_a_restart,
                a_redriven_delivery_does_not_keep_its_elders;
            growth: claims_level_off_under_steady_traffic;
            leases: work_in_progress_is_not_handed_out_again_before_its_deadline,
                work_with_a_long_deadline_is_in_doubt_only_past_it, an_extension_outlives_a_restart,
                a_pause_outlives_a_restart, what_lapsed_before_a_restart_is_free_after_it,
                a_late_worker_frees_nothing_after_a_restart, work_that_nobody_got_is_nobodys_after_a_restart;
            fleet: racing_nodes_never_advance_from_one_state, the_first_word_counts, the_last_note_counts_and_comes_with_its_records,
                of_racing_moves_of_a_note_one_lands, a_note_is_forgotten_if_it_is_what_it_is_taken_for, a_node_is_known_from_its_word_to_its_leave,
                of_many_who_would_lead_one_does, a_task_is_free_after_its_term,
                a_task_is_free_once_its_node_has_left, repeats_that_two_nodes_count_at_once_add_up;
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
