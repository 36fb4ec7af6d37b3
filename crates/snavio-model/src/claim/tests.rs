use super::*;
use crate::delivery::processing::Processing;

/// CLM-20
#[test]
fn claim_must_outlive_twice_the_window() {
    let window = Duration::from_secs(60);
    for (keep_seconds, right) in
        [(179, false), (180, true), (300, true), (400 * 86_400, true), (400 * 86_400 + 1, false)]
    {
        let problem = ClaimPolicy::Strict { keep_seconds }.problem(window, Attempts::default());
        assert_eq!(problem.is_none(), right, "{keep_seconds}: {problem:?}");
    }
    let problem = ClaimPolicy::strict().problem(Duration::from_secs(121), Attempts::default());
    assert_eq!(
        problem.as_deref(),
        Some(
            "claim.keep_seconds is 300, but a claim must outlive twice the replay window and a wait for the commit: 2 × 121 s + 60 s = 302 s"
        )
    );
}

/// CLM-20
#[test]
fn claim_must_outlive_the_attempts_of_its_route() {
    let http = Processing::http("https://gl.example/post").longest(5);
    let problem = ClaimPolicy::strict().problem(Duration::from_secs(60), http);
    assert_eq!(
        problem.as_deref(),
        Some(
            "claim.keep_seconds is 300, but a claim must outlive twice the replay window, a wait for the commit and the route's own attempts with their pauses: 2 × 60 s + 60 s + 5 × 30 s + 15 s = 345 s"
        )
    );
}

/// CLM-20: pushes are the route's own attempts. The default policy fits the default number of receives.
#[test]
fn claim_must_outlive_the_pushes_of_its_route() {
    let push = Processing::push("https://shop.example/hook");
    let problem = |attempts| ClaimPolicy::strict().problem(bounds::REPLAY_WINDOW, push.longest(attempts));
    assert_eq!(problem(bounds::RECEIVES_DEFAULT), None);
    let text = problem(6).unwrap_or_default();
    assert!(text.ends_with("2 × 60 s + 60 s + 6 × 20 s + 31 s = 331 s"), "{text}");
}

/// CLM-15
#[test]
fn ledger_claims_are_kept_for_seven_years_at_least() {
    const DAY: u32 = 86_400;
    for (keep_seconds, right) in [
        (300, false),
        (2557 * DAY - 1, false),
        (2557 * DAY, true),
        (36_525 * DAY, true),
        (36_526 * DAY, false),
    ] {
        let problem = ClaimPolicy::Ledger { keep_seconds, hot_days: 400 }
            .problem(Duration::from_secs(60), Attempts::default());
        assert_eq!(problem.is_none(), right, "{keep_seconds}: {problem:?}");
    }
    let ledger = |keep_seconds, hot_days| {
        let policy = ClaimPolicy::Ledger { keep_seconds, hot_days };
        policy.problem(Duration::from_secs(60), Attempts::default())
    };
    let problem = ledger(365 * DAY, 400).unwrap();
    assert!(problem.ends_with("2557 days × 86400 s = 220924800 s"), "{problem}");
    for (hot_days, right) in [(0, false), (1, true), (2557, true), (2558, false)] {
        assert_eq!(ledger(2557 * DAY, hot_days).is_none(), right, "{hot_days}");
    }
}

fn attempt(fence: i64, number: u32, tracking: Tracking) -> Attempt {
    Attempt { fence: Serial(fence), number, most: 3, tracking }
}

fn completed(reference: &str) -> Ending {
    Ending::Completed { answer: None, reference: Some(reference.to_owned()), note: None }
}

fn failed(is_final: bool) -> Ending {
    Ending::Failed { error: "no".to_owned(), is_final, answer: None, retry_after: None }
}

fn unknown() -> Ending {
    Ending::Unknown { error: "silence".to_owned() }
}

/// CLM-4, CLM-6, CLM-7
#[test]
fn every_ending_sets_the_status_and_the_next_step() {
    use Tracking::{Hold, Retry};
    let (again, for_good) = (Status::Failed { is_final: false }, Status::Failed { is_final: true });
    for (ending, number, tracking, status, next) in [
        (completed("JE-1"), 1, Retry, Status::Completed, Next::Done),
        (completed("JE-1"), 3, Hold, Status::Completed, Next::Done),
        (failed(false), 1, Retry, again, Next::Again),
        (failed(false), 2, Hold, again, Next::Again),
        (failed(false), 3, Retry, for_good, Next::Bury(DeadReason::ReceivesExhausted)),
        (failed(true), 1, Retry, for_good, Next::Bury(DeadReason::Failed)),
        (unknown(), 1, Retry, again, Next::Again),
        (unknown(), 3, Retry, Status::InDoubt, Next::Bury(DeadReason::ReceivesExhausted)),
        (unknown(), 1, Hold, Status::InDoubt, Next::Bury(DeadReason::InDoubt)),
    ] {
        let mut progress = Progress::new(Serial(7));
        let step = progress.finish(&attempt(9, number, tracking), &ending, Timestamp(5)).unwrap();
        let result = (progress.status, step, progress.fence, progress.attempts, progress.ended_at);
        assert_eq!(result, (status, next, Some(Serial(9)), number, Some(Timestamp(5))), "{ending:?}");
    }
}

fn lapse(progress: &mut Progress, number: u32) {
    progress.lapsed(Some(Serial(i64::from(number))), number, Timestamp(5));
}

fn report(progress: &mut Progress, number: u32, ending: &Ending) -> Next {
    let attempt = attempt(i64::from(number), number, Tracking::Retry);
    progress.finish(&attempt, ending, Timestamp(5)).unwrap()
}

/// CLM-7: a known failure does not reveal the outcome of the attempts before it.
#[test]
fn unknown_outcome_outlasts_later_failures() {
    for (second, last, status) in [
        (None, failed(false), Status::InDoubt),
        (Some(failed(false)), failed(false), Status::InDoubt),
        (Some(failed(false)), unknown(), Status::InDoubt),
        (Some(failed(false)), failed(true), Status::Failed { is_final: true }),
        (Some(failed(false)), completed("JE-1"), Status::Completed),
    ] {
        for first in [Some(unknown()), None] {
            let mut progress = Progress::new(Serial(7));
            match first {
                Some(ending) => drop(report(&mut progress, 1, &ending)),
                None => lapse(&mut progress, 1),
            }
            match &second {
                Some(ending) => assert_eq!(report(&mut progress, 2, ending), Next::Again),
                None => lapse(&mut progress, 2),
            }
            let stored = progress.error_text().map(Cow::into_owned);
            let read = Progress { doubted: false, error: None, ..progress.clone() }.with_error_text(stored);
            assert_eq!(read, progress, "a store keeps the unknown outcome");
            report(&mut progress, 3, &last);
            assert_eq!((progress.status, progress.doubted), (status, false), "{second:?} {last:?}");
            assert!(progress.was_ended_by(Serial(3), &last));
        }
    }
    let mut known = Progress::new(Serial(7));
    report(&mut known, 1, &unknown());
    known.reopened();
    for number in 1..=3 {
        report(&mut known, number, &failed(false));
    }
    assert_eq!(known.status, Status::Failed { is_final: true }, "a person has decided the unknown outcome");
}

/// CLM-7: a reporter's own words neither raise nor clear an unknown outcome.
#[test]
fn error_text_cannot_forge_an_unknown_outcome() {
    let mut progress = Progress::new(Serial(7));
    let error = format!("{DOUBTED}no");
    let ending = Ending::Failed { error, is_final: false, answer: None, retry_after: None };
    progress.finish(&attempt(1, 1, Tracking::Retry), &ending, Timestamp(5)).unwrap();
    let stored = progress.error_text().map(Cow::into_owned);
    assert!(!progress.clone().with_error_text(stored).doubted);
}

/// CLM-7: the outcome of leased work is unknown if the work ends without a report, for any reason.
#[test]
fn leased_work_without_a_report_has_an_unknown_outcome() {
    for reason in [DeadReason::ReceivesExhausted, DeadReason::RetentionExpired, DeadReason::Purged] {
        for (receives, status) in [(0, Status::Failed { is_final: true }), (1, Status::InDoubt)] {
            let mut progress = Progress::new(Serial(7));
            progress.buried(reason, receives, Timestamp(5));
            assert_eq!(progress.status, status, "{reason:?} after {receives}");
            let error = progress.error.unwrap();
            assert_eq!(error.contains("its outcome is unknown"), receives > 0, "{error}");
        }
    }
}

/// CLM-5
#[test]
fn completed_work_keeps_its_note_and_drops_earlier_errors() {
    let mut progress = Progress::new(Serial(7));
    progress.finish(&attempt(8, 1, Tracking::Retry), &failed(false), Timestamp(5)).unwrap();
    let mut done = progress.clone();
    done.finish(&attempt(9, 2, Tracking::Retry), &completed("JE-1"), Timestamp(6)).unwrap();
    assert_eq!((done.status, done.error), (Status::Completed, None));
    let note = Some("no\nreference".to_owned());
    let noted = Ending::Completed { answer: None, reference: None, note };
    assert_eq!(progress.finish(&attempt(9, 2, Tracking::Hold), &noted, Timestamp(6)), Ok(Next::Done));
    assert_eq!((progress.status, progress.error.as_deref()), (Status::Completed, Some("no reference")));
    assert!(progress.was_ended_by(Serial(9), &noted));
}

/// CLM-7: the stored answer never changes once it is there.
#[test]
fn late_report_is_fenced_and_changes_nothing() {
    for first in [completed("JE-2"), failed(true)] {
        let mut progress = Progress::new(Serial(7));
        progress.finish(&attempt(9, 2, Tracking::Retry), &first, Timestamp(5)).unwrap();
        let before = progress.clone();
        for late in [completed("JE-1"), failed(false), failed(true), unknown()] {
            let late = progress.finish(&attempt(8, 1, Tracking::Retry), &late, Timestamp(6));
            assert_eq!((late, &progress), (Err(Fenced), &before));
        }
    }
}

/// CLM-4
#[test]
fn repeated_report_is_recognised() {
    let mut progress = Progress::new(Serial(7));
    progress.finish(&attempt(9, 1, Tracking::Retry), &completed("JE-1"), Timestamp(5)).unwrap();
    assert!(progress.was_ended_by(Serial(9), &completed("JE-1")));
    assert!(!progress.was_ended_by(Serial(9), &completed("JE-2")));
    assert!(!progress.was_ended_by(Serial(8), &completed("JE-1")));
    assert!(!progress.was_ended_by(Serial(9), &failed(true)));
}

/// CLM-6: a repeated report of a failure does not restart its pause. Another failure, a worse one and a lapse
/// do count.
#[test]
fn repeated_failure_is_recognised_during_its_pause() {
    let mut progress = Progress::new(Serial(7));
    assert!(!progress.waits_after(Serial(9), &failed(false)));
    progress.finish(&attempt(9, 1, Tracking::Retry), &failed(false), Timestamp(5)).unwrap();
    assert!(progress.waits_after(Serial(9), &failed(false)));
    for (fence, ending) in [(8, failed(false)), (9, failed(true)), (9, unknown()), (9, completed("JE-1"))] {
        assert!(!progress.waits_after(Serial(fence), &ending), "{fence} {ending:?}");
    }
    progress.lapsed(Some(Serial(10)), 2, Timestamp(6));
    assert!(!progress.waits_after(Serial(10), &failed(false)));
}

fn claim(expires_at: i64) -> Claim {
    Claim {
        source: "acme/billing".parse().unwrap(),
        message: Serial(6),
        first_seen_at: Timestamp(0),
        expires_at: Timestamp(expires_at),
        hot_until: None,
        progress: Some(Box::new(Progress::new(Serial(7)))),
    }
}

/// CLM-20: a second winner would be worse than a late one.
#[test]
fn claim_outlives_unfinished_work_and_possible_resends() {
    let late = Timestamp(1_000_000);
    for (ending, status) in [(completed("JE-1"), "COMPLETED"), (failed(true), "FAILED")] {
        let mut claim = claim(1000);
        assert!(claim.is_live(late), "it is in progress");
        claim.finish(&attempt(9, 1, Tracking::Retry), &failed(false), late).unwrap();
        assert!(claim.is_live(late), "it is tried again");
        claim.finish(&attempt(10, 2, Tracking::Retry), &ending, late).unwrap();
        assert_eq!(claim.status().as_str(), status);
        let kept = late.plus(2 * bounds::REPLAY_WINDOW + bounds::CLAIM_KEEP_SLACK);
        assert_eq!(claim.expires_at, kept);
        assert!(!claim.is_live(kept));
    }
    let mut settled = claim(1000);
    settled.finish(&attempt(9, 1, Tracking::Hold), &unknown(), late).unwrap();
    assert!(settled.is_live(Timestamp(i64::MAX)), "CLM-7: until a person decides");
    settled.settled(None, Timestamp(2_000_000)).unwrap();
    assert!(settled.is_live(Timestamp(2_179_999)) && !settled.is_live(Timestamp(2_180_000)));
    let mut buried = claim(1000);
    buried.buried(DeadReason::RetentionExpired, 0, late);
    assert!(buried.is_live(late) && !buried.is_live(Timestamp(late.0 * 2)));
    let mut long = claim(i64::MAX);
    long.finish(&attempt(9, 1, Tracking::Retry), &completed("JE-1"), late).unwrap();
    assert_eq!(long.expires_at, Timestamp(i64::MAX), "and never for shorter than its policy says");
}

/// CLM-20: under every configured window, a policy that fits the window keeps the claims of late work for
/// long enough.
#[test]
fn late_work_keeps_its_claim_for_the_window_in_force() {
    let ended = Timestamp(10_000_000);
    for window in [1, 60, 120, 900].map(Duration::from_secs) {
        let takes = 2 * window + bounds::CLAIM_KEEP_SLACK;
        let keeps = [takes, takes + Duration::from_secs(7), bounds::EVENT_KEEP];
        for keep in keeps.map(|keep| keep.max(bounds::CLAIM_KEEP_SLACK)) {
            let keep_seconds = u32::try_from(keep.as_secs()).unwrap();
            let policy = ClaimPolicy::Strict { keep_seconds };
            assert_eq!(policy.problem(window, Attempts::default()), None, "the policy fits the window");
            let mut claim = claim(i64::try_from(keep.as_millis()).unwrap());
            claim.finish(&attempt(9, 1, Tracking::Retry), &completed("JE-1"), ended).unwrap();
            // A resend that was signed just before the end, by a clock that is ahead by as much as the window
            // allows.
            let resent = Timestamp(ended.plus(takes).0 - 1);
            assert!(claim.is_live(resent), "window {window:?}, kept {keep:?}");
            assert!(!claim.is_live(ended.plus(bounds::EVENT_KEEP)), "and not for ever");
        }
    }
    let longest = 2 * bounds::REPLAY_WINDOW_MAX + bounds::CLAIM_KEEP_SLACK;
    let mut claim = claim(i64::try_from(bounds::EVENT_KEEP.as_millis()).unwrap());
    let ended = Timestamp(100_000_000);
    claim.finish(&attempt(9, 1, Tracking::Retry), &completed("JE-1"), ended).unwrap();
    assert_eq!(claim.expires_at, ended.plus(longest));
    assert!(claim.is_prolonged());
}

/// CLM-4: the failure of the last attempt is final, even if it was reported as retryable. A repeated report
/// changes nothing.
#[test]
fn repeated_last_failure_is_recognised() {
    let for_good = Status::Failed { is_final: true };
    for (ending, status) in [(failed(false), for_good), (unknown(), Status::InDoubt)] {
        let mut progress = Progress::new(Serial(7));
        progress.finish(&attempt(9, 3, Tracking::Retry), &ending, Timestamp(5)).unwrap();
        assert_eq!(progress.status, status);
        assert!(progress.was_ended_by(Serial(9), &ending), "{ending:?}");
    }
}

/// QUA-1: text that an engine cannot store would make the end of work impossible to report.
#[test]
fn errors_are_kept_printable_and_short() {
    let mut progress = Progress::new(Serial(7));
    let error = format!("a\u{0}b{}", "c".repeat(1000));
    let ending = Ending::Failed { error, is_final: false, answer: None, retry_after: None };
    progress.finish(&attempt(9, 1, Tracking::Retry), &ending, Timestamp(5)).unwrap();
    let kept = progress.error.unwrap();
    assert!(kept.starts_with("a bc") && kept.len() == bounds::ERROR_CHARS_MAX, "{kept}");
}

/// CLM-1
#[test]
fn destination_belongs_to_its_own_tenant() {
    for (destination, owned) in [("acme/bot:pay", true), ("acm/bot:pay", false), ("acmes/bot:pay", false)] {
        let key = ClaimKey {
            id: MessageId::stored("id"),
            tenant: TenantName::new("zeta").unwrap(),
            destination: destination.into(),
        };
        assert_eq!(key.is_owned_by("acme"), owned, "{destination}");
    }
}

/// CLM-2
#[test]
fn status_has_one_number_and_its_name() {
    for status in Status::ALL {
        assert_eq!(Status::stored(status.number()), Some(status));
        assert!(Status::named(status.as_str()).contains(&status));
    }
    assert_eq!(Status::stored(5), None);
    assert_eq!(Status::named("failed").len(), 2);
}

fn read_policy(text: &str) -> serde_json::Result<ClaimPolicy> {
    serde_json::from_str(text)
}

/// CLM-3
#[test]
fn policies_read_as_the_contract_names_them() {
    assert_eq!(read_policy(r#"{"policy":"none"}"#).unwrap(), ClaimPolicy::None);
    assert_eq!(read_policy(r#"{"policy":"strict"}"#).unwrap(), ClaimPolicy::Strict { keep_seconds: 300 });
    for (name, keep, compares) in [
        ("strict", 300, false),
        ("event", 86_400, true),
        ("seen", 2_592_000, false),
        ("ledger", 220_924_800, true),
    ] {
        let text = format!(r#"{{"policy":"{name}"}}"#);
        let policy = read_policy(&text).unwrap();
        let result = (policy.name(), policy.keep().unwrap().as_secs(), policy.compares().is_some());
        assert_eq!(result, (name, keep, compares));
        assert_eq!(policy.problem(bounds::REPLAY_WINDOW, Attempts::default()), None);
    }
    assert!(read_policy(r#"{"policy":"strict","keep":1}"#).is_err());
}

/// CLM-7
#[test]
fn late_report_without_a_lease_is_not_recorded() {
    let leases = Leases { after: Serial(10), newest: Serial(20), attempts: 2 };
    for (fence, on_record, is_recorded) in [
        (11, 0, true),
        (20, 0, true),
        (20, 1, true),
        (20, 2, false),
        (10, 0, false),
        (21, 0, false),
        (0, 0, false),
        (-1, 0, false),
        (i64::MAX, 0, false),
    ] {
        assert_eq!(
            leases.put_on_record(Serial(fence), on_record),
            is_recorded,
            "{fence}, {on_record} before"
        );
    }
    assert!(!Leases { attempts: 0, ..leases }.put_on_record(Serial(15), 0), "no worker ever leased it");
}
