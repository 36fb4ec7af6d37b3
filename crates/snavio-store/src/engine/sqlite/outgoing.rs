//! Everything in a store, for another engine to take in: read from its beginning to its end, each row checked
//! (QUA-1), in pages that fit in memory.

use std::path::Path;

use rusqlite::Connection;
use snavio_model::archive::hold::Hold;
use snavio_model::bounds;
use snavio_model::claim::conflict::Conflict;
use snavio_model::claim::{Claim, ClaimKey, IdKey, Original};
use snavio_model::delivery::processing::Answer;
use snavio_model::delivery::{DeadLetter, Delivery};
use snavio_model::id::Serial;
use snavio_model::telemetry::StoredRecord;

use super::backup::{BackupError, Exclusive};
use super::writer::sql;
use super::{
    FILE, answer, audit, claim, conflict, dead_letter, delivery, entity, fleet, hold, integrity, known,
    layout, message, meta, original, registry, seal, segment, telemetry,
};
use crate::api::archive::Aside;
use crate::record::lease::KeptLease;
use crate::transfer::{MoveError, Page};
use crate::{AuditEntry, LoggedMessage, StoreError};

/// Rows of a page, and bytes of their payloads.
const PAGE_ROWS: usize = 1000;
const PAGE_BYTES: usize = 4 << 20;

/// Further ones say nothing that these do not.
const DAMAGED_TOLD_MAX: usize = 100;

/// A store that nobody serves over, and nobody will while this is there.
pub(crate) struct Outgoing(Exclusive);

impl Outgoing {
    /// Opens the store of a folder and brings it to this version's layout, as a node would. One whose file is not
    /// sound is refused: what cannot be found would be left behind without a word.
    pub(crate) fn open(folder: &Path) -> Result<Self, BackupError> {
        let mut store = Exclusive::open(folder)?;
        let connection = &mut store.connection;
        let unfit = |problem: String| BackupError::Unfit { file: folder.join(FILE), problem };
        let damage = integrity::structure(connection).map_err(|error| unfit(error.to_string()))?;
        if let Some(first) = damage.first() {
            return Err(unfit(first.clone()));
        }
        meta::get(connection, "epoch").map_err(|_| unfit("it is not a Snavio store".to_owned()))?;
        known::offer_digest(connection)?;
        layout::migrate(connection).map_err(|error| unfit(error.to_string()))?;
        Ok(Self(store))
    }

    /// Hands everything out, page by page.
    pub(crate) fn read(
        &self,
        skip_damaged: bool,
        hand_over: impl FnMut(Page) -> Result<(), StoreError>,
    ) -> Result<(), MoveError> {
        let epoch = meta::get(&self.0.connection, "epoch").map_err(sql)?;
        // The committed epoch is one ahead of the one in use, and numbers may have run over into it.
        if epoch >= Serial::EPOCH_MAX {
            return Err(MoveError::Epochs);
        }
        let above = Serial::first_of(epoch + 1);
        let mut reading = Reading { skip_damaged, damaged: Vec::new(), left_out: 0, above, hand_over };
        reading.all(&self.0.connection).map_err(|error| match error {
            damaged @ StoreError::Damaged { .. } if skip_damaged => MoveError::Needed(damaged),
            damaged @ StoreError::Damaged { .. } => MoveError::Damaged(damaged),
            error => MoveError::Store(error),
        })
    }
}

struct Reading<H> {
    skip_damaged: bool,
    damaged: Vec<String>,
    left_out: usize,
    above: Serial,
    hand_over: H,
}

impl<H: FnMut(Page) -> Result<(), StoreError>> Reading<H> {
    fn all(&mut self, connection: &Connection) -> Result<(), StoreError> {
        self.registry(connection)?;
        self.pages(Page::Messages, |take| message::each(connection, take))?;
        self.pages(Page::Claims, |take| claim::each(connection, take))?;
        self.pages(Page::Asides, |take| claim::each_aside(connection, take))?;
        self.pages(Page::Originals, |take| original::each(connection, take))?;
        self.pages(Page::Conflicts, |take| conflict::each(connection, take))?;
        self.pages(Page::Answers, |take| answer::each(connection, take))?;
        self.pages(Page::Deliveries, |take| delivery::each(connection, take))?;
        self.pages(Page::DeadLetters, |take| dead_letter::each(connection, take))?;
        self.pages(Page::Telemetry, |take| telemetry::each(connection, take))?;
        self.pages(Page::Audit, |take| audit::each(connection, take))?;
        self.entities(connection)?;
        self.holds(connection)?;
        (self.hand_over)(Page::Segments(segment::all(connection).map_err(sql)?))?;
        (self.hand_over)(Page::Pins(pins(connection).map_err(sql)?))?;
        (self.hand_over)(Page::Notes(fleet::notes(connection, "").map_err(sql)?))?;
        if self.left_out > self.damaged.len() {
            self.damaged.push(format!("and {} more", self.left_out - self.damaged.len()));
        }
        (self.hand_over)(Page::End { damaged: std::mem::take(&mut self.damaged) })
    }

    /// A node cannot do without any of it: nothing here may be left out.
    fn registry(&mut self, connection: &Connection) -> Result<(), StoreError> {
        let (registry_version, entries) = registry::load(connection)?;
        (self.hand_over)(Page::Head { above: self.above, registry_version, entries })?;
        let mut after = 0;
        loop {
            let changes = registry::logged_since(connection, after, PAGE_ROWS)?;
            let Some(last) = changes.last() else { break };
            after = last.version;
            (self.hand_over)(Page::Changes(changes))?;
        }
        let mut after = 0;
        loop {
            let seals = seal::page(connection, after, bounds::SEALS_PAGE_MAX)?;
            let Some(last) = seals.last() else { return Ok(()) };
            after = last.number;
            (self.hand_over)(Page::Seals(seals))?;
        }
    }

    /// What a hold is on would be deleted without it: none may be left out.
    fn holds(&mut self, connection: &Connection) -> Result<(), StoreError> {
        let skips = std::mem::replace(&mut self.skip_damaged, false);
        self.pages(Page::Holds, |take| hold::each(connection, take))?;
        self.skip_damaged = skips;
        Ok(())
    }

    /// They have no numbers, as all others have.
    fn entities(&mut self, connection: &Connection) -> Result<(), StoreError> {
        let mut rows = Vec::new();
        entity::each(connection, |read| {
            rows.extend(self.sound(read)?);
            if rows.len() < PAGE_ROWS {
                return Ok(());
            }
            (self.hand_over)(Page::Entities(std::mem::take(&mut rows)))
        })?;
        if rows.is_empty() { Ok(()) } else { (self.hand_over)(Page::Entities(rows)) }
    }

    /// Gathers rows of one kind into pages.
    fn pages<T: Stored>(
        &mut self,
        page: impl Fn(Vec<T>) -> Page,
        each: impl FnOnce(
            &mut dyn FnMut(Result<T, StoreError>) -> Result<(), StoreError>,
        ) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let above = self.above;
        each(&mut |read| {
            let Some(row) = self.sound(read.and_then(|row| numbered(row, above)))? else { return Ok(()) };
            bytes += row.bytes();
            rows.push(row);
            if rows.len() < PAGE_ROWS && bytes < PAGE_BYTES {
                return Ok(());
            }
            bytes = 0;
            (self.hand_over)(page(std::mem::take(&mut rows)))
        })?;
        if rows.is_empty() { Ok(()) } else { (self.hand_over)(page(rows)) }
    }

    /// What was read; nothing if it is damaged and may be left out.
    fn sound<T>(&mut self, read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match read {
            Err(damaged @ StoreError::Damaged { .. }) if self.skip_damaged => {
                self.left_out += 1;
                if self.damaged.len() < DAMAGED_TOLD_MAX {
                    self.damaged.push(damaged.to_string());
                }
                Ok(None)
            }
            read => read.map(Some),
        }
    }
}

/// A row as far as its page must know it.
trait Stored {
    /// What it is called, and its number.
    fn name(&self) -> (&'static str, Serial);

    /// Bytes of what may be large in it.
    fn bytes(&self) -> usize {
        0
    }
}

impl Stored for (LoggedMessage, u16) {
    fn name(&self) -> (&'static str, Serial) {
        ("message", self.0.number)
    }

    fn bytes(&self) -> usize {
        self.0.message.content_bytes()
    }
}

impl Stored for (ClaimKey, Claim) {
    fn name(&self) -> (&'static str, Serial) {
        ("claim of message", self.1.message)
    }
}

impl Stored for Aside {
    fn name(&self) -> (&'static str, Serial) {
        ("claim of message", self.message)
    }
}

impl Stored for Hold {
    fn name(&self) -> (&'static str, Serial) {
        ("hold", self.id)
    }
}

impl Stored for (IdKey, Original) {
    fn name(&self) -> (&'static str, Serial) {
        ("original", self.1.message)
    }
}

impl Stored for Conflict {
    fn name(&self) -> (&'static str, Serial) {
        ("conflict", self.id)
    }
}

impl Stored for (Serial, Answer) {
    fn name(&self) -> (&'static str, Serial) {
        ("answer to delivery", self.0)
    }

    fn bytes(&self) -> usize {
        self.1.body.len()
    }
}

impl Stored for (Delivery, KeptLease) {
    fn name(&self) -> (&'static str, Serial) {
        ("delivery", self.0.id)
    }
}

impl Stored for DeadLetter {
    fn name(&self) -> (&'static str, Serial) {
        ("dead letter", self.delivery.id)
    }
}

impl Stored for (String, StoredRecord) {
    fn name(&self) -> (&'static str, Serial) {
        ("telemetry record", self.1.number)
    }
}

impl Stored for AuditEntry {
    fn name(&self) -> (&'static str, Serial) {
        ("audit entry", self.number)
    }
}

/// Not every row has a check value, but each must have a number that this store can have given: one above would be
/// given again.
fn numbered<T: Stored>(row: T, above: Serial) -> Result<T, StoreError> {
    let (what, number) = row.name();
    if number.0 < 1 || number >= above {
        return Err(StoreError::Damaged { what, key: number.to_string() });
    }
    Ok(row)
}

fn pins(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut statement = connection.prepare("SELECT name, value FROM pin ORDER BY name")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}
