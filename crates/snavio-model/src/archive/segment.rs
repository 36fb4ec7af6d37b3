//! Segments: records as lines of JSON (NDJSON). The first line names the format. Every other line has a
//! record and its SHA-256. The segment's key has the SHA-256 of the whole text. The same records give the
//! same text, so that writing them twice writes one object. The caller compresses the text.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::{Fault, Pointer, Record, record};
use crate::time::Timestamp;

/// The format that the first line names.
const FORM: &str = "snavio-archive";
const VERSION: u32 = 1;
const FOLDER: &str = "claims";
const ENDING: &str = ".ndjson.zst";

/// Records as a segment, ready to be compressed and written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The key of the object: the day of its first record, and the digest of the text.
    pub key: String,
    /// The text before compression.
    pub text: Vec<u8>,
    /// A pointer to each record, in the records' order.
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

/// Writes records as a segment. Without records there is no segment.
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
    let key = object_key(first.settled_at, &text);
    let pointers = (0..).zip(digests).map(|(place, digest)| Pointer { object: key.clone(), place, digest });
    let pointers = pointers.collect();
    Some(Segment { key, text, pointers })
}

/// For example `claims/2026/11/16/<digest>.ndjson.zst`.
fn object_key(at: Timestamp, text: &[u8]) -> String {
    let day = at.to_string();
    let day = day.get(..10).unwrap_or("1970-01-01").replace('-', "/");
    format!("{FOLDER}/{day}/{}{ENDING}", hex::encode(Sha256::digest(text)))
}

/// Reads and verifies all records of a segment. The text must match the key.
pub fn read(object: &str, text: &[u8]) -> Result<Vec<Record>, Fault> {
    Ok(read_pointed(object, text)?.into_iter().map(|(_, record)| record).collect())
}

/// As [`read`], with the pointer to each record.
pub fn read_pointed(object: &str, text: &[u8]) -> Result<Vec<(Pointer, Record)>, Fault> {
    let mut lines = verified_lines(object, text)?;
    let head: Head =
        lines.next().and_then(|line| serde_json::from_str(line).ok()).ok_or_else(|| altered(object))?;
    if head.form != FORM || head.version != VERSION {
        return Err(Fault::Unknown { object: object.to_owned() });
    }
    let read = (0..).zip(lines).map(|(place, line)| {
        let (digest, record) = read_line(object, place, line)?;
        Ok((Pointer { object: object.to_owned(), place, digest }, record))
    });
    let records: Vec<_> = read.collect::<Result<_, _>>()?;
    if records.len() != head.records {
        return Err(altered(object));
    }
    Ok(records)
}

/// The record that a pointer names. Text and record must match the pointer.
pub fn find(pointer: &Pointer, text: &[u8]) -> Result<Record, Fault> {
    Verified::new(&pointer.object, text.to_vec())?.find(pointer)
}

/// The text of a segment, verified once for any number of look-ups.
#[derive(Debug)]
pub struct Verified {
    object: String,
    text: String,
    /// The byte range of each record.
    lines: Vec<Range<usize>>,
}

impl Verified {
    /// Verifies that the text matches the key `object`.
    pub fn new(object: &str, text: Vec<u8>) -> Result<Self, Fault> {
        check_digest(object, &text)?;
        let text = String::from_utf8(text).map_err(|_| altered(object))?;
        let mut end = 0;
        let lines = text.split_inclusive('\n').map(|line| {
            end += line.len();
            end - line.len()..end
        });
        let lines = lines.skip(1).collect();
        Ok(Self { object: object.to_owned(), text, lines })
    }

    /// The record that a pointer names. It must match the pointer's digest.
    pub fn find(&self, pointer: &Pointer) -> Result<Record, Fault> {
        let Pointer { object, place, digest } = pointer;
        let missing = || Fault::Record { object: object.clone(), place: *place };
        let line = self.lines.get(*place as usize).filter(|_| *object == self.object).ok_or_else(missing)?;
        let (found, record) = read_line(object, *place, &self.text[line.clone()])?;
        if found != *digest {
            return Err(missing());
        }
        Ok(record)
    }

    /// The approximate size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len() + self.lines.len() * size_of::<Range<usize>>()
    }
}

/// The lines of a text that matches its key.
fn verified_lines<'t>(object: &str, text: &'t [u8]) -> Result<impl Iterator<Item = &'t str>, Fault> {
    check_digest(object, text)?;
    std::str::from_utf8(text).map(str::lines).map_err(|_| altered(object))
}

fn check_digest(object: &str, text: &[u8]) -> Result<(), Fault> {
    let named = object.rsplit('/').next().and_then(|name| name.strip_suffix(ENDING));
    if named.is_some_and(|digest| digest == hex::encode(Sha256::digest(text))) {
        return Ok(());
    }
    Err(altered(object))
}

fn altered(object: &str) -> Fault {
    Fault::Altered { object: object.to_owned() }
}

fn read_line(object: &str, place: u32, line: &str) -> Result<([u8; 32], Record), Fault> {
    let wrong = || Fault::Record { object: object.to_owned(), place };
    let line: Line = serde_json::from_str(line).map_err(|_| wrong())?;
    let digest: [u8; 32] = Sha256::digest(line.record.get()).into();
    if hex::encode(digest) != line.sha256 {
        return Err(wrong());
    }
    Ok((digest, record::read(line.record.get()).ok_or_else(wrong)?))
}
