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
use super::configuration::StorePlace;
use crate::Ended;
use crate::output::Output;

/// Check configuration, store, clock, disk, keys, TLS and ports, and say how to mend what is wrong.
///
/// Example: snavio doctor --config snavio.toml
#[derive(Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    place: StorePlace,
}

struct Finding {
    what: &'static str,
    /// What is told where there is no problem.
    said: String,
    problem: Option<String>,
    mend: &'static str,
}

impl Finding {
    /// Something that was checked, and is fine unless there is a problem.
    fn new(what: &'static str, problem: Option<String>, mend: &'static str) -> Self {
        Self { what, said: String::new(), problem, mend }
    }

    /// Something that is fine, with more to say about it.
    fn fine(what: &'static str, said: String) -> Self {
        Self { said, ..Self::new(what, None, "") }
    }

    fn result(&self) -> String {
        match &self.problem {
            Some(problem) => problem.clone(),
            None if self.said.is_empty() => "ok".to_owned(),
            None => format!("ok: {}", self.said),
        }
    }
}

impl Doctor {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let config = match self.place.config() {
            Ok(config) => config,
            Err(failure) => {
                let item = json!({ "check": "configuration", "result": failure.to_string(), "mend": "mend the settings named" });
                output.rows(&json!([item]), std::slice::from_ref(&item), &["check", "result", "mend"]);
                return Err(Failure::new("the configuration must be mended first"));
            }
        };
        let mut findings = match &config.store {
            StoreConfig::Embedded { .. } => {
                vec![store(&config), clock(&config), disk(&config), privacy(&config)]
            }
            StoreConfig::Postgres { url, ca_file, .. } => {
                let database =
                    postgres::Options { ca_file: ca_file.clone(), ..postgres::Options::new(url.clone()) };
                database::findings(&config, &database).await
            }
        };
        findings.extend([secrets(&config), tls(&config), port(&config), admin_port(&config), limit()]);
        let items: Vec<Value> = findings
            .iter()
            .map(|it| {
                let mend = if it.problem.is_some() { it.mend } else { "" };
                json!({ "check": it.what, "result": it.result(), "mend": mend })
            })
            .collect();
        output.rows(&Value::Array(items.clone()), &items, &["check", "result", "mend"]);
        match findings.iter().filter(|it| it.problem.is_some()).count() {
            0 => Ok(()),
            count => Err(Failure::new(format!("{count} of {} checks found a problem", findings.len()))),
        }
    }
}

fn store(config: &Config) -> Finding {
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
        "do what is named; where something is damaged, restore the last backup into another folder (snavio restore)",
    )
}

/// Compares what a node would: the newest record with the wall clock.
fn clock(config: &Config) -> Finding {
    let newest = match has_store(config).then(|| sqlite::newest_at(&config.data_folder)).transpose() {
        Ok(newest) => newest.flatten(),
        Err(error) => {
            let problem = Some(format!("cannot ask the store for its time: {}", Failure::from(error)));
            return Finding::new("clock", problem, "mend the store first, then check again");
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

fn disk(config: &Config) -> Finding {
    let existing = config.data_folder.ancestors().find(|it| it.exists()).unwrap_or(Path::new("."));
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

/// The first of these files or folders that others than their owner may use.
fn open_to_others<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Option<String> {
    paths.into_iter().find_map(|path| {
        let mode = files::open_to_others(path).ok()??;
        Some(format!("{} is open to others (mode {mode:o})", path.display()))
    })
}

/// The store holds every payload. A node makes its files private; those that came from elsewhere may not be.
fn privacy(config: &Config) -> Finding {
    let folder = &config.data_folder;
    let files = ["", "-wal", "-shm"].map(|ending| folder.join(format!("{}{ending}", sqlite::FILE)));
    let problem = open_to_others(std::iter::once(folder).chain(&files));
    Finding::new("privacy", problem, "chmod 700 on the data folder, chmod 600 on the files in it")
}

fn secrets(config: &Config) -> Finding {
    let files = config.platform_keys.iter().filter_map(|key| match key {
        KeySource::File(file) => Some(file),
        KeySource::Setting { .. } => None,
    });
    let open = open_to_others(files.chain([&config.operator_token_file]));
    if open.is_some() {
        return Finding::new("secrets", open, "chmod 600 on the file named");
    }
    let wrong = config.platform_keys.iter().filter(|key| key.is_there() || has_store(config));
    let mut wrong = wrong.filter_map(|key| key.fingerprint().err());
    let problem = wrong.next().map(|error| Failure::from(error).to_string());
    Finding::new("secrets", problem, "put back your copy of the platform key")
}

fn tls(config: &Config) -> Finding {
    let problem = config.server.tls.as_ref().and_then(|tls| check_tls(tls).err());
    let problem = problem.map(|error| Failure::from(error).to_string());
    Finding::new("tls", problem, "mend the file named, or server.tls_cert and server.tls_key")
}

fn port(config: &Config) -> Finding {
    let problem = taken(config.server.listen);
    Finding::new("port", problem, "stop what listens there (perhaps a node), or set server.listen")
}

fn admin_port(config: &Config) -> Finding {
    let problem = config.admin_listen.and_then(taken);
    Finding::new("admin port", problem, "stop what listens there, or set admin.listen")
}

fn taken(address: SocketAddr) -> Option<String> {
    TcpListener::bind(address).err().map(|error| format!("{address}: {error}"))
}

fn limit() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let problem = limit.filter(|limit| *limit < 4096).map(|limit| format!("{limit} open files at most"));
    Finding::new("open files", problem, "raise the limit (ulimit -n 65536)")
}
