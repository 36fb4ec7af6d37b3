//! Python with packages that others wrote: a second opinion on formats and signatures, from outside.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{program, succeed};

/// The packages that tests use, each at one version.
const PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python.txt");
/// Where they are installed, once for all test runs: beside what cargo builds.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/python");

/// A command that runs Python with the packages of `python.txt`, which are installed on first use.
pub fn python() -> Command {
    static INTERPRETER: OnceLock<PathBuf> = OnceLock::new();
    let installed = || install().unwrap_or_else(|error| panic!("no Python with its packages: {error}"));
    Command::new(INTERPRETER.get_or_init(installed))
}

/// Installs what is not there yet. Test runs that come at once wait for each other.
fn install() -> io::Result<PathBuf> {
    let folder = Path::new(FOLDER);
    std::fs::create_dir_all(folder)?;
    let _alone = {
        let lock = File::create(folder.join("lock"))?;
        lock.lock()?;
        lock
    };
    let (venv, packages) = (folder.join("venv"), std::fs::read_to_string(PACKAGES)?);
    let interpreter = venv.join("bin/python");
    // Written last: what was installed in part is not taken for whole.
    let note = folder.join("installed.txt");
    if std::fs::read_to_string(&note).is_ok_and(|it| it == packages) && interpreter.exists() {
        return Ok(interpreter);
    }
    succeed(Command::new(program("python3")?).args(["-m", "venv", "--clear"]).arg(&venv))?;
    let mut pip = Command::new(&interpreter);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", PACKAGES]);
    succeed(&mut pip)?;
    std::fs::write(note, packages)?;
    Ok(interpreter)
}
