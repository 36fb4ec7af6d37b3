//! The facts besides deliveries that a kill must not lose: the state of each entity, and the log lines that
//! nodes write about gaps and late messages before they answer. Both must equal a second judgement in the
//! order of delivery ids. Delivery ids rise in the order in which any node judged an entity's messages,
//! because each node takes them under the entity's lock.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{BUILD_QUEUES, DONE_QUEUE, EventKey, Run, id, parse_id};

/// A log line about a message that did not directly follow the last one of its entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogLine {
    Late { last: i64 },
    Gap { size: i64 },
}

/// Compares the states and the log lines with a second judgement.
pub(super) async fn check(run: &Run) {
    let mut lines = 0;
    for queue in ["strict", "lenient"] {
        lines += check_lines(queue, run);
    }
    let mut states = 0;
    for queue in BUILD_QUEUES.into_iter().chain([DONE_QUEUE]) {
        states += check_states(queue, run).await;
    }
    println!("{lines} lines about gaps and late messages, {states} states of entities");
}

/// The judgements of the messages at a queue in their order: delivery id, event, and whether it was accepted.
fn judged(queue: &str, run: &Run) -> Vec<(i64, EventKey, bool)> {
    let accepted = run.received_first[queue].iter().map(|(delivery, event)| (*delivery, *event, true));
    let refused = run.refused.get(queue).into_iter().flatten();
    let mut judged: Vec<_> =
        accepted.chain(refused.map(|(delivery, event)| (*delivery, *event, false))).collect();
    judged.sort_unstable();
    judged
}

/// An entity's last number is the highest accepted one, and the numbers missing since its first are those
/// that were not accepted: a late message fills a gap only if it is accepted.
async fn check_states(queue: &str, run: &Run) -> usize {
    let name = if queue == DONE_QUEUE { "done" } else { "build" };
    let mut accepted = BTreeMap::<u64, (i64, BTreeSet<i64>)>::new();
    for (_, (entity, number), is_accepted) in judged(queue, run) {
        let (_, numbers) = accepted.entry(entity).or_insert_with(|| (number, BTreeSet::new()));
        if is_accepted {
            numbers.insert(number);
        }
    }
    for (entity, (first, numbers)) in &accepted {
        let last = *numbers.last().expect("the first one of an entity is taken");
        let missing: Vec<_> = (*first..last).filter(|number| !numbers.contains(number)).collect();
        let path = format!("/v1/entities/{entity}?destination=acme/{queue}:acme/ci:{name}");
        let state = run.builds.node.get(&path).await;
        let actual = ["last", "lastId", "missing", "untracked", "gaps", "waiting", "closed"]
            .map(|member| &state[member]);
        let expected = [
            json!(last),
            json!(id(name, (*entity, last))),
            json!(missing.len()),
            json!(0),
            Value::Array(gaps(&missing)),
            json!([]),
            json!(false),
        ];
        assert_eq!(actual, expected.each_ref(), "{queue}: {entity} from {first} with {numbers:?}");
    }
    accepted.len()
}

/// The missing numbers as ranges.
fn gaps(missing: &[i64]) -> Vec<Value> {
    missing
        .chunk_by(|number, next| number + 1 == *next)
        .map(|gap| json!({ "from": gap[0], "to": gap[gap.len() - 1] }))
        .collect()
}

/// Each line in the log is correct and was written once. No line is absent whose message was answered,
/// because a node writes the line before it answers.
fn check_lines(queue: &str, run: &Run) -> usize {
    let (mut last, mut expected) = (BTreeMap::new(), BTreeMap::new());
    let judged = judged(queue, run);
    for (_, (entity, number), is_accepted) in &judged {
        let before = last.get(entity).copied();
        let line = before.and_then(|last| match number - last {
            1 => None,
            ahead @ 2.. => Some(LogLine::Gap { size: ahead - 1 }),
            ..=0 => Some(LogLine::Late { last }),
        });
        let is_refused = queue == "strict" && matches!(line, Some(LogLine::Late { .. }));
        assert_eq!(*is_accepted, !is_refused, "{queue}: {number} of {entity} after {before:?}");
        expected.extend(line.map(|line| ((*entity, *number), line)));
        last.insert(*entity, before.map_or(*number, |before| before.max(*number)));
    }
    let written = written(queue, &run.logs);
    for (event, line) in &written {
        assert_eq!(
            expected.get(event),
            Some(line),
            "{queue}: {event:?} was logged otherwise than it was judged"
        );
    }
    let answered = answered(queue, run);
    let unwritten = expected.keys().filter(|event| !written.contains_key(event));
    let lost: Vec<_> = unwritten.filter(|event| answered.contains_key(event)).collect();
    assert!(lost.is_empty(), "{queue}: no line in the log for {lost:?}");
    let deliveries: BTreeMap<_, _> = judged.iter().map(|(delivery, event, _)| (*event, *delivery)).collect();
    for (event, delivery) in &answered {
        assert_eq!(
            deliveries.get(event),
            Some(delivery),
            "{queue}: {event:?} was answered as another delivery"
        );
    }
    written.len()
}

/// The delivery id in the first answer to each event. The answer to a duplicate has none.
fn answered(queue: &str, run: &Run) -> BTreeMap<EventKey, i64> {
    let delivery = |build: &Value| {
        let each = build["subscriptions"].as_array()?;
        let verdict = each.iter().find(|one| one["destination"].as_str().unwrap().contains(queue))?;
        verdict["delivery_id"].as_i64()
    };
    run.answers.iter().filter_map(|answers| Some((answers.event, delivery(&answers.build)?))).collect()
}

/// The lines about a subscription in the logs.
fn written(queue: &str, logs: &str) -> BTreeMap<EventKey, LogLine> {
    let route = format!(" route=acme/{queue}:acme/ci:build ");
    let mut written = BTreeMap::new();
    for text in logs.lines().filter(|line| line.contains(" snavio::order: ") && line.contains(&route)) {
        let field = |name: &str| {
            let (_, rest) = text.split_once(&format!(" {name}="))?;
            rest.split_whitespace().next()
        };
        let number =
            |name: &str| field(name).and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{text}"));
        let line = match text {
            _ if text.contains(": a late message ") => LogLine::Late { last: number("last") },
            _ if text.contains(": a gap ") => LogLine::Gap { size: number("missing") },
            _ => panic!("{text}"),
        };
        let event = parse_id(field("id").unwrap_or_else(|| panic!("{text}")));
        assert_eq!(event.1, number("number"), "{text}");
        assert_eq!(written.insert(event, line), None, "the message was logged twice: {text}");
    }
    written
}
