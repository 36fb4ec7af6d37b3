//! What outlives a kill beside what was handed over: the state of each entity, and the lines that nodes wrote of gaps and late
//! ones before they answered. Both must be those of a second judgement in the order of deliveries, whose numbers rise in the
//! order in which an entity's messages were judged, by whichever node: each has them under the entity's lock.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{ALONE, Numbered, Run, TOGETHER, id, numbered};

/// What is told of a message that did not stand right behind the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Late { last: i64 },
    Gap { size: i64 },
}

/// Compares all of it.
pub(super) async fn check(run: &Run) {
    let mut lines = 0;
    for queue in ["strict", "lenient"] {
        lines += check_lines(queue, run);
    }
    let mut states = 0;
    for queue in TOGETHER.into_iter().chain([ALONE]) {
        states += check_states(queue, run).await;
    }
    println!("{lines} lines of gaps and late ones, {states} states of entities");
}

/// What came of each message at a queue, as it was judged: its delivery, and whether it was taken.
fn judged(queue: &str, run: &Run) -> Vec<(i64, Numbered, bool)> {
    let taken = run.handed[queue].iter().map(|(delivery, it)| (*delivery, *it, true));
    let refused = run.refused.get(queue).into_iter().flatten();
    let mut judged: Vec<_> = taken.chain(refused.map(|(delivery, it)| (*delivery, *it, false))).collect();
    judged.sort_unstable();
    judged
}

/// Entities are at the highest that was taken, and miss what was not taken since the first: what is late fills a gap only where
/// it is taken.
async fn check_states(queue: &str, run: &Run) -> usize {
    let name = if queue == ALONE { "done" } else { "build" };
    let mut taken = BTreeMap::<u64, (i64, BTreeSet<i64>)>::new();
    for (_, (entity, number), is_taken) in judged(queue, run) {
        let (_, numbers) = taken.entry(entity).or_insert_with(|| (number, BTreeSet::new()));
        if is_taken {
            numbers.insert(number);
        }
    }
    for (entity, (first, numbers)) in &taken {
        let last = *numbers.last().expect("the first one of an entity is taken");
        let missing: Vec<_> = (*first..last).filter(|it| !numbers.contains(it)).collect();
        let path = format!("/v1/entities/{entity}?destination=acme/{queue}:acme/ci:{name}");
        let state = run.builds.node.get(&path).await;
        let told =
            ["last", "lastId", "missing", "untracked", "gaps", "waiting", "closed"].map(|it| &state[it]);
        let expected = [
            json!(last),
            json!(id(name, (*entity, last))),
            json!(missing.len()),
            json!(0),
            Value::Array(gaps(&missing)),
            json!([]),
            json!(false),
        ];
        assert_eq!(told, expected.each_ref(), "{queue}: {entity} from {first} with {numbers:?}");
    }
    taken.len()
}

/// Numbers that are missing, as ranges.
fn gaps(missing: &[i64]) -> Vec<Value> {
    missing
        .chunk_by(|one, next| one + 1 == *next)
        .map(|gap| json!({ "from": gap[0], "to": gap[gap.len() - 1] }))
        .collect()
}

/// Each line that was written is right and was written once, and none is left out of a message whose answer came: it is
/// written first.
fn check_lines(queue: &str, run: &Run) -> usize {
    let (mut last, mut expected) = (BTreeMap::new(), BTreeMap::new());
    let judged = judged(queue, run);
    for (_, (entity, number), is_taken) in &judged {
        let before = last.get(entity).copied();
        let line = before.and_then(|last| match number - last {
            1 => None,
            ahead @ 2.. => Some(Line::Gap { size: ahead - 1 }),
            ..=0 => Some(Line::Late { last }),
        });
        let is_refused = queue == "strict" && matches!(line, Some(Line::Late { .. }));
        assert_eq!(*is_taken, !is_refused, "{queue}: {number} of {entity} after {before:?}");
        expected.extend(line.map(|it| ((*entity, *number), it)));
        last.insert(*entity, before.map_or(*number, |before| before.max(*number)));
    }
    let written = written(queue, &run.said);
    for (it, line) in &written {
        assert_eq!(expected.get(it), Some(line), "{queue}: {it:?} was told otherwise than it was judged");
    }
    let answered = answered(queue, run);
    let unwritten = expected.keys().filter(|it| !written.contains_key(it));
    let lost: Vec<_> = unwritten.filter(|it| answered.contains_key(it)).collect();
    assert!(lost.is_empty(), "{queue}: nothing was told of {lost:?}");
    let deliveries: BTreeMap<_, _> = judged.iter().map(|(delivery, it, _)| (*it, *delivery)).collect();
    for (it, delivery) in &answered {
        assert_eq!(deliveries.get(it), Some(delivery), "{queue}: {it:?} was answered as another delivery");
    }
    written.len()
}

/// Those whose first answer came, and the delivery that it named: a duplicate's names none.
fn answered(queue: &str, run: &Run) -> BTreeMap<Numbered, i64> {
    let delivery = |build: &Value| {
        let each = build["subscriptions"].as_array()?;
        let of = each.iter().find(|it| it["destination"].as_str().unwrap().contains(queue))?;
        of["delivery_id"].as_i64()
    };
    run.answers.iter().filter_map(|it| Some((it.it, delivery(&it.build)?))).collect()
}

/// What the log of the nodes says of a subscription.
fn written(queue: &str, said: &str) -> BTreeMap<Numbered, Line> {
    let route = format!(" route=acme/{queue}:acme/ci:build ");
    let mut written = BTreeMap::new();
    for text in said.lines().filter(|it| it.contains(" snavio::order: ") && it.contains(&route)) {
        let field = |name: &str| {
            let (_, rest) = text.split_once(&format!(" {name}="))?;
            rest.split_whitespace().next()
        };
        let number =
            |name: &str| field(name).and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{text}"));
        let line = match text {
            _ if text.contains(": a late message ") => Line::Late { last: number("last") },
            _ if text.contains(": a gap ") => Line::Gap { size: number("missing") },
            _ => panic!("{text}"),
        };
        let it = numbered(field("id").unwrap_or_else(|| panic!("{text}")));
        assert_eq!(it.1, number("number"), "{text}");
        assert_eq!(written.insert(it, line), None, "it was told twice: {text}");
    }
    written
}
