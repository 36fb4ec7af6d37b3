//! Ids derived from content equal those of the Python reference (MSG-7). The test runs the reference in
//! Python.

use std::io::Write as _;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::json;
use snavio_model::adapter::{dumps, event_id};

/// The reference's `generate_event_id`, with one request per line.
const REFERENCE: &str = r#"
import hashlib, json, sys

def generate_event_id(source: str, external_id: str, payload) -> str:
    normalized = json.dumps(payload, sort_keys=True)
    data = f"{source}:{external_id}:{normalized}"
    return hashlib.sha256(data.encode()).hexdigest()

for line in sys.stdin:
    source, external_id, text = json.loads(line)
    payload = json.loads(text)
    print(json.dumps([generate_event_id(source, external_id, payload), json.dumps(payload, sort_keys=True)]))
"#;

/// Returns the reference's result for each document: the id, and the text that it hashed.
fn reference(documents: &[(String, String, String)]) -> Vec<(String, String)> {
    let mut python = Command::new("python3")
        .args(["-c", REFERENCE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is needed for this test");
    let lines: String = documents.iter().map(|document| format!("{}\n", json!(document))).collect();
    let mut stdin = python.stdin.take().expect("the pipe is there");
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()).expect("Python reads"));
    let output = python.wait_with_output().expect("Python ends");
    writer.join().expect("all was written");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("Python writes text");
    text.lines().map(|line| serde_json::from_str(line).expect("a pair of texts")).collect()
}

fn compare(documents: &[(String, String, String)]) {
    let answers = reference(documents);
    assert_eq!(answers.len(), documents.len());
    for ((source, external_id, text), (id, normalized)) in documents.iter().zip(&answers) {
        let written = dumps(text.as_bytes()).expect("the document is strict JSON");
        assert_eq!(&written, normalized, "{text}");
        let own = event_id(source, external_id, text.as_bytes()).expect("the document is strict JSON");
        assert_eq!(own.as_str(), id, "{text}");
    }
}

/// MSG-7
#[test]
fn ids_equal_the_reference() {
    let documents = [
        r#"{"data": "test"}"#,
        "{}",
        "[]",
        "null",
        r#"{"b": {"d": [1, {"f": 2, "e": [[], {}]}], "c": true}, "a": null}"#,
        r#"{"é": "Zoë", "漢字": "かな", "emoji": "😀👩‍👩‍👧", "ascii": "a/b", "\ud83d\ude00": "\u00e9\/"}"#,
        "{\"\u{1f600}\": 1, \"\u{ffff}\": 2, \"\u{e000}\": 3, \"z\": 4, \"\": 5}",
        r#""\" \\ \/ \b \f \n \r \t \u0001 \u001f \u007f \u0080 \u2028 \u2029 \ufeff""#,
        "[0, -0, 7, -7, 9007199254740993, 18446744073709551616, 1234567890123456789012345678901234]",
        "[0.0, -0.0, 1.0, 1e0, 10e-1, 1.5, 0.1, 100.0, 1e3, 1E3, 1e+3, 123456.789]",
        "[1e15, 1e16, 1e17, 9999999999999998.0, 99999999999999990.0, 1e21, 1e22, 1e23, 1.7976931348623157e308]",
        "[0.001, 0.0001, 0.00012345, 0.00001, 1e-5, 1e-10, 2.5e-7, 5e-324, 2.2250738585072014e-308, 1e-400]",
        "[1e400, -1e400, 9007199254740993.0, 0.30000000000000004, 0.1000000000000000055511151231257827]",
        "[10000000000000000000000000000000000000000, 1e5, -1.25e-7, 4.35, 2.675, 1e100]",
    ];
    let external = ["123", "a:b", "é 😀", ""];
    let with_ids = |(place, text): (usize, &&str)| {
        let external = external[place % external.len()];
        ("test".to_owned(), external.to_owned(), (*text).to_owned())
    };
    compare(&documents.iter().enumerate().map(with_ids).collect::<Vec<_>>());
}

/// A JSON number in one of its notations.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u128>().prop_map(|number| (number >> 16).to_string()),
        any::<f64>()
            .prop_filter("JSON has no other numbers", |number| number.is_finite())
            .prop_map(|number| format!("{number:e}")),
        (-1e18f64..1e18).prop_map(|number| format!("{number:?}")),
        (-1.0f64..1.0).prop_map(|number| format!("{number:.20}")),
        ("[1-9][0-9]{0,18}", -30i32..30).prop_map(|(digits, power)| format!("{digits}E{power:+}")),
        ("-?[0-9]", "[0-9]{1,20}").prop_map(|(whole, fraction)| format!("{whole}.{fraction}")),
    ]
}

fn text() -> impl Strategy<Value = String> {
    any::<String>().prop_map(|text| json!(text.replace('\0', "")).to_string())
}

fn document() -> impl Strategy<Value = String> {
    let leaf =
        prop_oneof![3 => number(), 3 => text(), 1 => Just("true".to_owned()), 1 => Just("null".to_owned())];
    leaf.prop_recursive(4, 24, 6, |inner| {
        let members = proptest::collection::btree_map(text(), inner.clone(), 0..6);
        let object = members.prop_map(|members| {
            let members: Vec<_> =
                members.iter().rev().map(|(name, value)| format!("{name} :{value}")).collect();
            format!("{{{}}}", members.join(","))
        });
        let array =
            proptest::collection::vec(inner, 0..6).prop_map(|values| format!("[{} ]", values.join(" , ")));
        prop_oneof![object, array]
    })
}

/// MSG-7
#[test]
fn ids_of_random_documents_equal_the_reference() {
    let mut runner = TestRunner::deterministic();
    let any = document();
    let mut next = || any.new_tree(&mut runner).expect("a document is made").current();
    let documents: Vec<_> = (0..2_000).map(|number| ("cli".to_owned(), number.to_string(), next())).collect();
    compare(&documents);
}
