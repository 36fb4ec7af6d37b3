//! Files and folders as a node keeps them: for their owner's eyes only, whatever the umask of whoever starts it,
//! and with their names on stable storage.

pub(crate) mod staged;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Makes a folder, and those above it that are missing; one that is there stays as it is.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    let named = folder.ancestors().filter(|it| !it.as_os_str().is_empty());
    let missing: Vec<_> = named.take_while(|it| !it.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // Without its name a folder is lost with the power, and all that was flushed into it.
    missing.into_iter().try_for_each(|made| flush_folder(folder_of(made)))
}

/// Opens a file to write to it, making it where it is missing.
pub fn open_file(file: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(file)
}

/// Makes a file that must not be there yet.
pub fn make_file(file: &Path) -> io::Result<File> {
    OpenOptions::new().create_new(true).write(true).mode(0o600).open(file)
}

/// Writes a file that must not be there yet, and the folder it goes into.
pub fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    make_folder(folder_of(path))?;
    let mut file = make_file(path)?;
    file.write_all(content)?;
    file.sync_all()?;
    flush_folder(folder_of(path))
}

/// Writes a file, and the folder it goes into. Under another name until it is complete: a kill must not leave half
/// of it.
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    make_folder(folder_of(path))?;
    let partial = beside(path, ".new");
    let mut file = open_file(&partial)?;
    file.set_len(0)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&partial, path)?;
    flush_folder(folder_of(path))
}

/// The file whose name is this one's with something after it.
pub fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// The folder that holds a file or a folder.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What is in a folder has its name on stable storage once the folder is.
pub fn flush_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The mode of a file or folder that others than its owner may use.
pub fn open_to_others(path: &Path) -> io::Result<Option<u32>> {
    let mode = std::fs::metadata(path)?.permissions().mode();
    Ok((mode & 0o077 != 0).then_some(mode & 0o777))
}

/// Bytes that may still be written to the file system of a folder.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REG-13
    #[test]
    fn what_is_made_is_its_owners_alone_and_what_was_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a/b/secret");
        write_whole(&file, b"one").unwrap();
        write_whole(&file, b"2").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"2");
        assert!(write_new(&file, b"three").is_err(), "nothing is overwritten");
        for made in [&file, &folder.path().join("a"), &folder.path().join("a/b")] {
            assert_eq!(open_to_others(made).unwrap(), None, "{}", made.display());
        }
        assert_eq!(std::fs::read_dir(folder.path().join("a/b")).unwrap().count(), 1);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(open_to_others(&file).unwrap(), Some(0o640));
    }
}
