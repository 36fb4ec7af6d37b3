//! Python with third-party packages: an independent check of formats and signatures.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{program, succeed};

/// The packages that tests use, with pinned versions.
const PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python.txt");
/// The folder of the installed packages, shared by all test runs, in cargo's target folder.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/python");

/// A command that runs Python with the packages of `python.txt`. The first use installs them.
pub fn python() -> Command {
    static INTERPRETER: OnceLock<PathBuf> = OnceLock::new();
    let installed = || install().unwrap_or_else(|error| panic!("no Python with its packages: {error}"));
    Command::new(INTERPRETER.get_or_init(installed))
}

/// Installs the packages if they are not installed. Concurrent test runs wait for each other.
fn install() -> io::Result<PathBuf> {
    let folder = Path::new(FOLDER);
    std::fs::create_dir_all(folder)?;
    let _guard = {
        let lock = File::create(folder.join("lock"))?;
        lock.lock()?;
        lock
    };
    let (venv, packages) = (folder.join("venv"), std::fs::read_to_string(PACKAGES)?);
    let interpreter = venv.join("bin/python");
    // Written last, so that an interrupted installation does not count as complete.
    let note = folder.join("installed.txt");
    if std::fs::read_to_string(&note).is_ok_and(|installed| installed == packages) && interpreter.exists() {
        return Ok(interpreter);
    }
    succeed(Command::new(program("python3")?).args(["-m", "venv", "--clear"]).arg(&venv))?;
    let mut pip = Command::new(&interpreter);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", PACKAGES]);
    succeed(&mut pip)?;
    std::fs::write(note, packages)?;
    Ok(interpreter)
}
