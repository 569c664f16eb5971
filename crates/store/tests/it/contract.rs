//! The contract: checks that every engine passes. `contract!(run)` makes a test of each of them in the engine's module;
//! what follows `run` are attributes of these tests.
//!
//! A check takes an empty store of its own. One that is not in the list below is dead code, and the lints say so.

pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod bank;
pub(crate) mod claims;
pub(crate) mod console;
pub(crate) mod conversations;
pub(crate) mod courses;
pub(crate) mod execute;
pub(crate) mod isolation;
pub(crate) mod journal;
pub(crate) mod knowledge;
pub(crate) mod limits;
pub(crate) mod lineage;
pub(crate) mod modes;
pub(crate) mod processes;
pub(crate) mod responses;
pub(crate) mod retention;
pub(crate) mod sessions;
pub(crate) mod steps;
pub(crate) mod tenancy;
pub(crate) mod threads;
pub(crate) mod turn_list;
pub(crate) mod uploads;
pub(crate) mod waiting;
pub(crate) mod webhooks;

/// A test for each check. `$run` makes a store, runs the check on it, and clears up.
macro_rules! contract {
    ($run:ident $(, $mark:meta)*) => {
        contract! {
            @all $run [$(#[$mark])*]
            responses {
                a_response_is_read_back_as_it_was_written
                a_response_is_there_from_its_first_step_on
                a_write_that_comes_twice_is_kept_once
                a_response_that_has_ended_takes_no_more
                a_response_of_another_process_takes_nothing
                a_response_that_is_not_there_takes_nothing
                text_of_any_kind_survives
                an_item_is_found_by_its_id
                a_response_is_found_by_the_id_of_the_models_server_within_its_tenant
                events_come_in_order_and_in_bounded_pieces
                a_background_response_can_be_cancelled_once
                a_foreground_response_cannot_be_cancelled
                every_response_can_be_ended_once
                a_deleted_response_is_gone_with_its_events_and_calls
                model_calls_are_kept_exactly
                requests_that_go_on_from_others_are_told_whole
                a_call_that_others_build_on_stays_as_long_as_they_do
                a_call_that_a_running_turn_may_build_on_stays_when_its_response_is_deleted
                a_request_whose_beginning_is_missing_says_so
                calls_and_words_of_a_turn_that_was_cancelled_from_outside_are_kept_once
                settings_of_responses_are_read_alone_and_replaced_once_they_have_ended
            }
            lineage {
                a_chain_is_told_oldest_first
                a_fork_does_not_see_its_sibling
                forks_of_forks_see_their_own_line_only
                racing_children_all_have_their_own_line
                a_thousand_turns_are_told_at_once
                a_turn_that_failed_is_in_the_line_with_its_status
                what_an_upstream_keeps_is_told_with_the_response_itself
                what_was_deleted_in_the_middle_is_still_built_on
                what_was_deleted_cannot_be_continued
                a_place_that_was_deleted_is_not_taken_by_another
            }
            isolation {
                what_is_foreign_looks_missing
                ids_that_look_like_statements_are_only_ids
            }
            turn_list {
                a_turn_is_listed_while_it_runs_and_counted_when_it_ends
                spans_are_stored_with_the_end_of_a_turn_and_a_queued_turn_keeps_its_trace
                a_turn_that_is_written_twice_is_counted_once
                a_turn_that_was_cancelled_from_outside_counts_with_what_it_used
                a_turn_of_a_dead_process_is_listed_and_counted_as_failed
                a_turn_that_was_cancelled_while_it_waited_is_listed_and_counted
                turns_are_found_by_every_filter
                pages_of_turns_have_no_gaps_and_no_repetitions
                the_usage_is_the_sum_of_the_turns_that_were_written_at_once
            }
            claims {
                a_key_is_worked_on_once_and_answered_the_same
                racing_claims_have_one_first
                a_claim_that_was_given_back_is_free
                a_claim_belongs_to_a_user_and_a_route
                the_last_step_of_a_turn_settles_its_claim
                a_late_settling_does_not_touch_the_claim_of_another_response
                a_lost_write_settles_nothing
                claims_of_dead_processes_are_released
                a_caller_that_disconnects_while_claiming_does_not_block
            }
            conversations {
                a_conversation_is_made_read_changed_and_forgotten
                items_are_added_all_or_none
                items_are_paged_both_ways
                an_item_can_be_read_and_forgotten
                a_turn_adds_its_items_when_it_ends_well
                racing_additions_all_arrive_in_order
            }
            bank {
                a_tool_is_read_back_as_it_was_put
                a_name_is_taken_whatever_its_case
                tools_are_listed_by_name_in_pages
                callers_have_their_tenants_tools_and_the_common_ones
                the_tools_of_another_bank_look_missing
                racing_puts_make_one_tool
                settings_are_sealed_anew_only_where_they_are_unchanged
                no_tenant_has_the_number_of_the_common_bank
            }
            journal {
                calls_of_tools_are_read_back_as_they_were_written
                a_step_that_also_says_something_keeps_its_tools
                a_call_that_begins_and_ends_in_one_step_is_kept_as_it_ended
                a_lost_write_leaves_no_trace_of_its_tools
                a_deleted_response_takes_its_tool_calls_along
                a_dead_process_leaves_the_names_of_tools_of_unknown_end
                statistics_tell_what_came_of_a_tools_calls
            }
            approvals {
                an_approval_is_read_back_as_it_was_asked
                the_first_decision_stands
                what_has_run_out_is_not_decided_any_more
                a_caller_does_not_decide_in_the_administrators_place
                approvals_of_others_look_missing
                approvals_are_listed_newest_first_in_pages
                a_granted_call_is_used_by_one_response
                racing_deciders_have_one_winner
                racing_users_of_an_approval_have_one_winner
            }
            agents {
                settings_are_changed_only_by_a_caller_that_knows_the_last_ones
                racing_changes_of_settings_have_one_winner
                a_profile_keeps_its_versions
                profiles_are_listed_by_slug_in_pages
                racing_changes_of_a_profile_all_have_their_version
                assistants_of_another_tenant_look_missing
                a_tenant_that_is_not_there_has_no_assistant
            }
            sessions {
                the_user_speaks_when_its_place_has_come
                the_end_of_a_turn_answers_and_lets_the_next_one_speak
                a_turn_that_failed_leaves_the_question_and_an_error
                a_lost_write_says_nothing_in_the_thread
                only_the_turn_that_spoke_ends_its_place
                a_request_that_leaves_the_queue_lets_the_next_one_run
                history_is_what_was_said_last_in_order
                racing_callers_share_one_thread_and_never_interleave
                a_dead_process_leaves_the_thread_usable
                a_response_that_ended_otherwise_does_not_block
                a_caller_that_disconnects_while_joining_the_queue_does_not_block
                a_message_that_begins_a_session_closes_the_active_one
                messages_of_browsers_are_counted_for_each_user_and_day
            }
            threads {
                a_thread_is_found_again_by_user_tenant_and_profile
                every_text_can_be_said
                threads_and_messages_are_paged
                threads_of_others_look_missing
                threads_outlive_their_responses
                reset_takes_threads_and_with_all_what_assistants_are
                reset_takes_assistants_of_the_tenants_that_are_named_and_leaves_the_others
            }
            courses {
                courses_are_read_back_as_they_were_put
                courses_are_put_all_or_none
                the_best_course_is_found_first
                what_is_found_is_paged
                a_course_is_found_by_the_words_that_it_has_now
                courses_of_another_tenant_look_missing
            }
            execute {
                a_session_is_read_back_as_it_was_opened
                sessions_and_turns_are_paged_newest_first
                a_session_remembers_how_its_mode_changed
                a_deleted_session_is_gone_with_its_turns
                sessions_of_others_look_missing
                sessions_outlive_their_responses_and_go_with_a_reset
            }
            steps {
                a_submission_is_worked_on_once
                what_failed_is_taken_again
                what_failed_is_said_behind_what_was_said_since
                a_session_works_on_one_turn_at_a_time
                a_turn_goes_on_from_the_last_one_that_ended_well
                results_go_on_with_the_turn_that_waits_for_them
                results_that_failed_are_taken_again
                a_turn_that_was_given_up_takes_no_results
                a_dead_processs_step_is_taken_again
                a_step_that_was_given_back_is_free
                a_caller_that_disconnects_while_taking_a_step_does_not_block
                a_step_whose_response_was_deleted_is_gone
                a_session_keeps_what_its_turns_say
                steps_of_others_look_missing
                racing_submissions_have_one_first
            }
            audit {
                rows_are_read_back_as_they_were_appended_and_once
                rows_of_many_tasks_make_one_chain
                a_change_without_effect_has_no_row
                rows_are_found_by_tenant_actor_object_and_time
            }
            webhooks {
                an_event_is_enqueued_once_for_each_endpoint_that_receives_it
                deliveries_are_claimed_once_and_in_order
                the_write_that_ends_a_background_turn_enqueues_its_event
            }
            limits {
                a_limit_is_read_back_changed_listed_and_deleted
                a_reservation_takes_from_all_limits_or_from_none
                a_hold_is_settled_once_and_by_fact
                the_write_that_ends_a_turn_settles_its_holds
                a_lost_write_settles_no_hold
                holds_of_a_dead_process_count_as_they_were_reserved
                a_hold_of_a_deleted_limit_does_not_change_the_next_one
                a_budget_is_announced_at_each_threshold_once
                racing_calls_never_exceed_a_limit_and_in_the_end_the_facts_are_counted
                a_turn_that_waits_is_notified_when_another_one_ends
                imported_prices_are_read_back_exactly
            }
            modes {
                modes_are_read_back_as_they_were_put
                a_mode_takes_the_place_of_the_one_of_its_name
                modes_of_another_tenant_look_missing
                modes_stay_when_only_what_turns_wrote_goes
            }
            uploads {
                a_file_is_read_back_as_it_was_put
                a_large_file_survives
                files_are_listed_by_age_and_purpose_in_pages
                a_tenant_has_room_for_so_many_bytes
                racing_uploads_do_not_overfill_the_room
                a_file_that_has_expired_is_not_there_and_is_cleared_away
                files_of_others_look_missing
                files_go_with_a_reset
            }
            knowledge {
                a_piece_is_read_back_as_it_was_brought_in
                a_piece_is_found_by_a_word_and_by_a_part_of_a_name
                the_piece_that_says_most_is_found_first
                conditions_say_which_documents_are_searched
                only_the_collections_that_are_named_are_searched
                a_document_that_comes_again_takes_the_place_of_the_one_before
                what_was_forgotten_is_not_found
                documents_are_listed_by_source_and_path_in_pages
                knowledge_of_another_tenant_looks_missing
                words_that_look_like_questions_are_only_words
                documents_come_in_all_or_none
                embeddings_belong_to_the_model_of_their_collection
                frequent_words_are_found_where_they_say_most
            }
            tenancy {
                tenants_have_numbers_and_can_be_changed
                keys_are_found_by_their_hash_and_revoked_once
                keys_are_listed_by_their_ids
                the_first_memory_stays_unless_it_is_replaced
            }
            console {
                a_session_is_found_by_its_token_and_ends_once
                sessions_that_are_over_go_with_the_next_sign_in
                sessions_are_listed_by_tenant
                a_link_is_used_once_and_in_time
            }
            processes {
                processes_are_known_by_their_last_beat
                what_a_dead_process_left_is_ended
                only_one_buries_a_process
                a_dead_process_writes_nothing_any_more
                claims_of_a_dead_process_are_free_unless_their_response_lives
                queued_turns_are_taken_once_and_oldest_first
                turns_that_wait_are_counted_for_a_tenant_and_for_all
                a_queued_turn_starts_once
                a_turn_that_was_given_back_waits_again
                held_turns_are_those_that_have_not_ended
            }
            waiting {
                a_request_that_waits_for_a_response_is_notified
                a_process_that_waits_for_queued_turns_is_notified
                a_request_that_waits_for_a_claim_is_notified
                no_request_is_notified_of_another_change
            }
            retention {
                what_is_old_goes_and_what_is_young_stays
                what_has_not_ended_stays
                young_turns_keep_what_they_build_on
                tool_calls_and_approvals_go_with_the_model_calls
                reset_forgets_turns_and_with_all_everything
                a_store_that_can_be_used_says_so
            }
        }
    };
    (@all $run:ident $marks:tt $($module:ident { $($check:ident)+ })+) => {
        $($(contract! { @one $run $marks $module $check })+)+
    };
    (@one $run:ident [$($mark:tt)*] $module:ident $check:ident) => {
        #[test]
        $($mark)*
        fn $check() {
            $run(|store| Box::pin($crate::contract::$module::$check(store)));
        }
    };
}
