//! The highest version of a snapshot that this node has verified, kept across restarts: an older one is a roll-back
//! (REG-21). The file holds the environment and the version, each on a line.

use std::io::ErrorKind;
use std::path::Path;

use snavio_store::files;

use super::Trouble;

/// The version below which nothing is read; a new node has seen none.
pub(super) fn read(file: &Path, environment: &str) -> Result<i64, Trouble> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(Trouble::Floor(format!("{} cannot be read: {error}", file.display()))),
    };
    let parsed = text.split_once('\n').and_then(|(of, version)| Some((of, version.trim_end().parse().ok()?)));
    match parsed {
        Some((of, version)) if of == environment => Ok(version),
        // The node has moved to another environment, whose versions are others.
        Some(_) => Ok(0),
        None => Err(Trouble::Floor(format!("{} does not hold a version", file.display()))),
    }
}

/// Moves it up to a version that was verified.
pub(super) fn raise(file: &Path, environment: &str, version: i64) -> Result<(), Trouble> {
    let written = files::write_whole(file, format!("{environment}\n{version}\n").as_bytes());
    written.map_err(|error| Trouble::Floor(format!("{} cannot be written: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REG-21
    #[test]
    fn the_floor_is_that_of_its_environment_and_a_damaged_one_is_told_of() {
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
