//! A PostgreSQL server for tests.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{as_user, free_port, program, succeed};

const USER: &str = "postgres";
/// Settings besides the defaults. No setting makes a commit less durable.
const SETTINGS: [&str; 4] =
    ["listen_addresses=127.0.0.1", "max_connections=300", "shared_buffers=256MB", "max_wal_size=4GB"];
/// Waits until the process that started it has ended, then stops the server and removes its folder. It
/// ignores signals to the whole terminal, because its work begins after them.
const KEEPER: &str = r#"
    trap '' HUP INT TERM
    cat > /dev/null
    pid=$(head -n 1 "$0/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid"
    while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    rm -rf "$0"
"#;

/// A server with its data in a temporary folder.
pub struct Postgres {
    folder: PathBuf,
    port: u16,
    settings: Vec<String>,
    databases: AtomicUsize,
    keeper: Child,
    alive: Option<ChildStdin>,
}

impl Postgres {
    /// Starts a server with additional settings, as `name=value`. They replace the usual settings of the same
    /// name.
    pub fn start(settings: &[&str]) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("snavio-postgres-").tempdir()?.keep();
        let mut keeper =
            Command::new("sh").arg("-c").arg(KEEPER).arg(&folder).stdin(Stdio::piped()).spawn()?;
        let alive = keeper.stdin.take();
        let settings = merge_settings(settings);
        let server =
            Self { folder, port: free_port()?, settings, databases: AtomicUsize::new(0), keeper, alive };
        if rustix::process::geteuid().is_root() {
            succeed(Command::new("chown").arg(format!("{USER}:")).arg(&server.folder))?;
        }
        let mut initdb = as_user(USER, program("initdb")?);
        initdb.arg("-D").arg(server.data()).args(["-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8"]);
        succeed(initdb.current_dir(&server.folder))?;
        server.resume()?;
        Ok(server)
    }

    /// One server for all tests of a process.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&[]).unwrap_or_else(|error| panic!("no PostgreSQL: {error}")))
    }

    /// Creates a new, empty database and returns its URL.
    pub fn database(&self) -> io::Result<String> {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.ask("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(self.url(&name))
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// The server's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The settings of the server besides the defaults.
    pub fn settings(&self) -> &[String] {
        &self.settings
    }

    /// The id of the server's first process, the parent of all others; `None` while the server is stopped.
    pub fn pid(&self) -> Option<u32> {
        std::fs::read_to_string(self.data().join("postmaster.pid")).ok()?.lines().next()?.parse().ok()
    }

    /// Runs statements in a database, named by name or URL, and returns their output, one row a line.
    pub fn ask(&self, database: &str, statements: &str) -> io::Result<String> {
        let url = if database.contains("://") { database.to_owned() } else { self.url(database) };
        let mut psql = Command::new(program("psql")?);
        psql.args(["--no-psqlrc", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statements, &url]);
        Ok(succeed(&mut psql)?.trim_end().to_owned())
    }

    /// Writes a dump of a database to a file. The database may be in use.
    pub fn dump(&self, database: &str, file: &Path) -> io::Result<()> {
        succeed(Command::new(program("pg_dump")?).arg("--file").arg(file).arg(database)).map(|_| ())
    }

    /// Creates a new database from a dump and returns its URL.
    pub fn load(&self, file: &Path) -> io::Result<String> {
        let url = self.database()?;
        let mut psql = Command::new(program("psql")?);
        psql.args(["--no-psqlrc", "-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(file).arg(&url);
        succeed(&mut psql).map(|_| url)
    }

    /// Stops the server as an operator would: it closes connections and keeps all commits.
    pub fn stop(&self) -> io::Result<()> {
        let mut stop = as_user(USER, program("pg_ctl")?);
        stop.arg("-D").arg(self.data()).args(["-m", "fast", "-w", "stop"]);
        succeed(stop.current_dir(&self.folder)).map(|_| ())
    }

    /// Starts the server again after [`Postgres::stop`].
    pub fn resume(&self) -> io::Result<()> {
        let mut start = as_user(USER, program("pg_ctl")?);
        let settings: Vec<_> = self.settings.iter().map(|setting| format!("-c {setting}")).collect();
        let options = format!(
            "-p {} -c unix_socket_directories={} {}",
            self.port,
            self.folder.display(),
            settings.join(" ")
        );
        start.arg("-D").arg(self.data()).arg("-l").arg(self.log()).args(["-w", "-o", &options, "start"]);
        // The server keeps inherited descriptors open. It must not hold the pipes of a process that reads
        // this command's output.
        let status = start
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if status.success() {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        Err(io::Error::other(format!("PostgreSQL did not start ({status}): {log}")))
    }

    /// The file with the server's log.
    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn data(&self) -> PathBuf {
        Path::new(&self.folder).join("data")
    }
}

/// The usual settings, with the given ones in place of those with the same name.
fn merge_settings(others: &[&str]) -> Vec<String> {
    fn name(setting: &str) -> Option<&str> {
        setting.split('=').next()
    }
    let usual = SETTINGS.iter().filter(|usual| others.iter().all(|other| name(other) != name(usual)));
    usual.chain(others).map(|&setting| setting.to_owned()).collect()
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.alive.take());
        // The keeper removes the folder. Its exit status does not matter here.
        let _ = self.keeper.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_replaces_usual_one_of_same_name() {
        let settings = merge_settings(&["shared_buffers=1GB", "work_mem=8MB"]);
        assert!(settings.iter().any(|setting| setting.starts_with("max_wal_size=")));
        let buffers: Vec<_> =
            settings.iter().filter(|setting| setting.starts_with("shared_buffers=")).collect();
        assert_eq!(buffers, ["shared_buffers=1GB"]);
    }
}
