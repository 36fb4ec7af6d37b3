//! How far the write-ahead log was known to go: file `snavio.position` beside the database. With it the next start notices
//! a log that was deleted, cut short or put back, none of which SQLite can tell from a log that was never longer.
//!
//! One line: `clean`, `running` or `unflushed`, the salts of the log, the number of its committed frames, and a CRC-32 of
//! what is before it. The checkpoint thread writes it without a flush: it may be behind the log, never ahead of it. Zero
//! frames say that nothing is known of the log.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rusqlite::Connection;

use super::FILE;
use super::wal::{HEADER_BYTES, Header, STARTS_MAX, Salts, Scan};
use super::writer::lock;
use crate::files::{self, beside, flush_folder};

pub(super) const POSITION_FILE: &str = "snavio.position";
/// The length of every line.
const LINE_BYTES: u64 = 57;

/// What is known of a log from outside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// The database file has everything: there need be no log. One that another program keeps has these salts, and at
    /// least so many committed frames.
    Clean { salts: Salts, frames: u64 },
    /// The log with these salts has at least so many committed frames.
    Running {
        /// Each commit was flushed: a power cut cannot have taken any of them.
        is_flushed: bool,
        salts: Salts,
        frames: u64,
    },
}

impl Position {
    fn line(self) -> String {
        let (state, salts, frames) = match self {
            Self::Clean { salts, frames } => ("clean", salts, frames),
            Self::Running { is_flushed: true, salts, frames } => ("running", salts, frames),
            Self::Running { is_flushed: false, salts, frames } => ("unflushed", salts, frames),
        };
        // Always as long: it is written over the one before.
        let text = format!("{state:<9} {:08x}{:08x} {frames:020} ", salts[0], salts[1]);
        format!("{text}{:08x}\n", crc32fast::hash(text.as_bytes()))
    }

    fn parse(line: &str) -> Option<Self> {
        let (text, check) = line.trim_end_matches('\n').split_at_checked(48)?;
        if u32::from_str_radix(check, 16).ok()? != crc32fast::hash(text.as_bytes()) {
            return None;
        }
        let mut words = text.split_ascii_whitespace();
        let (state, salts, frames) = (words.next()?, words.next()?, words.next()?);
        let salts = [salts.get(..8)?, salts.get(8..)?].map(|salt| u32::from_str_radix(salt, 16).ok());
        let [Some(first), Some(second)] = salts else { return None };
        let (salts, frames) = ([first, second], frames.parse().ok()?);
        match state {
            "clean" => Some(Self::Clean { salts, frames }),
            "running" => Some(Self::Running { is_flushed: true, salts, frames }),
            "unflushed" => Some(Self::Running { is_flushed: false, salts, frames }),
            _ => None,
        }
    }
}

/// What a folder's file says; nothing where there is none, or it cannot be read as a position.
pub(super) fn read(folder: &Path) -> io::Result<Option<Position>> {
    let file = folder.join(POSITION_FILE);
    match std::fs::read(&file) {
        Ok(bytes) => {
            let is_filled = !bytes.is_empty();
            let position = String::from_utf8(bytes).ok().and_then(|line| Position::parse(&line));
            if position.is_none() && is_filled {
                let file = file.display();
                tracing::warn!(%file, "the position file is damaged: a missing log would go unnoticed");
            }
            Ok(position)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file, kept open by whoever writes to the store.
pub(super) struct PositionFile {
    file: File,
    folder: PathBuf,
    wal: PathBuf,
    is_flushed: bool,
    /// Salts and frames that were written last.
    last: Mutex<(Salts, u64)>,
}

impl PositionFile {
    pub(super) fn open(folder: &Path, is_flushed: bool) -> io::Result<Self> {
        let file = files::open_file(&folder.join(POSITION_FILE))?;
        let wal = beside(&folder.join(FILE), "-wal");
        Ok(Self { file, folder: folder.to_owned(), wal, is_flushed, last: Mutex::default() })
    }

    fn running(&self, salts: Salts, frames: u64) -> Position {
        Position::Running { is_flushed: self.is_flushed, salts, frames }
    }

    /// The frames that the log with these salts is known to have: SQLite counts none after it has decided to start the log
    /// over, and the log keeps its frames until the next commit.
    fn raise(&self, salts: Salts, frames: u64) -> u64 {
        let mut last = lock(&self.last);
        let frames = if last.0 == salts { frames.max(last.1) } else { frames };
        *last = (salts, frames);
        frames
    }

    /// Must be called before the first write of a node or a command. Where there is no log, SQLite makes one with random
    /// salts: a kill before `begin` must not leave a position that speaks of another log, or of flushed commits.
    pub(super) fn expect_new_log(&self) -> io::Result<()> {
        if self.salts().is_some() {
            return Ok(());
        }
        self.write(self.running([0, 0], 0))?;
        if self.is_flushed { self.flush() } else { Ok(()) }
    }

    /// Says that a log had more frames than a recovery keeps: until the recovery has ended, a node refuses the store.
    pub(super) fn begin_recovery(&self, salts: Salts, frames: u64) -> io::Result<()> {
        self.write(self.running(salts, frames))?;
        self.flush()
    }

    fn write(&self, position: Position) -> io::Result<()> {
        self.file.write_all_at(position.line().as_bytes(), 0)
    }

    fn flush(&self) -> io::Result<()> {
        if self.file.metadata()?.len() > LINE_BYTES {
            self.file.set_len(LINE_BYTES)?;
        }
        self.file.sync_all()?;
        flush_folder(&self.folder)
    }

    /// Moves what can be moved into the database, and takes down how far the log went then: (frames in it, of these
    /// moved). None where another checkpoint was in the way.
    pub(super) fn record_checkpoint(&self, connection: &Connection) -> rusqlite::Result<Option<(u64, u64)>> {
        // Twice: a log that is started over in between must not be told to have the frames of the one before.
        let before = self.salts();
        let (is_busy, in_log, moved) = checkpoint(connection, "PASSIVE")?;
        if is_busy {
            return Ok(None);
        }
        if let (Some(salts), true) = (before, before == self.salts()) {
            let position = self.running(salts, self.raise(salts, in_log));
            if let Err(error) = self.write(position) {
                tracing::warn!(%error, file = POSITION_FILE, "the log's position was not written");
            }
        }
        Ok(Some((in_log, moved)))
    }

    /// The first word of a store that is open: from now on, a log that is missing was deleted.
    pub(super) fn begin(&self, connection: &Connection) -> rusqlite::Result<io::Result<()>> {
        self.record_checkpoint(connection)?;
        Ok(self.flush())
    }

    /// Moves all of the log into the database and says that none is needed any more, in this order. False where a reader is
    /// in the way: then the log stays.
    pub(super) fn end(&self, connection: &Connection) -> rusqlite::Result<io::Result<bool>> {
        let (is_busy, in_log, moved) = checkpoint(connection, "FULL")?;
        if is_busy || in_log != moved {
            return Ok(Ok(false));
        }
        // What was not flushed may be lost with the power, from the log too.
        let (salts, frames) = match self.salts().filter(|_| self.is_flushed) {
            Some(salts) => (salts, self.raise(salts, in_log)),
            None => ([0, 0], 0),
        };
        Ok(self.write(Position::Clean { salts, frames }).and_then(|()| self.flush()).map(|()| true))
    }

    /// Empties the log. A process that is killed in between leaves a store that needs none. False where a reader is in the
    /// way: then the log is as it was.
    pub(super) fn start_log_over(&self, connection: &Connection) -> rusqlite::Result<io::Result<bool>> {
        let ended = self.end(connection)?;
        if !matches!(ended, Ok(true)) {
            return Ok(ended);
        }
        let (is_busy, ..) = checkpoint(connection, "TRUNCATE")?;
        Ok(self.forget_deleted_log().map(|()| !is_busy))
    }

    /// After a clean end: where no log is left, a later one is of another program that wrote to the database.
    pub(super) fn forget_deleted_log(&self) -> io::Result<()> {
        let is_filled = std::fs::metadata(&self.wal).is_ok_and(|log| log.len() > 0);
        if is_filled { Ok(()) } else { self.write(Position::Clean { salts: [0, 0], frames: 0 }) }
    }

    fn salts(&self) -> Option<Salts> {
        let mut bytes = [0; HEADER_BYTES];
        File::open(&self.wal).and_then(|wal| wal.read_exact_at(&mut bytes, 0)).ok()?;
        let header = Header::read(&bytes);
        header.is_sound.then_some(header.salts)
    }
}

fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<(bool, u64, u64)> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        // -1 where another checkpoint was in the way.
        let frames = |column| row.get::<_, i64>(column).map(|frames| u64::try_from(frames).unwrap_or(0));
        Ok((row.get::<_, i64>(0)? != 0, frames(1)?, frames(2)?))
    })
}

/// What is wrong with a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LogDamage {
    /// Commits lie behind a frame that does not verify.
    #[error(
        "damaged at byte {offset}: {readable} commits before it can be read, {affected} behind it would be dropped"
    )]
    Unreadable {
        /// Where reading ends.
        offset: u64,
        /// Commits before it.
        readable: u64,
        /// Commits behind it, the last of which may have been under way.
        affected: u64,
    },
    /// It ends before where it once ended.
    #[error(
        "cut short or damaged at its end: it held {held} pages of acknowledged commits, {readable} can be read, and {affected} commits are behind them"
    )]
    Short {
        /// Pages it had.
        held: u64,
        /// Pages that can be read.
        readable: u64,
        /// Commits behind them.
        affected: u64,
    },
    /// It is gone.
    #[error(
        "missing or empty, and its node was not stopped: it held {held} pages of acknowledged commits, which the database file may lack"
    )]
    Missing {
        /// Pages it had.
        held: u64,
    },
    /// It is another one.
    #[error("not the one that the node wrote last: it is older, or another store's")]
    Other,
}

/// Whether acknowledged commits are missing. A commit is written only once the one before is flushed: an interrupted one
/// leaves one end of a commit behind the last frame that verifies; two or more are damage.
pub(super) fn judge(scan: &Scan, position: Option<Position>) -> Option<LogDamage> {
    let Scan { header, frames, commits, gap, commits_behind } = *scan;
    let damaged = header.is_some_and(|header| !header.is_sound);
    let (known, is_clean) = match position {
        Some(Position::Running { is_flushed: true, salts, frames }) => (Some((salts, frames)), false),
        Some(Position::Clean { salts, frames }) => (Some((salts, frames)), true),
        _ => (None, false),
    };
    if commits_behind >= 2 || damaged && commits_behind > 0 {
        let offset = header.filter(|header| header.is_sound).map_or(0, |header| header.offset(gap));
        return Some(LogDamage::Unreadable { offset, readable: commits, affected: commits_behind });
    }
    let (salts, held) = known.filter(|(_, held)| *held > 0)?;
    let Some(header) = header else { return (!is_clean).then_some(LogDamage::Missing { held }) };
    if damaged && is_clean {
        // SQLite reads nothing of it, and the database has everything.
        return None;
    }
    if damaged {
        return Some(LogDamage::Unreadable { offset: 0, readable: commits, affected: commits_behind });
    }
    if header.salts == salts {
        let short = LogDamage::Short { held, readable: frames, affected: commits_behind };
        return (frames < held).then_some(short);
    }
    // Started over since then, which it is only once the database has all of it.
    let starts = header.salts[0].wrapping_sub(salts[0]);
    (starts == 0 || starts > STARTS_MAX).then_some(LogDamage::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNING: Position = Position::Running { is_flushed: true, salts: [7, 9], frames: 3 };
    const CLEAN: Position = Position::Clean { salts: [7, 9], frames: 3 };

    fn scanned(salts: Salts, frames: u64, commits_behind: u64) -> Scan {
        let header = Header {
            is_sound: true,
            page_bytes: 4096,
            is_big_endian: false,
            salts,
            sums: crate::engine::sqlite::wal::Sums::default(),
        };
        Scan { header: Some(header), frames, commits: frames, gap: frames, commits_behind }
    }

    #[test]
    fn positions_survive_their_file_and_damaged_ones_do_not() {
        let unflushed = Position::Running { is_flushed: false, salts: [u32::MAX, 0], frames: u64::MAX };
        for position in [CLEAN, RUNNING, unflushed] {
            let line = position.line();
            assert_eq!((Position::parse(&line), line.len() as u64), (Some(position), LINE_BYTES));
            for at in 0..line.len() - 1 {
                let mut bytes = line.clone().into_bytes();
                bytes[at] ^= 1;
                assert_eq!(Position::parse(&String::from_utf8(bytes).unwrap()), None, "{at} of {line}");
            }
        }
    }

    /// QUA-1
    #[test]
    fn interrupted_commit_is_not_damage() {
        assert_eq!(judge(&scanned([7, 9], 3, 1), Some(RUNNING)), None);
        assert_eq!(judge(&scanned([7, 9], 3, 1), None), None);
        assert_eq!(judge(&scanned([8, 1], 0, 0), Some(RUNNING)), None, "started over");
        assert_eq!(judge(&Scan::default(), Some(CLEAN)), None);
        assert_eq!(judge(&Scan::default(), None), None);
    }

    /// QUA-1
    #[test]
    fn commits_that_were_flushed_and_are_not_there_are_damage() {
        let unreadable = LogDamage::Unreadable { offset: 12392, readable: 3, affected: 2 };
        assert_eq!(judge(&scanned([7, 9], 3, 2), None), Some(unreadable));
        assert_eq!(judge(&Scan::default(), Some(RUNNING)), Some(LogDamage::Missing { held: 3 }));
        let short = LogDamage::Short { held: 3, readable: 2, affected: 1 };
        assert_eq!(judge(&scanned([7, 9], 2, 1), Some(RUNNING)), Some(short));
        assert_eq!(judge(&scanned([6, 9], 9, 0), Some(RUNNING)), Some(LogDamage::Other));
        assert_eq!(judge(&scanned([7, 8], 9, 0), Some(RUNNING)), Some(LogDamage::Other));
        let mut headless = scanned([0, 0], 0, 0);
        headless.header.as_mut().unwrap().is_sound = false;
        assert!(judge(&headless, Some(RUNNING)).is_some());
        assert_eq!(judge(&headless, None), None, "nothing was committed in it");
        assert_eq!(judge(&headless, Some(CLEAN)), None, "SQLite does not read it");
    }

    /// QUA-1
    #[test]
    fn log_after_a_clean_stop_is_judged() {
        assert_eq!(judge(&scanned([7, 9], 3, 0), Some(CLEAN)), None);
        assert_eq!(judge(&scanned([8, 1], 1, 0), Some(CLEAN)), None, "started over");
        let short = LogDamage::Short { held: 3, readable: 2, affected: 0 };
        assert_eq!(judge(&scanned([7, 9], 2, 0), Some(CLEAN)), Some(short));
        assert_eq!(judge(&scanned([6, 9], 9, 0), Some(CLEAN)), Some(LogDamage::Other));
    }

    /// QUA-1
    #[test]
    fn distant_salts_are_of_another_log() {
        assert_eq!(judge(&scanned([7 + STARTS_MAX, 1], 1, 0), Some(RUNNING)), None);
        assert_eq!(judge(&scanned([8 + STARTS_MAX, 1], 1, 0), Some(RUNNING)), Some(LogDamage::Other));
        assert_eq!(judge(&scanned([7 + 5000, 1], 1, 0), Some(RUNNING)), Some(LogDamage::Other));
    }

    /// A log with three commits.
    fn log(folder: &Path) -> Connection {
        let connection = connect(folder);
        let commits = "PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x);
                       INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)";
        connection.execute_batch(commits).unwrap();
        connection
    }

    fn connect(folder: &Path) -> Connection {
        Connection::open(folder.join(FILE)).unwrap()
    }

    fn frames(folder: &Path) -> u64 {
        match read(folder).unwrap().unwrap() {
            Position::Running { frames, .. } | Position::Clean { frames, .. } => frames,
        }
    }

    /// QUA-1
    #[test]
    fn busy_checkpoint_leaves_the_position() {
        let folder = tempfile::tempdir().unwrap();
        let connection = log(folder.path());
        let position = PositionFile::open(folder.path(), true).unwrap();
        let reader = connect(folder.path());
        reader.execute_batch("BEGIN; SELECT * FROM t").unwrap();
        reader.query_row("SELECT count(*) FROM t", [], |_| Ok(())).unwrap();
        connection.execute_batch("INSERT INTO t VALUES (3)").unwrap();
        position.record_checkpoint(&connection).unwrap().unwrap();
        let held = frames(folder.path());
        assert!(held > 0);
        let other = connect(folder.path());
        // It waits for the reader, and has the lock of checkpoints meanwhile.
        let waiting = std::thread::spawn(move || {
            other.busy_timeout(std::time::Duration::from_secs(120)).unwrap();
            checkpoint(&other, "FULL").unwrap()
        });
        connection.busy_timeout(std::time::Duration::ZERO).unwrap();
        let was_busy = (0..10_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            position.record_checkpoint(&connection).unwrap().is_none()
        });
        assert!(was_busy, "the other checkpoint never began");
        assert_eq!(frames(folder.path()), held);
        drop(reader);
        assert!(!waiting.join().unwrap().0);
    }

    /// QUA-1
    #[test]
    fn frames_of_one_log_are_never_lowered() {
        let folder = tempfile::tempdir().unwrap();
        let position = PositionFile::open(folder.path(), true).unwrap();
        let raised =
            [([7, 9], 3), ([7, 9], 0), ([8, 1], 1)].map(|(salts, frames)| position.raise(salts, frames));
        assert_eq!(raised, [3, 3, 1]);
    }

    /// PIP-12: nothing is promised of the commits of an interrupted first start.
    #[test]
    fn state_is_written_before_the_first_commit() {
        for is_flushed in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(POSITION_FILE), [b'x'; 100]).unwrap();
            assert_eq!(read(folder.path()).unwrap(), None);
            let position = PositionFile::open(folder.path(), is_flushed).unwrap();
            position.expect_new_log().unwrap();
            position.flush().unwrap();
            let expected = Position::Running { is_flushed, salts: [0, 0], frames: 0 };
            assert_eq!(read(folder.path()).unwrap(), Some(expected), "what was longer is cut");
        }
    }
}
