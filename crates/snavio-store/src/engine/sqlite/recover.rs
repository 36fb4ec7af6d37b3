//! Recovery of a store whose log is damaged: first copies, then what can be kept, and nothing without a person's word.
//!
//! A frame behind the damage still verifies against the stored checksum of the frame before it. So the log can be written
//! again with checksums that follow each other, without the frames that do not verify.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use snavio_model::id::Serial;
use snavio_model::time::Timestamp;

use super::backup::{BackupError, Exclusive, Raised, cannot, check_is_there, raise_numbers};
use super::folder::{self, FolderLock, RECOVERY_PREFIX, wal_of};
use super::position::{self, LogDamage, POSITION_FILE, Position, PositionFile};
use super::wal::{FrameHeader, HEADER_BYTES, Header, Scan, Sums, read_frame, salts_of};
use super::{FILE, audit, check_not_moved, fleet, integrity, known, layout, meta, newest_of};
use crate::files::{self, beside, flush_folder};
use crate::{Act, AuditEntry};

/// The store's own mark of its newest recovery.
pub(super) const NOTE: &str = "store/recovered";
/// Frames of one log for which a correction is looked for.
const CORRECTED_MAX: usize = 64;

/// Where the log is missing, or another one.
const DATABASE_ALONE: &str =
    "the database file alone may lie between two commits; prefer the last backup if there is one";

/// Which commits a recovery keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// All whose frames verify, behind the damage too.
    All,
    /// Those before the damage.
    Readable,
}

/// What a store would hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// Accepted messages.
    pub messages: i64,
    /// Claims.
    pub claims: i64,
    /// Deliveries that wait or are in flight.
    pub deliveries: i64,
    /// Dead letters.
    pub dead_letters: i64,
    /// The registry's version.
    pub registry_version: i64,
    /// The newest record.
    pub newest_at: Option<Timestamp>,
    /// What is damaged in it. Such a state is not kept.
    pub findings: Vec<String>,
    /// Pages of the database whose newest content is lost: they are as they were before.
    pub lost_pages: Vec<u32>,
}

impl Contents {
    fn unreadable(error: &BackupError) -> Self {
        Self { findings: vec![error.to_string()], ..Self::default() }
    }

    /// Whether it can be kept.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }
}

/// A damaged store, copied and looked at. No node can start over it while this lives.
pub struct Recovery {
    folder: PathBuf,
    lock: FolderLock,
    /// What is wrong.
    pub damage: LogDamage,
    /// Where the files are as they were found.
    pub copies: PathBuf,
    /// The state before the damage.
    pub readable: Contents,
    /// The state with what is behind it, where that can be read.
    pub all: Option<Contents>,
    /// The log does not count: it is missing, another one, or the database has everything.
    is_without_log: bool,
    /// What else an operator has to know.
    pub warning: Option<&'static str>,
}

/// The result of a recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The commits that were kept.
    pub kept: Kept,
    /// The epoch from which the store goes on.
    pub epoch: i64,
}

impl Recovery {
    /// Copies a damaged store's files and looks at what they hold; nothing where the log is not damaged.
    pub fn prepare(folder: &Path, now: Timestamp) -> Result<Option<Self>, BackupError> {
        check_not_moved(folder).map_err(BackupError::Folder)?;
        check_is_there(folder)?;
        let lock = FolderLock::exclusive(folder).map_err(BackupError::Folder)?;
        let (scan, position) = folder::scan(folder).map_err(BackupError::Folder)?;
        let Some(damage) = position::judge(&scan, position) else { return Ok(None) };
        let is_clean = matches!(position, Some(Position::Clean { .. }));
        let lacks_log = matches!(damage, LogDamage::Missing { .. } | LogDamage::Other);
        let warning = (lacks_log && !is_clean).then_some(DATABASE_ALONE);
        let is_without_log = lacks_log || is_clean;
        let copies = copy_files(folder, now)?;
        let [shortened, rebuilt] = [Kept::Readable, Kept::All].map(|kept| new_log(&copies, kept));
        if !is_without_log {
            copy_readable(&copies, &scan, &shortened)?;
        }
        let readable = examine(&copies, &shortened, Vec::new());
        let lost_pages = match is_without_log {
            true => None,
            false => rebuild(&copies, &rebuilt).map_err(cannot("write", &rebuilt))?,
        };
        let all = lost_pages.map(|lost_pages| examine(&copies, &rebuilt, lost_pages));
        let folder = folder.to_owned();
        Ok(Some(Self { folder, lock, damage, copies, readable, all, is_without_log, warning }))
    }

    /// What is damaged in a stopped store's log, without a copy.
    pub fn find_damage(folder: &Path) -> Result<Option<LogDamage>, BackupError> {
        check_not_moved(folder).map_err(BackupError::Folder)?;
        check_is_there(folder)?;
        let _lock = FolderLock::exclusive(folder).map_err(BackupError::Folder)?;
        let (scan, position) = folder::scan(folder).map_err(BackupError::Folder)?;
        Ok(position::judge(&scan, position))
    }

    /// What is best kept: all if nothing of it is missing, else what is certain. Nothing where neither is sound.
    pub fn advice(&self) -> Option<Kept> {
        let all = self.all.as_ref().filter(|all| all.is_sound());
        if all.is_some_and(|all| all.lost_pages.is_empty()) {
            return Some(Kept::All);
        }
        if self.readable.is_sound() {
            return Some(Kept::Readable);
        }
        all.map(|_| Kept::All)
    }

    /// What a choice would leave in the store.
    pub fn contents(&self, kept: Kept) -> Option<&Contents> {
        match kept {
            Kept::All => self.all.as_ref(),
            Kept::Readable => Some(&self.readable),
        }
    }

    /// Makes the store hold what was chosen, and puts that on its record. May be repeated when it was interrupted.
    pub fn apply(self, kept: Kept, act: Act) -> Result<Recovered, BackupError> {
        let Self { folder, lock, damage, copies, is_without_log, warning, .. } = self;
        let log = wal_of(&folder);
        let shm = beside(&folder.join(FILE), "-shm");
        let kept_log = new_log(&copies, kept);
        begin(&folder, &copies, &kept_log).map_err(cannot("write", &folder))?;
        // Before SQLite writes: what is behind the damage must not be taken for commits behind those written now.
        if kept_log.exists() {
            let new = beside(&log, ".new");
            copy(&kept_log, &new)?;
            std::fs::rename(&new, &log).map_err(cannot("write", &log))?;
        } else {
            remove_if_there(&log)?;
        }
        // An index of the log as it was.
        remove_if_there(&shm)?;
        flush_folder(&folder).map_err(cannot("flush", &folder))?;
        let mut store = Exclusive::over(&folder, lock)?;
        let connection = &mut store.connection;
        let unfit = |problem: String| BackupError::Unfit { file: folder.join(FILE), problem };
        known::offer_digest(connection)?;
        layout::migrate(connection).map_err(|error| unfit(error.to_string()))?;
        let transaction = connection.transaction()?;
        let Raised { epoch, .. } = raise_numbers(&transaction, act.at)?;
        let what = match kept {
            Kept::All => "all commits that verify were kept",
            Kept::Readable if is_without_log => "the database file was kept, without the log",
            Kept::Readable => "the commits before the damage were kept",
        };
        let warning = warning.map(|warning| format!("; {warning}")).unwrap_or_default();
        let outcome = format!("{what}{warning}; the log was {damage}; copies are in {}", copies.display());
        fleet::write_note(&transaction, NOTE, &format!("{}: {outcome}", act.at))?;
        let object = folder.display().to_string();
        let number = Serial::first_of(epoch);
        let entry = AuditEntry { number, action: "store.recover".to_owned(), object, act, outcome };
        audit::insert(&transaction, &entry)?;
        transaction.commit()?;
        store.close()?;
        Ok(Recovered { kept, epoch })
    }
}

/// Keeps nodes from a store whose recovery was interrupted: its numbers are not raised yet.
fn begin(folder: &Path, copies: &Path, kept_log: &Path) -> io::Result<()> {
    let mut bytes = [0; HEADER_BYTES];
    if let Some(log) = open_if_there(kept_log)? {
        log.read_exact_at(&mut bytes, 0)?;
    }
    let header = Header::read(&bytes);
    let log_bytes = std::fs::metadata(wal_of(copies)).map_or(0, |log| log.len());
    let frames = log_bytes / (header.offset(1) - header.offset(0)) + 1;
    PositionFile::open(folder, true)?.begin_recovery(header.salts, frames)
}

/// Where the log is made that a choice puts into the store. Nothing there: the store goes on without a log.
fn new_log(copies: &Path, kept: Kept) -> PathBuf {
    let ending = match kept {
        Kept::All => ".rebuilt-wal",
        Kept::Readable => ".readable-wal",
    };
    beside(&copies.join(FILE), ending)
}

/// Copies the frames that SQLite would read.
fn copy_readable(copies: &Path, scan: &Scan, to: &Path) -> Result<(), BackupError> {
    let Some(header) = scan.header.filter(|header| header.is_sound && scan.frames > 0) else { return Ok(()) };
    copy(&wal_of(copies), to)?;
    let cut = || {
        let log = File::options().write(true).open(to)?;
        log.set_len(header.offset(scan.frames))?;
        log.sync_all()
    };
    cut().map_err(cannot("write", to))
}

fn remove_if_there(file: &Path) -> Result<(), BackupError> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cannot("remove", file)(error)),
        _ => Ok(()),
    }
}

/// Copies what there is of a store into a new folder within its own.
fn copy_files(folder: &Path, now: Timestamp) -> Result<PathBuf, BackupError> {
    let copies = folder.join(format!("{RECOVERY_PREFIX}{}", now.0));
    let names = [FILE.to_owned(), format!("{FILE}-wal"), POSITION_FILE.to_owned()];
    let present: Vec<_> = names.iter().filter(|name| folder.join(name).exists()).collect();
    // The log again for each of the two states, and once more to look into it.
    let length = |name: &&String| std::fs::metadata(folder.join(name)).map_or(0, |file| file.len());
    let needed = 4 * present.iter().map(length).sum::<u64>();
    let free = files::free_bytes(folder).map_err(cannot("write", &copies))?;
    if free < needed {
        return Err(BackupError::NoRoom { needed, free });
    }
    if copies.exists() {
        return Err(BackupError::Exists(copies));
    }
    files::make_folder(&copies).map_err(cannot("make", &copies))?;
    for name in present {
        copy(&folder.join(name), &copies.join(name))?;
    }
    flush_folder(&copies).map_err(cannot("flush", &copies))?;
    Ok(copies)
}

fn copy(from: &Path, to: &Path) -> Result<(), BackupError> {
    remove_if_there(to)?;
    let mut read = File::open(from).map_err(cannot("read", from))?;
    let mut written = files::make_file(to).map_err(cannot("write", to))?;
    io::copy(&mut read, &mut written).map_err(cannot("write", to))?;
    written.sync_all().map_err(cannot("flush", to))
}

/// Looks at the copied database with a log, in a folder that is removed again.
fn examine(copies: &Path, log: &Path, lost_pages: Vec<u32>) -> Contents {
    let work = copies.join("work");
    let looked = look(copies, log, &work);
    // It holds copies only; what is left of it stands in nobody's way.
    let _ = std::fs::remove_dir_all(&work);
    match looked {
        Ok(contents) => Contents { lost_pages, ..contents },
        Err(error) => Contents::unreadable(&error),
    }
}

fn look(copies: &Path, log: &Path, work: &Path) -> Result<Contents, BackupError> {
    files::make_folder(work).map_err(cannot("make", work))?;
    let database = work.join(FILE);
    copy(&copies.join(FILE), &database)?;
    if log.exists() {
        copy(log, &wal_of(work))?;
    }
    let mut connection = Connection::open(&database)?;
    super::configure(&mut connection)?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let unfit = |problem: String| BackupError::Unfit { file: copies.join(FILE), problem };
    let damage = integrity::structure(&connection)?;
    if !damage.is_empty() {
        return Ok(Contents { findings: damage, ..Contents::default() });
    }
    known::offer_digest(&connection)?;
    layout::migrate(&mut connection).map_err(|error| unfit(error.to_string()))?;
    let count = |table: &str| {
        connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0))
    };
    Ok(Contents {
        messages: count("message")?,
        claims: count("claim")?,
        deliveries: count("delivery")?,
        dead_letters: count("dead_letter")?,
        registry_version: meta::get(&connection, "registry_version")?,
        newest_at: newest_of(&connection)?,
        findings: integrity::evidence(&connection)?,
        lost_pages: Vec::new(),
    })
}

/// A frame as it is written again: nothing of one whose content is lost.
struct Frame {
    page: u32,
    commit: u32,
    is_sound: bool,
    /// Where it differs from the log's.
    corrected: Option<(FrameHeader, Vec<u8>)>,
}

/// Writes the log again without what does not verify. Says which pages have lost their newest content; nothing where no
/// commit can be kept.
fn rebuild(copies: &Path, to: &Path) -> io::Result<Option<Vec<u32>>> {
    let Some(mut log) = open_if_there(&copies.join(format!("{FILE}-wal")))? else { return Ok(None) };
    let mut bytes = [0; HEADER_BYTES];
    if log.metadata()?.len() < HEADER_BYTES as u64 {
        return Ok(None);
    }
    log.read_exact_at(&mut bytes, 0)?;
    let header = Header::read(&bytes);
    let Some(salts) = salts_of(&mut log, &header)? else { return Ok(None) };
    let Some(last) = last_commit(&mut log, &header, salts)? else { return Ok(None) };
    let computed = Sums::default().over(&bytes[..24], header.is_big_endian);
    let mut frames = read_frames(&mut log, &header, computed, last)?;
    correct(&mut frames, &mut log, &header, computed, &File::open(copies.join(FILE))?)?;
    // The newest commit may have been under way: one that is not whole does not count.
    let before =
        frames[..frames.len() - 1].iter().rposition(|frame| frame.commit != 0).map_or(0, |end| end + 1);
    if frames[before..].iter().any(|frame| !frame.is_sound) {
        frames.truncate(before);
    }
    if frames.is_empty() {
        return Ok(None);
    }
    write_frames(&frames, &mut log, &header, salts, to)?;
    Ok(Some(lost_pages(&frames)))
}

fn open_if_there(file: &Path) -> io::Result<Option<File>> {
    match File::open(file) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn last_commit(log: &mut File, header: &Header, salts: [u32; 2]) -> io::Result<Option<u64>> {
    let (mut last, mut number, mut page) = (None, 0, vec![0; header.page_bytes]);
    while let Some(frame) = read_frame(log, header, number, &mut page)? {
        if frame.salts == salts && frame.commit != 0 {
            last = Some(number);
        }
        number += 1;
    }
    Ok(last)
}

/// Follows the checksums, each from the one that is stored before it or from the one that should be.
fn read_frames(log: &mut File, header: &Header, computed: Sums, last: u64) -> io::Result<Vec<Frame>> {
    let mut frames: Vec<Frame> = Vec::new();
    let (mut stored, mut computed, mut page) = (header.sums, computed, vec![0; header.page_bytes]);
    for number in 0..=last {
        let Some(frame) = read_frame(log, header, number, &mut page)? else { break };
        let after =
            |sums: Sums| sums.over(&frame.covered(), header.is_big_endian).over(&page, header.is_big_endian);
        let (of_stored, of_computed) = (after(stored), after(computed));
        if of_computed == frame.sums
            && let Some(previous) = frames.last_mut()
        {
            // Only the checksum of the one before is damaged.
            previous.is_sound = previous.page != 0;
        }
        let is_sound = frame.page != 0 && (of_stored == frame.sums || of_computed == frame.sums);
        computed = if of_computed == frame.sums { of_computed } else { of_stored };
        stored = frame.sums;
        frames.push(Frame { page: frame.page, commit: frame.commit, is_sound, corrected: None });
    }
    Ok(frames)
}

/// Looks for the content of frames that do not verify: their page may be in the database already, or one bit may be wrong.
fn correct(
    frames: &mut [Frame],
    log: &mut File,
    header: &Header,
    computed: Sums,
    database: &File,
) -> io::Result<()> {
    let doubtful: Vec<_> =
        (0..frames.len()).filter(|number| !frames[*number].is_sound).take(CORRECTED_MAX).collect();
    for number in doubtful {
        let mut page = vec![0; header.page_bytes];
        let seeds = match number.checked_sub(1) {
            None => vec![header.sums, computed],
            Some(before) => read_frame(log, header, before as u64, &mut page)?
                .map(|frame| frame.sums)
                .into_iter()
                .collect(),
        };
        let Some(frame) = read_frame(log, header, number as u64, &mut page)? else { continue };
        let corrected = seeds.into_iter().find_map(|seed| correction(seed, header, frame, &page, database));
        if let Some((frame, page)) = corrected {
            let (number_of, commit) = (frame.page, frame.commit);
            frames[number] =
                Frame { page: number_of, commit, is_sound: true, corrected: Some((frame, page)) };
        }
    }
    Ok(())
}

/// The one content that its checksum is right for.
fn correction(
    seed: Sums,
    header: &Header,
    frame: FrameHeader,
    page: &[u8],
    database: &File,
) -> Option<(FrameHeader, Vec<u8>)> {
    let fits = |bytes: &[u8]| seed.over(bytes, header.is_big_endian) == frame.sums;
    let made = |bytes: &[u8]| {
        let word = |at: usize| bytes[at..at + 4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        let frame = FrameHeader { page: word(0), commit: word(4), ..frame };
        (frame.page != 0).then(|| (frame, bytes[8..].to_vec()))
    };
    let mut bytes = [&frame.covered()[..], page].concat();
    let mut in_database = bytes.clone();
    let offset = u64::from(frame.page.saturating_sub(1)) * header.page_bytes as u64;
    if database.read_exact_at(&mut in_database[8..], offset).is_ok() && fits(&in_database) {
        return made(&in_database);
    }
    // Some bits cannot be told from others by this checksum: then none is taken.
    let mut found = None;
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        if fits(&bytes) && found.replace(made(&bytes)?).is_some() {
            return None;
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    found
}

fn write_frames(
    frames: &[Frame],
    log: &mut File,
    header: &Header,
    salts: [u32; 2],
    to: &Path,
) -> io::Result<()> {
    let mut page = vec![0; header.page_bytes];
    let (bytes, mut sums) = header.made(salts);
    let mut written = BufWriter::new(files::make_file(to)?);
    written.write_all(&bytes)?;
    for (number, frame) in frames.iter().enumerate().filter(|(_, frame)| frame.is_sound) {
        match &frame.corrected {
            Some((_, corrected)) => page.copy_from_slice(corrected),
            None => drop(read_frame(log, header, number as u64, &mut page)?),
        }
        let mut written_header = FrameHeader { page: frame.page, commit: frame.commit, salts, sums };
        sums = sums.over(&written_header.covered(), header.is_big_endian).over(&page, header.is_big_endian);
        written_header.sums = sums;
        written.write_all(&written_header.bytes())?;
        written.write_all(&page)?;
    }
    written.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Pages of frames that were left out and not written again behind them.
fn lost_pages(frames: &[Frame]) -> Vec<u32> {
    let mut rewritten = HashSet::new();
    let mut lost = HashMap::new();
    for frame in frames.iter().rev() {
        if frame.is_sound {
            rewritten.insert(frame.page);
        } else if !rewritten.contains(&frame.page) {
            lost.insert(frame.page, ());
        }
    }
    let mut lost: Vec<_> = lost.into_keys().collect();
    lost.sort_unstable();
    lost
}
