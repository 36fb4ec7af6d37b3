//! Files that several may write at once, in one process or many: each under a name of its own until it is whole, which
//! its lock tells from what a killed one left behind. What was left says what it was to say, so it goes with the next
//! writing and with the file itself (CLM-18).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::files::{self, beside, flush_folder, folder_of};

/// Names that are tried: so many would have to write one file at once.
const NAMES_MAX: u32 = 100;

/// Writes a file, and the folder it goes into, in the place of what was there.
pub(crate) fn write(file: &Path, content: &[u8]) -> io::Result<()> {
    files::make_folder(folder_of(file))?;
    clear(file)?;
    let (mut own, staged) = begin(file)?;
    let whole = own.write_all(content).and_then(|()| own.sync_all());
    let named = whole.and_then(|()| std::fs::rename(&staged, file));
    if named.is_err() {
        let _ = std::fs::remove_file(&staged);
    }
    named?;
    flush_folder(folder_of(file))
}

/// Removes what writers left beside a file that were killed; what somebody is writing stays.
pub(crate) fn clear(file: &Path) -> io::Result<()> {
    let Some(name) = file.file_name() else { return Ok(()) };
    let listed = match std::fs::read_dir(folder_of(file)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed?,
    };
    for entry in listed {
        let entry = entry?;
        if !is_staged(name, &entry.file_name()) {
            continue;
        }
        // For writing: some file systems lock nothing else.
        let left = match File::options().read(true).write(true).open(entry.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let file = entry.path();
                tracing::warn!(file = %file.display(), "left behind by a writer of another user; remove it by hand");
                continue;
            }
            left => left?,
        };
        // Nobody is writing it, and what was opened has not got its own name meanwhile.
        if flock(&left, FlockOperation::NonBlockingLockExclusive).is_ok() && is_at(&left, &entry.path())? {
            match std::fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Whether this is the name of a file on its way to that one: with a number after it, as `object_store` names them, which
/// lists none of them.
fn is_staged(name: &OsStr, other: &OsStr) -> bool {
    let rest = other.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
    let number = rest.and_then(|it| it.strip_prefix(b"#"));
    number.is_some_and(|it| !it.is_empty() && it.iter().all(u8::is_ascii_digit))
}

/// A new file on its way to that one, and the lock that says whose it is.
fn begin(file: &Path) -> io::Result<(File, PathBuf)> {
    for number in 1..=NAMES_MAX {
        let staged = beside(file, &format!("#{number}"));
        match files::make_file(&staged) {
            // Somebody may have taken it for left behind before it was locked.
            Ok(own) if is_ones_own(&own, &staged)? => return Ok((own, staged)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // Whoever deleted the last file in it took the folder away.
            Err(error) if error.kind() == io::ErrorKind::NotFound => files::make_folder(folder_of(file))?,
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many are writing this file"))
}

/// Where there are no locks, nobody takes anything for left behind.
fn is_ones_own(own: &File, staged: &Path) -> io::Result<bool> {
    let locked = flock(own, FlockOperation::NonBlockingLockExclusive);
    Ok(locked != Err(Errno::WOULDBLOCK) && is_at(own, staged)?)
}

/// Whether this is the file that has that name now.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let there = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        there => there?,
    };
    let here = file.metadata()?;
    Ok((here.dev(), here.ino()) == (there.dev(), there.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let listed = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = listed.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// CLM-18: what a killed writer left goes, what somebody is writing stays, and so does what only looks alike.
    #[test]
    fn what_was_left_behind_is_told_from_what_is_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("segment");
        for left in ["segment#1", "segment#27"] {
            std::fs::write(folder.path().join(left), "said").unwrap();
        }
        for other in ["segment#", "segment#1a", "segments#1", "other#1"] {
            std::fs::write(folder.path().join(other), "another's").unwrap();
        }
        let (own, staged) = begin(&file).unwrap();
        assert_eq!(staged, folder.path().join("segment#2"));
        write(&file, b"whole").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"whole");
        assert_eq!(files::open_to_others(&file).unwrap(), None);
        let others = ["other#1", "segment#", "segment#1a", "segments#1"];
        let there = |more: &[&str]| {
            let mut all: Vec<_> = others.iter().chain(more).map(|it| (*it).to_owned()).collect();
            all.sort();
            all
        };
        assert_eq!(names(folder.path()), there(&["segment", "segment#2"]));
        drop(own);
        clear(&file).unwrap();
        assert_eq!(names(folder.path()), there(&["segment"]), "once it is nobody's any more");
    }

    /// CLM-18
    #[test]
    fn of_many_who_write_one_file_none_takes_anothers_away() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("made/segment");
        std::thread::scope(|threads| {
            for number in 0..8_u8 {
                let file = &file;
                threads.spawn(move || (0..20).for_each(|_| write(file, &[number; 1000]).unwrap()));
            }
        });
        let written = std::fs::read(&file).unwrap();
        assert!(written.len() == 1000 && written.iter().all(|it| *it == written[0]));
        assert_eq!(names(&folder.path().join("made")), ["segment"]);
    }
}
