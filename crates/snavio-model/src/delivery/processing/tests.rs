use super::*;

/// CLM-6
#[test]
fn pauses_double_up_to_a_limit_and_are_spread() {
    let retry = Processing::of(ProcessingKind::Http).retry(None);
    for (attempt, longest) in [(1, 1000), (2, 2000), (3, 4000), (6, 32_000), (7, 60_000), (99, 60_000)] {
        let pauses: Vec<_> =
            (0..100).map(|delivery| retry.due(attempt, Serial(delivery), Timestamp(0)).0).collect();
        assert!(pauses.iter().all(|pause| (longest / 2..=longest).contains(pause)), "{attempt}: {pauses:?}");
        let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
        assert!(most - least > longest / 4, "{attempt}: {least} to {most}");
    }
    let asked = Processing::of(ProcessingKind::Http).retry(Some(Duration::from_secs(90)));
    assert_eq!(asked.due(1, Serial(1), Timestamp(0)), Timestamp(90_000));
    assert_eq!(Retry::At(Timestamp(7)).due(9, Serial(1), Timestamp(0)), Timestamp(7));
}

/// CLM-20
#[test]
fn total_time_covers_all_deadlines_and_pauses() {
    let processing = Processing::of(ProcessingKind::Http);
    assert_eq!(processing.longest(1).total(), Duration::from_secs(30));
    assert_eq!(processing.longest(4).total(), Duration::from_secs(4 * 30 + 1 + 2 + 4));
    assert_eq!(Processing::default().longest(5).total(), Duration::ZERO);
    let push = Processing::push("https://shop.example/hook").longest(5);
    assert_eq!((push.total(), push.to_string()), (Duration::from_secs(115), "5 × 20 s + 15 s".to_owned()));
}

fn answer(status: u16, body: &str) -> Answer {
    Answer { status, content_type: None, body: body.to_owned().into() }
}

const REFERENCES: &str = r#"{"ref":["JE-1",7,""]}"#;

fn describe_ending(status: u16, retry_after: Option<Duration>, on_unknown_outcome: UnknownOutcome) -> String {
    let answer = Some(answer(status, REFERENCES));
    match Ending::of_http(status, answer, Some("/ref/0"), retry_after, on_unknown_outcome) {
        Ending::Completed { reference, .. } => format!("done {reference:?}"),
        Ending::Failed { is_final: true, .. } => "final".to_owned(),
        Ending::Failed { .. } => "again".to_owned(),
        Ending::Unknown { .. } => "unknown".to_owned(),
    }
}

/// CLM-6, CLM-7, CLM-9
#[test]
fn answer_status_decides_the_ending() {
    let soon = Some(Duration::from_secs(1));
    for (statuses, retried, held) in [
        (&[200, 201, 204][..], "done Some(\"JE-1\")", "done Some(\"JE-1\")"),
        (&[408, 425, 429], "again", "again"),
        (&[500, 501, 503, 524, 599], "again", "unknown"),
        (&[502, 504], "unknown", "unknown"),
        (&[301, 400, 401, 404, 409, 422], "final", "final"),
    ] {
        for status in statuses {
            assert_eq!(describe_ending(*status, None, UnknownOutcome::Retry), retried, "{status}");
            assert_eq!(describe_ending(*status, None, UnknownOutcome::Hold), held, "{status}");
        }
    }
    assert_eq!(
        describe_ending(503, soon, UnknownOutcome::Hold),
        "again",
        "the processor did not accept the request"
    );
    assert_eq!(describe_ending(500, soon, UnknownOutcome::Hold), "unknown");
    for (pointer, reference) in [("/ref/1", Some("7")), ("/ref/2", None), ("/ref", None), ("/none", None)] {
        assert_eq!(answer(200, REFERENCES).reference(pointer).ok().as_deref(), reference, "{pointer}");
    }
}

/// CLM-6, CLM-9
#[test]
fn busy_processor_is_asked_again_and_reference_is_one_line() {
    let later = Ending::of_http(
        409,
        Some(answer(409, "{}")),
        None,
        Some(Duration::from_secs(3)),
        UnknownOutcome::Retry,
    );
    assert!(matches!(later, Ending::Failed { is_final: false, .. }), "{later:?}");
    for (body, reference) in [(r#"{"r":"JE\u00001"}"#, None), (r#"{"r":"JE-1"}"#, Some("JE-1"))] {
        assert_eq!(answer(409, body).reference("/r").ok().as_deref(), reference, "{body}");
    }
}

/// CLM-5, CLM-9: the effect happened, and another attempt would not supply the missing reference.
#[test]
fn completed_answer_notes_missing_parts() {
    let long = "the processor answered 201 with more than 262144 bytes, which are not kept";
    let unknown = format!("{long}; so the reference under /r is not known");
    let without = "the processor answered 201 without a reference under /r: no text or number of 1 to 256 \
                   bytes on one line is there";
    let repeated = "the processor answered 201 without a reference under /r: a member on the way to it is \
                    repeated in its object, and readers differ in which one they take";
    for (body, pointer, reference, note) in [
        (Some(r#"{"r":"JE-1"}"#), Some("/r"), Some("JE-1"), None),
        (Some(r#"{"r":null}"#), Some("/r"), None, Some(without)),
        (Some(r#"{"r":"JE-1","r":"JE-2"}"#), Some("/r"), None, Some(repeated)),
        (Some("<html>"), Some("/r"), None, Some(without)),
        (Some(""), Some("/r"), None, Some(without)),
        (Some("{}"), None, None, None),
        (None, None, None, Some(long)),
        (None, Some("/r"), None, Some(unknown.as_str())),
    ] {
        let answer = body.map(|body| answer(201, body));
        let done = Ending::of_http(201, answer.clone(), pointer, None, UnknownOutcome::Retry);
        let [reference, note] = [reference, note].map(|text| text.map(str::to_owned));
        assert_eq!(done, Ending::Completed { answer, reference, note });
    }
    for (status, word) in [(422, "final"), (503, "again"), (502, "unknown")] {
        let ending = match Ending::of_http(status, None, Some("/r"), None, UnknownOutcome::Retry) {
            Ending::Failed { is_final: true, answer: None, error, .. } => format!("final: {error}"),
            Ending::Failed { answer: None, error, .. } => format!("again: {error}"),
            Ending::Unknown { error } => format!("unknown: {error}"),
            other => panic!("{other:?}"),
        };
        let says = "with more than 262144 bytes, which are not kept";
        assert_eq!(ending, format!("{word}: the processor answered {status} {says}"));
    }
}

/// DLV-4, QUA-6
#[test]
fn push_is_accepted_only_by_a_2xx() {
    for status in [200, 201, 202, 204, 299] {
        assert_eq!(Ending::of_push(status, None).error(), None, "{status}");
    }
    let wait = Some(Duration::from_secs(7));
    for status in [300, 301, 308, 400, 401, 404, 409, 410, 422, 429, 500, 502, 503, 504] {
        let ending = Ending::of_push(status, wait);
        let error = ending.error().unwrap_or_default().to_owned();
        assert!(error.starts_with(&format!("the receiver answered {status}")), "{error}");
        assert_eq!(error.contains("not followed"), status < 400, "{error}");
        assert_eq!(ending.without_claim(Tracking::Plain), Next::Again, "{status}");
        assert!(matches!(&ending, Ending::Failed { retry_after, .. } if *retry_after == wait));
        let last = ending.last().without_claim(Tracking::Plain);
        assert_eq!(last, Next::Bury(DeadReason::Failed), "{status}");
    }
    let lost = Ending::Unknown { error: "lost".to_owned() };
    assert_eq!(lost.without_claim(Tracking::Plain), Next::Again);
    assert_eq!(lost.without_claim(Tracking::Retry), Next::Again);
    assert_eq!(lost.without_claim(Tracking::Hold), Next::Bury(DeadReason::InDoubt));
    assert_eq!(lost.last().error(), Some("lost"));
}

/// CLM-7
#[test]
fn uncalled_attempt_is_final_only_as_the_first() {
    let ending = |is_final| Ending::Failed { error: "no".into(), is_final, answer: None, retry_after: None };
    for (attempt, is_final, stays) in [(1, true, true), (2, true, false), (2, false, false)] {
        assert_eq!(ending(is_final).unasked(attempt), ending(stays), "{attempt}");
    }
    let lost = Ending::Unknown { error: "lost".to_owned() };
    assert_eq!(lost.clone().unasked(2), lost);
}

/// CLM-7, DLV-4
#[test]
fn call_ends_before_its_lease_or_is_not_made() {
    let processing =
        Processing { timeout_seconds: 20, deadline_seconds: 30, ..Processing::http("https://x") };
    for (left_ms, time_ms) in [
        (30_000, Some(20_000)),
        (20_500, Some(20_000)),
        (20_000, Some(19_500)),
        (10_500, Some(10_000)),
        (10_499, None),
        (0, None),
    ] {
        let time = processing.call_time(Duration::from_millis(left_ms));
        assert_eq!(time, time_ms.map(Duration::from_millis), "{left_ms}");
    }
    let shortest = Processing { timeout_seconds: 1, deadline_seconds: 2, ..processing };
    assert_eq!(shortest.call_time(shortest.deadline()), Some(shortest.timeout()), "if it starts promptly");
}

/// DLV-1
#[test]
fn pushed_claim_is_complete_when_queued() {
    let push = Processing::push("https://shop.example/hook");
    assert_eq!((push.problem(), push.is_tracked(), push.tracking()), (None, false, Tracking::Plain));
    let text = serde_json::to_string(&push).unwrap();
    assert!(!text.contains("form"), "defaults are not written: {text}");
    let read: Processing =
        serde_json::from_str(r#"{"kind":"push","url":"https://x.example/","form":"cloudevents_binary"}"#)
            .unwrap();
    assert_eq!(read.form, PushForm::CloudeventsBinary);
}

/// CLM-9
#[test]
fn unworkable_parameters_are_named() {
    let http = || Processing::http("https://gl.example/post");
    assert_eq!(http().problem(), None);
    for (processing, says) in [
        (Processing { url: None, ..http() }, "processing.url"),
        (Processing { url: None, ..Processing::push("x") }, "processing.url"),
        (Processing { form: PushForm::Cloudevents, ..http() }, "processing.form"),
        (Processing { reference: Some("/x".to_owned()), ..Processing::push("x") }, "processing.reference"),
        (
            Processing { on_unknown_outcome: UnknownOutcome::Hold, ..Processing::push("x") },
            "on_unknown_outcome",
        ),
        (Processing { timeout_seconds: 30, ..Processing::push("x") }, "before its attempt's deadline"),
        (Processing { kind: ProcessingKind::Tracked, ..http() }, "processing.url"),
        (Processing { timeout_seconds: 30, ..http() }, "before its attempt's deadline: 30 s"),
        (Processing { deadline_seconds: 0, timeout_seconds: 0, ..http() }, "deadline"),
        (Processing { reference: Some("ref".to_owned()), ..http() }, "JSON pointer"),
        (Processing { backoff_seconds: 0, ..http() }, "backoff_seconds is 0"),
    ] {
        let problem = processing.problem().unwrap_or_default();
        assert!(problem.contains(says), "{problem}");
    }
}
