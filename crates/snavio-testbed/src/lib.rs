//! Real servers for tests and benches, each on a free port with a temporary folder (ENG-8).
//!
//! A node of the gateway ([`Serving`]) is killed when its handle is dropped. A database server ends with the
//! process that started it, even if that process is killed. A keeper process reads from a pipe of which only
//! the starting process has the other end. When the pipe closes, the keeper stops the server and removes its
//! folder.

mod postgres;
mod python;
mod serving;

use std::ffi::OsStr;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

pub use postgres::Postgres;
pub use python::python;
pub use serving::Serving;

/// A port of the loopback interface on which no process listens.
pub fn free_port() -> io::Result<u16> {
    TcpListener::bind("127.0.0.1:0")?.local_addr().map(|address| address.port())
}

/// Finds a program in the search path, or where Debian installs the programs of PostgreSQL.
fn program(name: &str) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<_> = versions.map(|version| version.path()).collect();
    // Take all programs from the newest version, never from two versions.
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    versions.sort_by_key(|path| std::cmp::Reverse(number(path)));
    folders.extend(versions.into_iter().map(|version| version.join("bin")));
    let found = folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file());
    let missing = || {
        let help = format!("{name} is missing; ./test installs it");
        io::Error::new(io::ErrorKind::NotFound, help)
    };
    found.ok_or_else(missing)
}

/// Runs a command to its end and returns its output. If it fails, the error has its standard error output.
fn succeed(command: &mut Command) -> io::Result<String> {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output()?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let name = command.get_program().display().to_string();
    Err(io::Error::other(format!("{name} ended with {status}: {}", String::from_utf8_lossy(&stderr))))
}

/// A command that runs as this user if the current process is root, because PostgreSQL refuses to run as
/// root.
fn as_user(user: &str, program: impl AsRef<OsStr>) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).arg("--clear-groups").arg(program);
    command
}
