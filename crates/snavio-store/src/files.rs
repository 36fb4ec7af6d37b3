//! Folders and files for their owner's eyes only: a store holds every payload, whatever the umask of whoever
//! starts a node or makes a backup.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Makes a folder, and those above it that are missing; one that is there stays as it is.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Opens a file to write to it, making it where it is missing.
pub(super) fn open_file(file: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(file)
}

/// Makes a file that must not be there yet.
pub(super) fn make_file(file: &Path) -> io::Result<File> {
    OpenOptions::new().create_new(true).write(true).mode(0o600).open(file)
}
