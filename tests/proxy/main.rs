//! The whole proxy: the binary, scripted servers behind it, a client that keeps every byte in front.
//!
//! Which field case is shown where (`/work/shared/field-cases.md`; kinds A, E, F, G, H, J, O, P, Q and B of issue 2, D, I and K for legacy
//! clients).
//! Names without a file are in this folder.
//!
//! | case | tests |
//! |---|---|
//! | 13, 33, 44, 49 (legacy clients) | `legacy::*`; `front/legacy/*.rs` |
//! | 1 | `deadlines::a_handle_comes_long_before_any_client_gives_up` |
//! | 3 | `deadlines::calls_that_are_given_up_hold_nothing_and_delay_nobody` |
//! | 5 | `deadlines::a_server_that_never_answers_is_given_up_at_the_limit` |
//! | 6 | `deadlines::a_repeated_call_runs_again_and_a_polled_one_does_not` |
//! | 9 | `fallbacks::a_held_call_survives_whoever_cuts_idle_connections`; `front/replies.rs`: `comments_keep_a_silent_stream_alive` |
//! | 11 | `src/upstream/http/http2_tests.rs`, `upstream_http/streams.rs`: `a_stream_that_is_reset_after_progress_…` |
//! | 16, 18, 20 | `upstream_http/streams.rs`, `src/protocol/sse.rs` |
//! | 22 | `front/replies.rs`: `a_client_is_answered_in_a_type_that_it_named`; `upstream_http/{answers,eras}.rs` |
//! | 24 | `upstream_http/sessions.rs`: `a_missing_listen_stream_…`, `a_silent_listen_stream_…`; `front/requests.rs` |
//! | 26 | `upstream_http/answers.rs`: `posts_have_a_length_…`, `a_truncated_body_…`; `front/replies.rs`: `lists_have_hints_…` |
//! | 28 | `upstream_http/answers.rs`: `json_under_another_name_…`, `a_body_without_end_…` |
//! | 29 | `ids::calls_with_the_same_id_never_get_each_others_answers` |
//! | 31 | `src/upstream/pending_tests.rs`, `upstream_http/answers.rs`, `upstream_stdio/traffic.rs` |
//! | 33 | `ids::an_array_of_calls_is_refused_before_any_of_them_runs`; `upstream_http/answers.rs`: `an_array_in_a_body_…` |
//! | 34, 36, 46 | `noise::what_a_server_says_besides_reaches_nobody` (over both transports); `src/upstream/stdio` |
//! | 38 | `large::results_of_any_size_come_whole_and_memory_stays_bounded` |
//! | 40 | `kill`, `stop::no_process_is_left_however_the_proxy_ends`; `upstream_stdio/life.rs` |
//! | 64 | `bytes::numbers_keep_their_spelling_as_results_tasks_and_after_a_restart` |
//! | 66 | `bytes::nothing_that_a_server_says_is_lost` |
//! | 68 | `clients::only_the_request_itself_makes_a_task`; `tasks_layer.rs` |
//! | 70 | `clients::a_client_without_tasks_learns_nothing_about_ids` |
//! | 72 | `kill::nothing_a_client_saw_is_lost_when_the_proxy_is_killed_at_any_moment` |
//! | 74 | `life::*` |
//! | 76 | `life::a_storm_of_polls_writes_nothing_and_changes_nothing` |
//! | 78 | only what issue 2 asks for: `front/replies.rs`: `lists_have_hints_for_caches_and_nothing_of_the_old_tasks` |
//! | 80 | `start::*`; `store/{opening,kill}.rs`, `store_faults` |
//! | 82 | `flat::*`; `front/replies.rs`: `a_client_that_does_not_read_…` |
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test ends where it fails")]

mod asking;
mod bytes;
mod client;
mod clients;
mod deadlines;
mod fallbacks;
mod flat;
#[path = "../support/http_server.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod http_server;
mod ids;
mod kill;
mod large;
mod legacy;
mod life;
mod noise;
mod owners;
mod process;
mod scripted;
mod start;
mod stop;
mod upstream;

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use serde_json::value::RawValue;

/// Nothing in these tests takes this long, unless it hangs; the machine may be busy.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for what must come.
async fn bounded<T>(future: impl Future<Output = T>) -> T {
    within(PATIENCE, future).await
}

/// Waits for what must come in time.
async fn within<T>(time: Duration, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(time, future).await.unwrap_or_else(|_| panic!("it took longer than {time:?}"))
}

/// Looks until something is so.
async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "it never came: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A member of a JSON object, as it is spelled.
fn member<'a>(object: &'a str, name: &str) -> &'a str {
    let members: HashMap<String, &RawValue> = serde_json::from_str(object).unwrap_or_else(|error| panic!("{error}"));
    members.get(name).unwrap_or_else(|| panic!("no {name}")).get()
}
