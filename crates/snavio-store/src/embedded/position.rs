//! How far the write-ahead log was known to go: file `snavio.position` beside the database. With it the next start notices
//! a log that was deleted, cut short or put back, none of which SQLite can tell from a log that was never longer.
//!
//! One line: `clean`, `running` or `unflushed`, the salts of the log, the number of its committed frames, and a CRC-32 of
//! what is before it. The checkpoint thread writes it without a flush: it may be behind the log, never ahead of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::FILE;
use super::wal::{HEADER_BYTES, Header, STARTS_MAX, Salts, Scan};
use crate::files::{self, beside, flush_folder};

pub(super) const POSITION_FILE: &str = "snavio.position";

/// What is known of a log from outside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// The database file has everything: there need be no log.
    Clean,
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
            Self::Clean => ("clean", [0, 0], 0),
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
            "clean" => Some(Self::Clean),
            "running" => Some(Self::Running { is_flushed: true, salts, frames }),
            "unflushed" => Some(Self::Running { is_flushed: false, salts, frames }),
            _ => None,
        }
    }
}

/// What a folder's file says; nothing where there is none, or it cannot be read as a position.
pub(super) fn read(folder: &Path) -> io::Result<Option<Position>> {
    match std::fs::read(folder.join(POSITION_FILE)) {
        Ok(bytes) => Ok(String::from_utf8(bytes).ok().and_then(|line| Position::parse(&line))),
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
}

impl PositionFile {
    pub(super) fn open(folder: &Path, is_flushed: bool) -> io::Result<Self> {
        let file = files::open_file(&folder.join(POSITION_FILE))?;
        let wal = beside(&folder.join(FILE), "-wal");
        Ok(Self { file, folder: folder.to_owned(), wal, is_flushed })
    }

    fn write(&self, position: Position) -> io::Result<()> {
        self.file.write_all_at(position.line().as_bytes(), 0)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_all()?;
        flush_folder(&self.folder)
    }

    /// Moves what can be moved into the database, and takes down how far the log went then: (frames in it, of these
    /// moved).
    pub(super) fn record_checkpoint(&self, connection: &Connection) -> rusqlite::Result<(u64, u64)> {
        // Twice: a log that is started over in between must not be told to have the frames of the one before.
        let before = self.salts();
        let (_, in_log, moved) = checkpoint(connection, "PASSIVE")?;
        if let (Some(salts), true) = (before, before == self.salts()) {
            let position = Position::Running { is_flushed: self.is_flushed, salts, frames: in_log };
            if let Err(error) = self.write(position) {
                tracing::warn!(%error, file = POSITION_FILE, "the log's position was not written");
            }
        }
        Ok((in_log, moved))
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
        Ok(self.write(Position::Clean).and_then(|()| self.flush()).map(|()| true))
    }

    /// Empties the log. A process that is killed in between leaves a store that needs none.
    pub(super) fn start_log_over(&self, connection: &Connection) -> rusqlite::Result<io::Result<()>> {
        let ended = self.end(connection)?;
        if matches!(ended, Ok(true)) {
            checkpoint(connection, "TRUNCATE")?;
        }
        Ok(ended.map(|_| ()))
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
    let known = match position {
        Some(Position::Running { is_flushed: true, salts, frames }) => Some((salts, frames)),
        _ => None,
    };
    if commits_behind >= 2 || damaged && commits_behind > 0 {
        let offset = header.filter(|header| header.is_sound).map_or(0, |header| header.offset(gap));
        return Some(LogDamage::Unreadable { offset, readable: commits, affected: commits_behind });
    }
    let (salts, held) = known.filter(|(_, held)| *held > 0)?;
    let Some(header) = header else { return Some(LogDamage::Missing { held }) };
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

    fn scanned(salts: Salts, frames: u64, commits_behind: u64) -> Scan {
        let header = Header {
            is_sound: true,
            page_bytes: 4096,
            is_big_endian: false,
            salts,
            sums: crate::embedded::wal::Sums::default(),
        };
        Scan { header: Some(header), frames, commits: frames, gap: frames, commits_behind }
    }

    #[test]
    fn positions_survive_their_file_and_damaged_ones_do_not() {
        let unflushed = Position::Running { is_flushed: false, salts: [u32::MAX, 0], frames: u64::MAX };
        for position in [Position::Clean, RUNNING, unflushed] {
            let line = position.line();
            assert_eq!((Position::parse(&line), line.len()), (Some(position), 57));
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
        assert_eq!(judge(&Scan::default(), Some(Position::Clean)), None);
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
    }
}
