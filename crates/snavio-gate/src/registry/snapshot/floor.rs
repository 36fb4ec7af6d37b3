//! The highest snapshot version that this node has verified, kept across restarts. An older snapshot is a
//! rollback (REG-21). The file has the environment and the version, each on a line.

use std::io::ErrorKind;
use std::path::Path;

use snavio_store::files;

use super::Trouble;

/// The version below which no snapshot is read; 0 for a new node.
pub(super) fn read(file: &Path, environment: &str) -> Result<i64, Trouble> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(Trouble::Floor(format!("{} cannot be read: {error}", file.display()))),
    };
    let parsed = text.split_once('\n').and_then(|(of, version)| Some((of, version.trim_end().parse().ok()?)));
    match parsed {
        Some((of, version)) if of == environment => Ok(version),
        // The node has moved to another environment, which counts its own versions.
        Some(_) => Ok(0),
        None => Err(Trouble::Floor(format!("{} does not contain a version", file.display()))),
    }
}

/// Raises the floor to a verified version.
pub(super) fn raise(file: &Path, environment: &str, version: i64) -> Result<(), Trouble> {
    let written = files::write_whole(file, format!("{environment}\n{version}\n").as_bytes());
    written.map_err(|error| Trouble::Floor(format!("{} cannot be written: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REG-21
    #[test]
    fn floor_is_kept_for_each_environment() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("floor");
        assert_eq!(read(&file, "prod").unwrap(), 0);
        raise(&file, "prod", 7).unwrap();
        assert_eq!(read(&file, "prod").unwrap(), 7);
        assert_eq!(read(&file, "test").unwrap(), 0);
        for damaged in ["", "prod", "prod\n", "prod\nseven\n"] {
            std::fs::write(&file, damaged).unwrap();
            assert_eq!(read(&file, "prod").unwrap_err().cause(), "floor", "{damaged:?}");
        }
    }
}
