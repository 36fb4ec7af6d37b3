//! The rules of strict JSON and of the canonical form, as tables and as properties of random documents.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::bounds::{BODY_BYTES_MAX, JSON_DEPTH_MAX, JSON_MEMBERS_MAX};

fn canonical(text: impl AsRef<[u8]>) -> Result<String, Fault> {
    let mut out = Vec::new();
    let mut reader = Reader::new(text.as_ref())?;
    reader.canonical(&mut out)?;
    reader.finish()?;
    Ok(String::from_utf8(out).unwrap())
}

fn fault(text: impl AsRef<[u8]>) -> (FaultKind, usize) {
    let fault = canonical(text).unwrap_err();
    (fault.kind, fault.at)
}

/// MSG-8
#[test]
fn numbers_keep_their_value_in_one_layout() {
    for (text, expected) in [
        ("0", "0"),
        ("-0", "0"),
        ("-0.0e5", "0"),
        ("0e-99999999999999999999999", "0"),
        ("1.0", "1"),
        ("-1.50", "-1.5"),
        ("100", "100"),
        ("1e2", "100"),
        ("0.05", "0.05"),
        ("0.0500", "0.05"),
        ("10.01", "10.01"),
        ("0.000001", "0.000001"),
        ("0.0000010", "0.000001"),
        ("0.0000001", "1e-7"),
        ("-0.00000012", "-1.2e-7"),
        ("100000000000000000000", "100000000000000000000"),
        ("1000000000000000000000", "1e+21"),
        ("1234567890123456789012", "1.234567890123456789012e+21"),
        ("123456789012345678901.5", "123456789012345678901.5"),
        ("9007199254740993", "9007199254740993"),
        ("1E+2", "100"),
        ("12e-1", "1.2"),
        ("1e6144", "1e+6144"),
        ("0.1e6145", "1e+6144"),
        ("1e-6144", "1e-6144"),
    ] {
        assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
    }
}

/// MSG-10
#[test]
fn numbers_that_do_not_fit_are_refused() {
    let digits = "1234567890123456789012345678901234";
    for (text, fits) in [
        (digits.to_owned(), true),
        (format!("{digits}5"), false),
        (format!("{digits}0"), true),
        (format!("0.{digits}"), true),
        (format!("0.{digits}5"), false),
        (format!("0.{digits}0"), true),
        (format!("0.0000{digits}"), true),
        (format!("{}.{}", &digits[..20], &digits[20..]), true),
        (format!("{}.{}5", &digits[..20], &digits[20..]), false),
        (format!("1{}1", "0".repeat(32)), true),
        (format!("1{}1", "0".repeat(33)), false),
        (format!("1{}", "0".repeat(6144)), true),
        (format!("1{}", "0".repeat(6145)), false),
        (format!("0.{}1", "0".repeat(6143)), true),
        (format!("0.{}1", "0".repeat(6144)), false),
        (format!("1{}e-100000", "0".repeat(100_000)), true),
        (format!("0.{}1e100001", "0".repeat(100_000)), true),
        ("1e9223372036854775808".to_owned(), false),
        ("1e-9223372036854775809".to_owned(), false),
    ] {
        let kind = canonical(&text).err().map(|fault| fault.kind);
        assert_eq!(kind, (!fits).then_some(FaultKind::NumberRange), "{text:.60}");
    }
}

/// MSG-10, QUA-4
#[test]
fn fault_names_its_kind_and_place() {
    for (text, kind, at) in [
        ("", FaultKind::UnexpectedEnd, 0),
        ("{", FaultKind::UnexpectedEnd, 1),
        ("[1", FaultKind::UnexpectedEnd, 2),
        (r#"{"a""#, FaultKind::UnexpectedEnd, 4),
        ("\u{feff}{}", FaultKind::ByteOrderMark, 0),
        ("{}\u{feff}", FaultKind::TrailingText, 2),
        ("[NaN]", FaultKind::Unexpected, 1),
        ("[tru]", FaultKind::Unexpected, 4),
        ("{} 1", FaultKind::TrailingText, 3),
        ("[1,]", FaultKind::Unexpected, 3),
        (r#"{"a":1,}"#, FaultKind::Unexpected, 7),
        (r#"{"a" 1}"#, FaultKind::Unexpected, 5),
        ("[1 2]", FaultKind::Unexpected, 3),
        ("[1}", FaultKind::Unexpected, 2),
        ("[01]", FaultKind::MalformedNumber, 1),
        ("[1.x]", FaultKind::MalformedNumber, 3),
        ("[1e]", FaultKind::MalformedNumber, 3),
        ("-", FaultKind::UnexpectedEnd, 1),
        ("\"a\nb\"", FaultKind::ControlCharacter, 2),
        ("\"12345678\u{1}\"", FaultKind::ControlCharacter, 9),
        (r#""a\x""#, FaultKind::UnknownEscape, 2),
        (r#""\u12g4""#, FaultKind::UnknownEscape, 1),
        (r#""\u12"#, FaultKind::UnexpectedEnd, 5),
        (r#""\"#, FaultKind::UnexpectedEnd, 2),
        (r#""\é""#, FaultKind::UnknownEscape, 1),
        (r#""a\ud83d""#, FaultKind::LoneSurrogate, 2),
        (r#""\ud83d\u0041""#, FaultKind::LoneSurrogate, 1),
        (r#""\ude00""#, FaultKind::LoneSurrogate, 1),
        (r#""\u0000""#, FaultKind::NullCharacter, 1),
        (r#"{"a":1,"a":2}"#, FaultKind::DuplicateMember, 7),
        (r#"{"b":1,"a":2, "\u0062":3}"#, FaultKind::DuplicateMember, 14),
        (r#"{"c":1,"a":2,"c":3,"a":4}"#, FaultKind::DuplicateMember, 13),
        ("[1e6145]", FaultKind::NumberRange, 1),
    ] {
        assert_eq!(fault(text), (kind, at), "{text:?}");
    }
    assert_eq!(fault(b"[\"a\xff\"]"), (FaultKind::NotUtf8, 3));
}

/// MSG-10, QUA-4
#[test]
fn refusal_has_reason_and_place_but_no_value() {
    for (text, code, detail) in [
        (r#"{"secret": tru}"#, "malformed", "unexpected character at byte 14"),
        (r#"{"secret":1,"secret":2}"#, "duplicate_member", "repeated member name at byte 12"),
        ("[1e7000]", "number_range", "number out of range at byte 1"),
        (&"[".repeat(65), "too_deep", "nesting too deep at byte 64"),
    ] {
        let refusal = Refusal::from(canonical(text).unwrap_err());
        assert_eq!((refusal.reason.code(), refusal.detail.as_ref()), (code, detail));
    }
}

/// MSG-10, QUA-4
#[test]
fn nesting_ends_at_64_levels() {
    let nested =
        |open: &str, close: &str, levels| format!("{}1{}", open.repeat(levels), close.repeat(levels));
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), (" [ ", " ] ")] {
        assert!(canonical(nested(open, close, JSON_DEPTH_MAX)).is_ok());
        assert_eq!(fault(nested(open, close, JSON_DEPTH_MAX + 1)).0, FaultKind::TooDeep);
    }
    // Depth is the nesting of a place, not a count of brackets.
    assert!(canonical(format!("[{}[]]", "[[]],".repeat(100))).is_ok());
    assert_eq!(fault("[".repeat(BODY_BYTES_MAX)), (FaultKind::TooDeep, 64));
}

fn objects(count: usize) -> String {
    format!("[{}]", vec![r#"{"a":0}"#; count].join(","))
}

/// MSG-10, QUA-4
#[test]
fn member_limit_counts_all_levels_and_no_elements() {
    assert!(canonical(objects(JSON_MEMBERS_MAX)).is_ok());
    assert_eq!(fault(objects(JSON_MEMBERS_MAX + 1)).0, FaultKind::TooMany);
    let fault = Refusal::from(canonical(objects(JSON_MEMBERS_MAX + 1)).unwrap_err());
    assert_eq!(fault.reason, Reason::Malformed);
    assert!(canonical(format!(r#"{{"a":1,"b":{}}}"#, objects(JSON_MEMBERS_MAX - 2))).is_ok());
    assert!(canonical(format!(r#"{{"a":1,"b":{}}}"#, objects(JSON_MEMBERS_MAX - 1))).is_err());
    assert!(canonical(format!("[{}]", vec!["0"; 5 * JSON_MEMBERS_MAX].join(","))).is_ok());
}

fn object_of_members(order: impl Iterator<Item = usize>) -> String {
    let members = order.map(|n| format!(r#""a common beginning {n:05}":{n}"#));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// MSG-8, MSG-10
#[test]
fn members_in_reverse_order_are_sorted() {
    let reversed = object_of_members((0..JSON_MEMBERS_MAX).rev());
    assert_eq!(canonical(reversed).unwrap(), object_of_members(0..JSON_MEMBERS_MAX));
}

/// MSG-10
#[test]
fn large_hostile_texts_are_read_quickly() {
    let escapes = format!("\"{}\"", "\\u0041".repeat(BODY_BYTES_MAX / 6));
    assert_eq!(canonical(&escapes).unwrap().len(), BODY_BYTES_MAX / 6 + 2);
    let name = format!("{{{escapes}:1,\"b\":2}}");
    assert!(canonical(name).is_ok());
    assert!(canonical(format!("\"{}", "\\".repeat(BODY_BYTES_MAX))).is_err());
    assert!(canonical(" ".repeat(BODY_BYTES_MAX)).is_err());
    assert!(canonical("9".repeat(BODY_BYTES_MAX)).is_err());
    assert!(canonical(format!("1e{}", "9".repeat(BODY_BYTES_MAX))).is_err());
    // Every level is out of order and is written anew: 64 times the text at worst.
    let mut nested = "x".repeat(BODY_BYTES_MAX / 2);
    nested = format!("\"{nested}\"");
    for _ in 0..JSON_DEPTH_MAX {
        nested = format!(r#"{{"b":{nested},"a":1}}"#);
    }
    assert!(canonical(nested).is_ok());
}

fn read_names(text: &str) -> Result<Vec<String>, Fault> {
    let mut reader = Reader::new(text.as_bytes())?;
    let mut object = reader.object()?;
    let mut names = Vec::new();
    while let Some(name) = reader.member(&mut object)? {
        names.push(name.into_owned());
        reader.skip()?;
    }
    reader.finish()?;
    Ok(names)
}

/// MSG-10
#[test]
fn pull_reader_finds_duplicates_by_itself() {
    assert_eq!(read_names(r#" { "b" : 1 , "a\n" : [ {} ] } "#).unwrap(), ["b", "a\n"]);
    assert_eq!(read_names("{}").unwrap(), [""; 0]);
    let fault = read_names(r#"{"b":1,"a":2,"b":3}"#).unwrap_err();
    assert_eq!(fault, Fault { kind: FaultKind::DuplicateMember, at: 13 });
    assert!(read_names(r#"{"a":1,"a":1}"#).is_err());
    assert!(read_names(r#"{"a":1} {"#).is_err());
}

/// MSG-10
#[test]
fn pull_reader_gives_kinds_slices_and_elements() {
    let text = br#" [ {"a": 1} , "x\u0041" , -1 , true , null , [ ] ] "#;
    let mut reader = Reader::new(text).unwrap();
    let mut array = reader.array().unwrap();
    let mut seen = Vec::new();
    while reader.element(&mut array).unwrap() {
        let kind = reader.kind().unwrap();
        seen.push((kind, str::from_utf8(reader.skip().unwrap()).unwrap()));
    }
    reader.finish().unwrap();
    let expected = [
        (Kind::Object, r#"{"a": 1}"#),
        (Kind::String, r#""x\u0041""#),
        (Kind::Number, "-1"),
        (Kind::Bool, "true"),
        (Kind::Null, "null"),
        (Kind::Array, "[ ]"),
    ];
    assert_eq!(seen, expected);
}

/// A document as a value with many spellings.
#[derive(Debug, Clone, PartialEq)]
enum Document {
    Null,
    Bool(bool),
    /// Coefficient without zeros at its end, and power of ten.
    Number(i64, i32),
    String(String),
    Array(Vec<Document>),
    Object(BTreeMap<String, Document>),
}

fn number() -> impl Strategy<Value = Document> {
    let coefficient = prop_oneof![-20..20i64, any::<i64>()];
    (coefficient, -30..30i32).prop_map(|(mut coefficient, mut power)| {
        if coefficient == 0 {
            return Document::Number(0, 0);
        }
        while coefficient % 10 == 0 {
            (coefficient, power) = (coefficient / 10, power + 1);
        }
        Document::Number(coefficient, power)
    })
}

/// Few characters, so that names repeat. Some of them have another order in UTF-8 than in UTF-16.
fn text() -> impl Strategy<Value = String> {
    let char = prop_oneof![
        prop::sample::select(vec![
            'a', 'b', '"', '\\', '/', '\n', '\u{1}', 'é', '\u{e000}', '\u{ffff}', '😀'
        ]),
        any::<char>().prop_filter("refused", |char| *char != '\0'),
    ];
    prop_oneof![vec(char.clone(), 0..4), vec(char, 6..12)].prop_map(String::from_iter)
}

fn document() -> impl Strategy<Value = Document> {
    let leaf = prop_oneof![
        Just(Document::Null),
        any::<bool>().prop_map(Document::Bool),
        number(),
        text().prop_map(Document::String),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Document::Array),
            btree_map(text(), inner, 0..6).prop_map(Document::Object),
        ]
    })
}

/// Spells a document at random.
struct Speller<'c> {
    chances: std::iter::Cycle<std::slice::Iter<'c, u8>>,
    out: String,
}

impl Speller<'_> {
    fn spell(document: &Document, chances: &[u8]) -> String {
        let mut speller = Speller { chances: chances.iter().cycle(), out: String::new() };
        speller.document(document);
        speller.out
    }

    fn one_of(&mut self, count: usize) -> usize {
        usize::from(*self.chances.next().unwrap()) % count
    }

    fn space(&mut self) {
        let space = ["", "", " ", "\n", "\t\r"][self.one_of(5)];
        self.out.push_str(space);
    }

    fn document(&mut self, document: &Document) {
        self.space();
        match document {
            Document::Null => self.out.push_str("null"),
            Document::Bool(bool) => self.out.push_str(&bool.to_string()),
            Document::Number(coefficient, power) => self.number(*coefficient, *power),
            Document::String(text) => self.text(text),
            Document::Array(elements) => self.list('[', ']', elements.iter(), Self::document),
            Document::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                let by = self.one_of(members.len().max(1));
                members.rotate_left(by);
                if self.one_of(2) == 0 {
                    members.reverse();
                }
                self.list('{', '}', members.into_iter(), |speller, (name, value)| {
                    speller.space();
                    speller.text(name);
                    speller.space();
                    speller.out.push(':');
                    speller.document(value);
                });
            }
        }
        self.space();
    }

    fn list<T>(&mut self, open: char, close: char, items: impl Iterator<Item = T>, write: fn(&mut Self, T)) {
        self.out.push(open);
        self.space();
        for (index, item) in items.enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            write(self, item);
        }
        self.out.push(close);
    }

    fn number(&mut self, coefficient: i64, power: i32) {
        let sign = if coefficient < 0 || (coefficient == 0 && self.one_of(2) == 0) { "-" } else { "" };
        let zeros = self.one_of(4);
        let digits =
            format!("{}{}", coefficient.unsigned_abs(), if coefficient == 0 { "" } else { &"000"[..zeros] });
        let power = power - if coefficient == 0 { 0 } else { zeros as i32 };
        let point = 1 + self.one_of(digits.len());
        let (whole, fraction) = digits.split_at(point);
        let power = power + fraction.len() as i32;
        let fraction = if fraction.is_empty() { String::new() } else { format!(".{fraction}") };
        let exponent = match (power, self.one_of(4)) {
            (0, 0 | 1) => String::new(),
            (_, 2) => format!("E{power:+}"),
            (_, _) => format!("e{power:03}"),
        };
        self.out.push_str(&format!("{sign}{whole}{fraction}{exponent}"));
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for char in text.chars() {
            match (self.one_of(3), char) {
                (0, _) => self.units(char),
                (1, '/') => self.out.push_str("\\/"),
                (_, '"' | '\\') => self.out.extend(['\\', char]),
                (_, '\n') => self.out.push_str("\\n"),
                (_, ..' ') => self.units(char),
                _ => self.out.push(char),
            }
        }
        self.out.push('"');
    }

    fn units(&mut self, char: char) {
        for unit in char.encode_utf16(&mut [0; 2]) {
            self.out.push_str(&format!("\\u{unit:04X}"));
        }
    }
}

/// Documents with every double in its shortest text, as most languages write it.
fn doubles() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop::num::f64::ANY
            .prop_filter_map("finite", |double| serde_json::Number::from_f64(double).map(Value::from)),
        (-(1i64 << 53)..=1 << 53).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            btree_map(text(), inner, 0..6).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// MSG-8
    #[test]
    fn shortest_doubles_have_the_canonical_form_of_rfc_8785(value in doubles()) {
        let expected = serde_json_canonicalizer::to_string(&value).unwrap();
        prop_assert_eq!(canonical(value.to_string()).unwrap(), expected);
    }

    /// MSG-8
    #[test]
    fn every_spelling_of_a_value_has_the_same_form(
        document in document(), one in vec(any::<u8>(), 1..60), other in vec(any::<u8>(), 1..60),
    ) {
        let one = canonical(Speller::spell(&document, &one)).unwrap();
        prop_assert_eq!(&one, &canonical(Speller::spell(&document, &other)).unwrap());
        prop_assert_eq!(&one, &canonical(&one).unwrap());
    }

    /// MSG-8
    #[test]
    fn different_values_have_different_forms(one in document(), other in document(), chances in vec(any::<u8>(), 1..60)) {
        let form = |document| canonical(Speller::spell(document, &chances)).unwrap();
        prop_assert_eq!(form(&one) == form(&other), one == other);
    }

    /// MSG-8
    #[test]
    fn different_numbers_have_different_forms(one in number(), other in number(), chances in vec(any::<u8>(), 1..9)) {
        let form = |document| canonical(Speller::spell(document, &chances)).unwrap();
        prop_assert_eq!(form(&one) == form(&other), one == other);
    }

    /// MSG-8
    #[test]
    fn members_are_sorted_by_utf16_code_units(names in prop::collection::btree_set(text(), 0..8)) {
        let members: Vec<_> = names.iter().map(|name| format!("{}:0", serde_json::to_string(name).unwrap())).collect();
        let form = canonical(format!("{{{}}}", members.join(","))).unwrap();
        let mut expected: Vec<&String> = names.iter().collect();
        expected.sort_by_key(|name| name.encode_utf16().collect::<Vec<_>>());
        let mut reader = Reader::new(form.as_bytes()).unwrap();
        let mut object = reader.object().unwrap();
        for name in expected {
            prop_assert_eq!(&reader.member(&mut object).unwrap().unwrap(), name);
            reader.skip().unwrap();
        }
    }

    /// MSG-10
    #[test]
    fn repeated_member_is_found_in_every_position(
        names in prop::collection::btree_set(text(), 1..12), at in any::<prop::sample::Index>(),
        again in any::<prop::sample::Index>(), chances in vec(any::<u8>(), 1..40),
    ) {
        let mut names: Vec<_> = names.into_iter().collect();
        let again = names[again.index(names.len())].clone();
        names.insert(at.index(names.len() + 1), again);
        let mut speller = Speller { chances: chances.iter().cycle(), out: String::new() };
        speller.list('{', '}', names.iter(), |speller, name| {
            speller.text(name);
            speller.out.push_str(":0");
        });
        prop_assert_eq!(fault(speller.out).0, FaultKind::DuplicateMember);
    }

    /// MSG-10, QUA-9
    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>) {
        let _ = canonical(bytes);
    }

    /// MSG-10, QUA-9
    #[test]
    fn random_json_never_panics_and_serde_accepts_it_too(
        pieces in vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u", "d83d", "de00", "0", "1", "-", ".", "e", "+", "a", "é",
            "true", "null", "\"a\":", "\"b\":1,", " ", "\n", "\u{1}", "😀",
        ]), 0..30),
    ) {
        let text = pieces.concat();
        if canonical(&text).is_ok() {
            let read: Result<Value, _> = serde_json::from_str(&text);
            prop_assert!(read.is_ok() || read.unwrap_err().to_string().contains("number out of range"));
        }
    }

    /// MSG-10, QUA-9
    #[test]
    fn damaged_document_never_panics(
        document in document(), chances in vec(any::<u8>(), 1..60), at in any::<prop::sample::Index>(), byte: u8,
    ) {
        let mut bytes = Speller::spell(&document, &chances).into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(form) = canonical(&bytes) {
            prop_assert_eq!(canonical(&form), Ok(form));
        }
        let _ = canonical(&bytes[..at]);
    }
}
