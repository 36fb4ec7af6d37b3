//! `snavio doctor`.

mod database;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use snavio_model::time::{Clock, Timestamp};
use snavio_server::config::{Config, StoreConfig};
use snavio_server::{CLOCK_BEHIND_MAX, KeySource, MachineClock, check_tls};
use snavio_store::engine::{postgres, sqlite};
use snavio_store::files;

use super::Failure;
use super::configuration::StoreArguments;
use crate::CommandResult;
use crate::output::Output;

/// Check the configuration, store and machine of a node, and say how to fix problems.
///
/// The checks cover the configuration, the store, the clock, the disk, keys, TLS and ports.
/// The command reads the configuration and the store directly and changes nothing.
#[derive(Args)]
#[command(after_help = "Example: snavio doctor
Example: snavio doctor --data /var/lib/snavio
Example: snavio doctor --config /etc/snavio/snavio.toml")]
pub(crate) struct Doctor {
    #[command(flatten)]
    store: StoreArguments,
}

/// The result of one check.
struct Finding {
    check: &'static str,
    /// More about a check without a problem; may be empty.
    detail: String,
    problem: Option<String>,
    fix: &'static str,
}

impl Finding {
    /// A check that passed, unless there is a problem.
    fn new(check: &'static str, problem: Option<String>, fix: &'static str) -> Self {
        Self { check, detail: String::new(), problem, fix }
    }

    /// A check that passed, with more about it.
    fn passed(check: &'static str, detail: String) -> Self {
        Self { detail, ..Self::new(check, None, "") }
    }

    fn result(&self) -> String {
        match &self.problem {
            Some(problem) => problem.clone(),
            None if self.detail.is_empty() => "ok".to_owned(),
            None => format!("ok: {}", self.detail),
        }
    }
}

impl Doctor {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let config = match self.store.config() {
            Ok(config) => config,
            Err(failure) => {
                let item = json!({
                    "check": "configuration", "result": failure.to_string(), "mend": "fix the settings named",
                });
                output.print_rows(&json!([item]), std::slice::from_ref(&item), &["check", "result", "mend"]);
                return Err(Failure::new(
                    "the configuration is invalid: fix the settings named above, then run snavio doctor again",
                ));
            }
        };
        let mut findings = match &config.store {
            StoreConfig::Embedded { .. } => {
                vec![check_store(&config), check_clock(&config), check_disk(&config), check_privacy(&config)]
            }
            StoreConfig::Postgres { url, ca_file, .. } => {
                let database =
                    postgres::Options { ca_file: ca_file.clone(), ..postgres::Options::new(url.clone()) };
                database::findings(&config, &database).await
            }
        };
        findings.extend([
            check_secrets(&config),
            check_tls_files(&config),
            check_port(&config),
            check_admin_port(&config),
            check_open_files(),
        ]);
        let items: Vec<Value> = findings
            .iter()
            .map(|finding| {
                let fix = if finding.problem.is_some() { finding.fix } else { "" };
                json!({ "check": finding.check, "result": finding.result(), "mend": fix })
            })
            .collect();
        output.print_rows(&Value::Array(items.clone()), &items, &["check", "result", "mend"]);
        match findings.iter().filter(|finding| finding.problem.is_some()).count() {
            0 => Ok(()),
            count => Err(Failure::new(format!("{count} of {} checks found a problem", findings.len()))),
        }
    }
}

fn check_store(config: &Config) -> Finding {
    let problem = if has_store(config) {
        let checked = sqlite::check_not_moved(&config.data_folder).map_err(Failure::from);
        match checked.and_then(|()| Ok(sqlite::check_integrity(&config.data_folder)?)) {
            Ok(damage) => (!damage.is_empty()).then(|| damage.join("; ")),
            Err(failure) => Some(failure.to_string()),
        }
    } else {
        sqlite::check_remains(&config.data_folder).err().map(|error| Failure::from(error).to_string())
    };
    Finding::new(
        "store",
        problem,
        "follow the result; if the store is damaged, restore the last backup into another folder (snavio restore)",
    )
}

/// Compares the time of the newest record with the wall clock, as a starting node does.
fn check_clock(config: &Config) -> Finding {
    let newest = match has_store(config).then(|| sqlite::newest_at(&config.data_folder)).transpose() {
        Ok(newest) => newest.flatten(),
        Err(error) => {
            let problem = Some(format!(
                "cannot ask the store for the time of its last commit: {}",
                Failure::from(error)
            ));
            return Finding::new("clock", problem, "mend the store first, then run snavio doctor again");
        }
    };
    let ahead = newest.unwrap_or(Timestamp(0)).since(MachineClock::after(Timestamp(0)).now());
    let problem = (ahead > CLOCK_BEHIND_MAX)
        .then(|| format!("the store was written {} s ahead of this machine's clock", ahead.as_secs()));
    Finding::new("clock", problem, "set the clock, or start with --accept-clock")
}

fn has_store(config: &Config) -> bool {
    matches!(config.store, StoreConfig::Embedded { .. }) && config.data_folder.join(sqlite::FILE).exists()
}

fn check_disk(config: &Config) -> Finding {
    let existing = config.data_folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    let problem = match files::free_bytes(existing) {
        Ok(free) => {
            let least = config.disk_free_bytes_min;
            (free < least)
                .then(|| format!("{free} bytes are free, {least} must be (store.disk_free_bytes_min)"))
        }
        Err(error) => Some(error.to_string()),
    };
    Finding::new("disk", problem, "free some space, or move the data folder")
}

/// The first of these files or folders that other users than its owner can access.
fn find_open_to_others<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Option<String> {
    paths.into_iter().find_map(|path| {
        let mode = files::open_to_others(path).ok()??;
        Some(format!("{} is open to others (mode {mode:o})", path.display()))
    })
}

/// The store holds every payload. A node makes its files private; files copied from elsewhere may not be.
fn check_privacy(config: &Config) -> Finding {
    let folder = &config.data_folder;
    let files = ["", "-wal", "-shm"].map(|ending| folder.join(format!("{}{ending}", sqlite::FILE)));
    let problem = find_open_to_others(std::iter::once(folder).chain(&files));
    Finding::new("privacy", problem, "chmod 700 on the data folder, chmod 600 on the files in it")
}

fn check_secrets(config: &Config) -> Finding {
    let files = config.platform_keys.iter().filter_map(|key| match key {
        KeySource::File(file) => Some(file),
        KeySource::Setting { .. } => None,
    });
    let open = find_open_to_others(files.chain([&config.operator_token_file]));
    if open.is_some() {
        return Finding::new("secrets", open, "chmod 600 on the file named");
    }
    let wrong = config.platform_keys.iter().filter(|key| key.is_there() || has_store(config));
    let mut wrong = wrong.filter_map(|key| key.fingerprint().err());
    let problem = wrong.next().map(|error| Failure::from(error).to_string());
    Finding::new("secrets", problem, "put back your copy of the platform key")
}

fn check_tls_files(config: &Config) -> Finding {
    let problem = config.server.tls.as_ref().and_then(|tls| check_tls(tls).err());
    let problem = problem.map(|error| Failure::from(error).to_string());
    Finding::new("tls", problem, "fix the file named, or server.tls_cert and server.tls_key")
}

fn check_port(config: &Config) -> Finding {
    let problem = bind_error(config.server.listen);
    Finding::new("port", problem, "stop the process on this port (perhaps a node), or set server.listen")
}

fn check_admin_port(config: &Config) -> Finding {
    let problem = config.admin_listen.and_then(bind_error);
    Finding::new("admin port", problem, "stop the process on this port, or set admin.listen")
}

fn bind_error(address: SocketAddr) -> Option<String> {
    TcpListener::bind(address).err().map(|error| format!("{address}: {error}"))
}

fn check_open_files() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let problem = limit.filter(|limit| *limit < 4096).map(|limit| format!("{limit} open files at most"));
    Finding::new("open files", problem, "raise the limit (ulimit -n 65536)")
}
