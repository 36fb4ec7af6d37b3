//! Converts registry entries to objects and back. An object has compressed lines of one kind of entry, within
//! its size limits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use snavio_model::bounds;
use snavio_model::registry::snapshot::{
    Fault, Object, Scope, header, judge_object, object_key, read_entries, write_entry,
};
use snavio_model::registry::{Entry, EntryKey, Registry};

/// The compression level. A higher level saves little and takes long.
const LEVEL: i32 = 3;

/// An object that is ready to be written.
pub(super) struct Packed {
    pub(super) object: Object,
    pub(super) bytes: Bytes,
}

/// Packs a registry into objects, one at a time.
pub(super) struct Packer {
    registry: Arc<Registry>,
    left_out: Arc<BTreeSet<String>>,
    after: Option<EntryKey>,
}

impl Packer {
    /// Packs all entries except those of the left-out owners.
    pub(super) fn new(registry: Arc<Registry>, left_out: Arc<BTreeSet<String>>) -> Self {
        Self { registry, left_out, after: None }
    }

    /// The next object, verified with the reader's own code; `None` when all entries are packed.
    pub(super) fn next(&mut self) -> Result<Option<Packed>, Fault> {
        let registry = Arc::clone(&self.registry);
        let scope = Scope { registry: &registry, left_out: &self.left_out };
        let (mut lines, mut entries) = (Vec::new(), Vec::new());
        let mut last = None;
        for entry in registry.entries_after(self.after.as_ref()) {
            let is_next = entries.first().is_some_and(|first: &&Entry| kind_differs(first, entry));
            if is_next || lines.len() >= bounds::SNAPSHOT_OBJECT_BYTES {
                break;
            }
            last = Some(entry);
            if self.left_out.contains(entry.owner()) || scope.problem(entry).is_some() {
                continue;
            }
            write(entry, &mut lines)?;
            entries.push(entry);
        }
        let Some(last) = last else { return Ok(None) };
        self.after = Some(last.key());
        if entries.is_empty() {
            return Ok(None);
        }
        let packed = pack(registry.version(), &entries, &lines)?;
        let read = unpack(&packed.object, registry.version(), &packed.bytes)?;
        match read.iter().eq(entries) {
            true => Ok(Some(packed)),
            false => {
                Err(Fault::Malformed { what: format!("{} does not read as written", packed.object.key) })
            }
        }
    }
}

fn kind_differs(one: &Entry, other: &Entry) -> bool {
    std::mem::discriminant(one) != std::mem::discriminant(other)
}

fn write(entry: &Entry, lines: &mut Vec<u8>) -> Result<(), Fault> {
    write_entry(entry, lines).map_err(|error| Fault::Malformed { what: format!("{}: {error}", entry.key()) })
}

fn pack(version: i64, entries: &[&Entry], lines: &[u8]) -> Result<Packed, Fault> {
    let unfit =
        |error: std::io::Error| Fault::Malformed { what: format!("entries cannot be packed: {error}") };
    let packed = zstd::bulk::compress(lines, LEVEL).map_err(unfit)?;
    let bytes = [header(version).as_bytes(), &packed].concat();
    let (key, digest) = object_key(version, &bytes);
    let object = Object {
        key,
        kind: entries[0].key().kind,
        digest,
        bytes: bytes.len() as u64,
        text_bytes: lines.len() as u64,
        entries: entries.len() as u64,
    };
    Ok(Packed { object, bytes: bytes.into() })
}

/// The entries of an object, if its bytes match the manifest. The caller must have judged its sizes.
pub(super) fn unpack(object: &Object, version: i64, bytes: &[u8]) -> Result<Vec<Entry>, Fault> {
    let packed = judge_object(object, version, bytes)?;
    let room =
        usize::try_from(object.text_bytes).unwrap_or(usize::MAX).min(bounds::SNAPSHOT_OBJECT_BYTES_MAX);
    let unfit = |error| Fault::Malformed { what: format!("{} cannot be unpacked: {error}", object.key) };
    let lines = zstd::bulk::decompress(packed, room).map_err(unfit)?;
    read_entries(object, &lines)
}

/// The owners of entries that a reader would refuse, each with the first reason.
pub(super) fn unreadable_owners(registry: &Registry) -> BTreeMap<String, String> {
    let none = BTreeSet::new();
    let scope = Scope { registry, left_out: &none };
    let mut owners = BTreeMap::new();
    let mut line = Vec::new();
    for entry in registry.entries() {
        line.clear();
        let too_long = match write(entry, &mut line) {
            Ok(()) => {
                (line.len() > bounds::SNAPSHOT_ENTRY_BYTES_MAX).then(|| "the entry is too long".to_owned())
            }
            Err(fault) => Some(fault.to_string()),
        };
        if let Some(problem) = too_long.or_else(|| scope.problem(entry)) {
            owners.entry(entry.owner().to_owned()).or_insert_with(|| format!("{}: {problem}", entry.key()));
        }
    }
    owners
}
