//! Segments: records one below the other, as lines of JSON (NDJSON). The first line says what it is; every other one
//! carries a record and its SHA-256, and the SHA-256 of the whole text is in the segment's key. The same records are
//! the same text, so whoever writes them twice writes one object. How the text is packed is the caller's affair.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::{Fault, Pointer, Record, record};
use crate::time::Timestamp;

/// What the first line says.
const FORM: &str = "snavio-archive";
const VERSION: u32 = 1;
const FOLDER: &str = "claims";
const ENDING: &str = ".ndjson.zst";

/// Records that are ready to be packed and written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Where it belongs: by the day of its first record, and by what it says.
    pub key: String,
    /// Its text.
    pub text: Vec<u8>,
    /// Where each of its records will be, in their order.
    pub pointers: Vec<Pointer>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    form: String,
    version: u32,
    records: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    sha256: String,
    record: Box<RawValue>,
}

/// Writes records as a segment; nothing of none.
pub fn write(records: &[Record]) -> Option<Segment> {
    let first = records.first()?;
    let head = Head { form: FORM.to_owned(), version: VERSION, records: records.len() };
    let mut text = serde_json::to_vec(&head).ok()?;
    let mut digests = Vec::with_capacity(records.len());
    for record in records {
        let record = record::write(record);
        let digest: [u8; 32] = Sha256::digest(&record).into();
        digests.push(digest);
        let line = Line { sha256: hex::encode(digest), record: RawValue::from_string(record).ok()? };
        text.push(b'\n');
        serde_json::to_writer(&mut text, &line).ok()?;
    }
    text.push(b'\n');
    let key = key(first.settled_at, &text);
    let pointer = |(place, digest): (u32, [u8; 32])| Pointer { object: key.clone(), place, digest };
    let pointers = (0..).zip(digests).map(pointer).collect();
    Some(Segment { key, text, pointers })
}

/// `claims/2026/11/16/<digest>.ndjson.zst`.
fn key(at: Timestamp, text: &[u8]) -> String {
    let day = at.to_string();
    let day = day.get(..10).unwrap_or("1970-01-01").replace('-', "/");
    format!("{FOLDER}/{day}/{}{ENDING}", hex::encode(Sha256::digest(text)))
}

/// All records of a segment, each verified, if its text is what its key says.
pub fn read(object: &str, text: &[u8]) -> Result<Vec<Record>, Fault> {
    Ok(read_pointed(object, text)?.into_iter().map(|(_, record)| record).collect())
}

/// The same, each with what points to it.
pub fn read_pointed(object: &str, text: &[u8]) -> Result<Vec<(Pointer, Record)>, Fault> {
    let altered = || Fault::Altered { object: object.to_owned() };
    let mut lines = verified(object, text)?;
    let head: Head = lines.next().and_then(|it| serde_json::from_str(it).ok()).ok_or_else(altered)?;
    if head.form != FORM || head.version != VERSION {
        return Err(Fault::Unknown { object: object.to_owned() });
    }
    let read = (0..).zip(lines).map(|(place, line)| {
        let (digest, record) = of_line(object, place, line)?;
        Ok((Pointer { object: object.to_owned(), place, digest }, record))
    });
    let records: Vec<_> = read.collect::<Result<_, _>>()?;
    if records.len() != head.records {
        return Err(altered());
    }
    Ok(records)
}

/// The one record that a pointer names, if it is what the pointer says.
pub fn find(pointer: &Pointer, text: &[u8]) -> Result<Record, Fault> {
    Verified::new(&pointer.object, text.to_vec())?.find(pointer)
}

/// The text of a segment that is what its key says: whoever looks for several of its records verifies it once.
#[derive(Debug)]
pub struct Verified {
    object: String,
    text: String,
    /// Where its records begin and end.
    lines: Vec<Range<usize>>,
}

impl Verified {
    /// A text as the segment of a key, if it is that.
    pub fn new(object: &str, text: Vec<u8>) -> Result<Self, Fault> {
        check(object, &text)?;
        let text = String::from_utf8(text).map_err(|_| Fault::Altered { object: object.to_owned() })?;
        let mut end = 0;
        let lines = text.split_inclusive('\n').map(|line| {
            end += line.len();
            end - line.len()..end
        });
        let lines = lines.skip(1).collect();
        Ok(Self { object: object.to_owned(), text, lines })
    }

    /// The record that a pointer names, if it is what the pointer says.
    pub fn find(&self, pointer: &Pointer) -> Result<Record, Fault> {
        let Pointer { object, place, digest } = pointer;
        let missing = || Fault::Record { object: object.clone(), place: *place };
        let line = self.lines.get(*place as usize).filter(|_| *object == self.object).ok_or_else(missing)?;
        let (found, record) = of_line(object, *place, &self.text[line.clone()])?;
        if found != *digest {
            return Err(missing());
        }
        Ok(record)
    }

    /// What it takes up in memory, more or less.
    pub fn bytes(&self) -> usize {
        self.text.len() + self.lines.len() * size_of::<Range<usize>>()
    }
}

/// The lines of a text that is what its key says.
fn verified<'t>(object: &str, text: &'t [u8]) -> Result<impl Iterator<Item = &'t str>, Fault> {
    check(object, text)?;
    std::str::from_utf8(text).map(str::lines).map_err(|_| Fault::Altered { object: object.to_owned() })
}

fn check(object: &str, text: &[u8]) -> Result<(), Fault> {
    let named = object.rsplit('/').next().and_then(|it| it.strip_suffix(ENDING));
    if named.is_some_and(|it| it == hex::encode(Sha256::digest(text))) {
        return Ok(());
    }
    Err(Fault::Altered { object: object.to_owned() })
}

fn of_line(object: &str, place: u32, line: &str) -> Result<([u8; 32], Record), Fault> {
    let wrong = || Fault::Record { object: object.to_owned(), place };
    let line: Line = serde_json::from_str(line).map_err(|_| wrong())?;
    let digest: [u8; 32] = Sha256::digest(line.record.get()).into();
    if hex::encode(digest) != line.sha256 {
        return Err(wrong());
    }
    Ok((digest, record::read(line.record.get()).ok_or_else(wrong)?))
}
