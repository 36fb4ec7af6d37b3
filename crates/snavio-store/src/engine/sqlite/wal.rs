//! The format of SQLite's write-ahead log, read without SQLite: its recovery stops at the first frame that does not
//! verify, and starts the log over.
//!
//! A header of 32 bytes (magic, version, page size, checkpoint sequence, two salts, checksum), then frames: 24 bytes
//! (page number, size of the database in pages after a commit or 0, the two salts, checksum) and the page. A checksum covers
//! the first 8 bytes of its frame and the page, and continues the checksum of the frame before. Each start of the log has
//! salts of its own; behind its end are frames of earlier starts.

use std::io::{self, Read, Seek, SeekFrom};

pub(super) const HEADER_BYTES: usize = 32;
pub(super) const FRAME_HEADER_BYTES: usize = 24;
/// The page size of every store. It counts where the header of a log cannot be read.
const PAGE_BYTES: usize = 4096;
const MAGIC: u32 = 0x377f_0682;
const VERSION: u32 = 3_007_000;

/// Starts of a log that can lie between `snavio.position` and the log: salts of another log, or damaged ones, are further
/// away, but for one in a million. A log starts over only once a checkpoint has moved all of it. The checkpointer works
/// every 50 ms at most and writes the position each time, so that it is one start behind. After a power cut the file may be
/// as old as the operating system's cache, usually 35 s: 700 starts. 4096 starts are 205 s.
pub(super) const STARTS_MAX: u32 = 1 << 12;

/// The two words that all frames since a start of the log have in common. The first rises by one with each start.
pub(super) type Salts = [u32; 2];

/// A running checksum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sums(u32, u32);

impl Sums {
    fn of(bytes: &[u8]) -> Self {
        Self(word(bytes, 0), word(bytes, 4))
    }

    fn bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.0.to_be_bytes());
        bytes[4..].copy_from_slice(&self.1.to_be_bytes());
        bytes
    }

    /// Continued over these bytes, a multiple of eight.
    pub(super) fn over(mut self, bytes: &[u8], is_big_endian: bool) -> Self {
        let read = if is_big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
        for pair in bytes.chunks_exact(8) {
            let (mut first, mut second) = ([0; 4], [0; 4]);
            first.copy_from_slice(&pair[..4]);
            second.copy_from_slice(&pair[4..]);
            self.0 = self.0.wrapping_add(read(first)).wrapping_add(self.1);
            self.1 = self.1.wrapping_add(read(second)).wrapping_add(self.0);
        }
        self
    }
}

/// The header of a log, as far as reading frames needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Its own checksum verifies; the other fields are stand-ins otherwise.
    pub(super) is_sound: bool,
    pub(super) page_bytes: usize,
    pub(super) is_big_endian: bool,
    pub(super) salts: Salts,
    pub(super) sums: Sums,
}

impl Header {
    pub(super) fn read(bytes: &[u8; HEADER_BYTES]) -> Self {
        let magic = word(bytes, 0);
        let page_bytes = word(bytes, 8) as usize;
        let is_big_endian = magic & 1 == 1;
        let sums = Sums::of(&bytes[24..]);
        let is_sound = magic & !1 == MAGIC
            && page_bytes.is_power_of_two()
            && (512..=65536).contains(&page_bytes)
            && Sums::default().over(&bytes[..24], is_big_endian) == sums;
        let salts = [word(bytes, 16), word(bytes, 20)];
        if is_sound {
            return Self { is_sound, page_bytes, is_big_endian, salts, sums };
        }
        Self { is_sound, page_bytes: PAGE_BYTES, is_big_endian: cfg!(target_endian = "big"), salts, sums }
    }

    /// A header for frames with these salts, as SQLite would write it.
    pub(super) fn made(&self, salts: Salts) -> ([u8; HEADER_BYTES], Sums) {
        let mut bytes = [0; HEADER_BYTES];
        let words =
            [MAGIC | u32::from(self.is_big_endian), VERSION, self.page_bytes as u32, 0, salts[0], salts[1]];
        for (at, word) in words.into_iter().enumerate() {
            bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_be_bytes());
        }
        let sums = Sums::default().over(&bytes[..24], self.is_big_endian);
        bytes[24..].copy_from_slice(&sums.bytes());
        (bytes, sums)
    }

    /// Where a frame begins.
    pub(super) fn offset(&self, frame: u64) -> u64 {
        HEADER_BYTES as u64 + frame * (FRAME_HEADER_BYTES + self.page_bytes) as u64
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) page: u32,
    /// The size of the database in pages where this frame ends a commit, else 0.
    pub(super) commit: u32,
    pub(super) salts: Salts,
    pub(super) sums: Sums,
}

impl FrameHeader {
    pub(super) fn read(bytes: &[u8; FRAME_HEADER_BYTES]) -> Self {
        let salts = [word(bytes, 8), word(bytes, 12)];
        Self { page: word(bytes, 0), commit: word(bytes, 4), salts, sums: Sums::of(&bytes[16..]) }
    }

    /// What the checksum covers of it.
    pub(super) fn covered(&self) -> [u8; 8] {
        Sums(self.page, self.commit).bytes()
    }

    pub(super) fn bytes(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[..8].copy_from_slice(&self.covered());
        bytes[8..16].copy_from_slice(&Sums(self.salts[0], self.salts[1]).bytes());
        bytes[16..].copy_from_slice(&self.sums.bytes());
        bytes
    }
}

/// The content of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// None where there is no header: the file is empty or shorter.
    pub(super) header: Option<Header>,
    /// Frames up to the end of the last commit that verifies: all that SQLite would read.
    pub(super) frames: u64,
    /// Commits among them.
    pub(super) commits: u64,
    /// Where reading ends: the first frame that does not verify.
    pub(super) gap: u64,
    /// Frames behind `gap`, itself included, that end a commit of this start of the log.
    pub(super) commits_behind: u64,
}

/// Reads a whole log.
pub(super) fn scan(log: &mut (impl Read + Seek)) -> io::Result<Scan> {
    let mut bytes = [0; HEADER_BYTES];
    log.seek(SeekFrom::Start(0))?;
    if !fill(log, &mut bytes)? {
        return Ok(Scan::default());
    }
    let header = Header::read(&bytes);
    let mut scan = Scan { header: Some(header), ..Scan::default() };
    if header.is_sound {
        read_chain(log, &header, &mut scan)?;
    }
    let salts = salts_of(log, &header)?;
    let Some(salts) = salts.filter(|salts| *salts != [0, 0]) else { return Ok(scan) };
    let mut number = scan.gap;
    while let Some(frame) = frame_header(log, &header, number)? {
        let belongs =
            if number == scan.gap { differ_in_a_byte(frame.salts, salts) } else { frame.salts == salts };
        scan.commits_behind += u64::from(belongs && frame.commit != 0);
        number += 1;
    }
    Ok(scan)
}

/// The salts of the newest start of a log. Where its header is damaged, the sector of its first frame may be too.
pub(super) fn salts_of(log: &mut (impl Read + Seek), header: &Header) -> io::Result<Option<Salts>> {
    if header.is_sound {
        return Ok(Some(header.salts));
    }
    let first = frame_header(log, header, 0)?.map(|frame| frame.salts);
    let second = frame_header(log, header, 1)?.map(|frame| frame.salts);
    let (Some([first_word, _]), Some([second_word, _])) = (first, second) else { return Ok(first) };
    // The second frame may be of an earlier start, if this one has only one.
    let is_earlier = (0..=STARTS_MAX).contains(&first_word.wrapping_sub(second_word));
    Ok(if is_earlier { first } else { second })
}

/// Follows the checksums as SQLite does.
fn read_chain(log: &mut (impl Read + Seek), header: &Header, scan: &mut Scan) -> io::Result<()> {
    let (mut sums, mut bytes, mut page) = (header.sums, [0; FRAME_HEADER_BYTES], vec![0; header.page_bytes]);
    let mut commits = 0;
    // Large reads: a log may have many thousand frames.
    let mut log = io::BufReader::with_capacity(1 << 20, log);
    while fill(&mut log, &mut bytes)? && fill(&mut log, &mut page)? {
        let (frame, before) = (FrameHeader::read(&bytes), sums);
        sums = sums.over(&frame.covered(), header.is_big_endian).over(&page, header.is_big_endian);
        if frame.salts != header.salts || frame.page == 0 || frame.sums != sums {
            scan.commits_behind += u64::from(has_lost_its_commit(&frame, before, &page, header));
            break;
        }
        scan.gap += 1;
        if frame.commit != 0 {
            commits += 1;
            (scan.frames, scan.commits) = (scan.gap, commits);
        }
    }
    Ok(())
}

/// Whether the checksum of a frame that ends no commit is right for one that does: its only bit was flipped.
fn has_lost_its_commit(frame: &FrameHeader, before: Sums, page: &[u8], header: &Header) -> bool {
    frame.commit == 0
        && (0..32).any(|bit| {
            let commit = FrameHeader { commit: 1 << bit, ..*frame };
            before.over(&commit.covered(), header.is_big_endian).over(page, header.is_big_endian)
                == frame.sums
        })
}

/// The header of a frame that is there as a whole.
fn frame_header(
    log: &mut (impl Read + Seek),
    header: &Header,
    number: u64,
) -> io::Result<Option<FrameHeader>> {
    let mut last = [0; 1];
    log.seek(SeekFrom::Start(header.offset(number + 1) - 1))?;
    if !fill(log, &mut last)? {
        return Ok(None);
    }
    let mut bytes = [0; FRAME_HEADER_BYTES];
    log.seek(SeekFrom::Start(header.offset(number)))?;
    Ok(fill(log, &mut bytes)?.then(|| FrameHeader::read(&bytes)))
}

/// Reads a frame; false where it is not there as a whole.
pub(super) fn read_frame(
    log: &mut (impl Read + Seek),
    header: &Header,
    number: u64,
    page: &mut [u8],
) -> io::Result<Option<FrameHeader>> {
    let mut bytes = [0; FRAME_HEADER_BYTES];
    log.seek(SeekFrom::Start(header.offset(number)))?;
    Ok((fill(log, &mut bytes)? && fill(log, page)?).then(|| FrameHeader::read(&bytes)))
}

/// Salts with one damaged byte still are this log's; those of an earlier start differ in more.
pub(super) fn differ_in_a_byte(one: Salts, other: Salts) -> bool {
    let bytes = |salts: Salts| Sums(salts[0], salts[1]).bytes();
    bytes(one).iter().zip(bytes(other)).filter(|(one, other)| **one != *other).count() <= 1
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}

/// False where the file ends before.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use rusqlite::Connection;

    use super::*;

    const COMMITS: u64 = 20;

    /// A log that is in use: SQLite removes one that is not.
    struct Log {
        connection: Connection,
        folder: tempfile::TempDir,
    }

    impl Log {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let connection = Connection::open(folder.path().join("test.db")).unwrap();
            let settings =
                "PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x BLOB)";
            connection.execute_batch(settings).unwrap();
            let log = Self { connection, folder };
            (1..COMMITS).for_each(|_| log.commit());
            log
        }

        /// A commit of several frames.
        fn commit(&self) {
            self.connection.execute("INSERT INTO t VALUES (randomblob(9000))", []).unwrap();
        }

        fn bytes(&self) -> Vec<u8> {
            std::fs::read(self.folder.path().join("test.db-wal")).unwrap()
        }

        fn frames(&self) -> u64 {
            let query = "PRAGMA wal_checkpoint(PASSIVE)";
            self.connection.query_row(query, [], |row| row.get::<_, i64>(1)).unwrap().unsigned_abs()
        }
    }

    fn scan_of(bytes: &[u8]) -> Scan {
        scan(&mut Cursor::new(bytes)).unwrap()
    }

    #[test]
    fn whole_log_is_read_to_its_end() {
        let log = Log::new();
        let found = scan_of(&log.bytes());
        assert!(found.header.unwrap().is_sound);
        assert_eq!((found.frames, found.gap), (log.frames(), log.frames()));
        assert_eq!((found.commits, found.commits_behind), (COMMITS, 0));
        assert_eq!(scan_of(&[]), Scan::default());
    }

    /// QUA-1
    #[test]
    fn frames_of_an_earlier_start_are_not_behind_a_gap() {
        let log = Log::new();
        let restarted = "PRAGMA wal_checkpoint(RESTART)";
        log.connection.query_row(restarted, [], |_| Ok(())).unwrap();
        let mut bytes = log.bytes();
        let before = scan_of(&bytes);
        assert_eq!((before.commits, before.commits_behind), (COMMITS, 0), "until the next commit");
        log.commit();
        let found = scan_of(&log.bytes());
        assert_eq!((found.commits, found.commits_behind, found.frames), (1, 0, log.frames()));
        let salts = |scan: Scan| scan.header.unwrap().salts[0];
        assert_eq!(salts(found), salts(before).wrapping_add(1), "the word that rises");
        // Killed after the header was flushed, and before a frame was.
        bytes[..HEADER_BYTES].copy_from_slice(&log.bytes()[..HEADER_BYTES]);
        assert_eq!((scan_of(&bytes).commits, scan_of(&bytes).commits_behind), (0, 0));
    }

    /// QUA-1
    #[test]
    fn damaged_bit_counts_the_commits_behind_it() {
        let log = Log::new();
        let (whole, frame_bytes) = (log.bytes(), FRAME_HEADER_BYTES + 4096);
        for bit in 0..HEADER_BYTES * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = scan_of(&bytes);
            assert!(!found.header.unwrap().is_sound, "bit {bit} of the header");
            assert_eq!(found.commits_behind, COMMITS, "bit {bit} of the header");
        }
        let frames = (whole.len() - HEADER_BYTES) / frame_bytes;
        for (frame, bit) in
            (0..frames).flat_map(|frame| [3, 64, 100, 130, 200, 9_999].map(|bit| (frame, bit)))
        {
            let mut bytes = whole.clone();
            bytes[HEADER_BYTES + frame * frame_bytes + bit / 8] ^= 1 << (bit % 8);
            let found = scan_of(&bytes);
            assert_eq!(found.gap, frame as u64, "bit {bit}");
            assert_eq!(found.commits + found.commits_behind, COMMITS, "bit {bit} of frame {frame}");
        }
    }

    /// QUA-1
    #[test]
    fn flipped_commit_mark_counts_as_a_commit() {
        let log = Log::new();
        let (whole, frame_bytes) = (log.bytes(), FRAME_HEADER_BYTES + 4096);
        let ends: Vec<_> = (0..(whole.len() - HEADER_BYTES) / frame_bytes)
            .map(|frame| HEADER_BYTES + frame * frame_bytes)
            .filter(|at| word(&whole, at + 4) != 0)
            .collect();
        let mut tried = 0;
        // The last commit but one, of a database with a power of two of pages.
        for pair in ends.windows(2).filter(|pair| word(&whole, pair[0] + 4).is_power_of_two()) {
            let mut bytes = whole[..pair[1] + frame_bytes].to_vec();
            bytes[pair[0] + 4..pair[0] + 8].fill(0);
            assert_eq!(scan_of(&bytes).commits_behind, 2);
            tried += 1;
        }
        assert!(tried > 0);
    }

    /// QUA-1
    #[test]
    fn interrupted_commit_leaves_one_end_of_a_commit() {
        let log = Log::new();
        let whole = log.bytes();
        let frame_bytes = FRAME_HEADER_BYTES + 4096;
        let frames = (whole.len() - HEADER_BYTES) / frame_bytes;
        let torn = |frame: usize| {
            let mut bytes = whole.clone();
            let at = HEADER_BYTES + frame * frame_bytes;
            bytes[at..at + frame_bytes].fill(0);
            scan_of(&bytes)
        };
        assert_eq!((torn(frames - 2).commits, torn(frames - 2).commits_behind), (COMMITS - 1, 1));
        assert_eq!((torn(frames - 1).commits, torn(frames - 1).commits_behind), (COMMITS - 1, 0));
    }
}
