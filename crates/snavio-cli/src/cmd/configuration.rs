//! The configuration of a node, for commands that run a node or open its store directly.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use snavio_server::config::{Config, Sources};

use super::{Failure, read_text};

/// The options that name a store, as `snavio serve` has them.
#[derive(Args)]
pub(super) struct StoreArguments {
    /// The configuration file of the node.
    #[arg(long)]
    config: Option<PathBuf>,
    /// The data folder of an embedded store (sets store.url to embedded:<folder>).
    #[arg(long, conflicts_with = "store")]
    data: Option<String>,
    /// The URL of the store (sets store.url), for example postgres://snavio@db.internal/snavio.
    #[arg(long)]
    store: Option<String>,
}

impl StoreArguments {
    /// Whether the caller gave any of these options.
    pub(super) fn is_named(&self) -> bool {
        self.config.is_some() || self.data.is_some() || self.store.is_some()
    }

    /// Loads the configuration of a node over this store.
    pub(super) fn config(&self) -> Result<Config, Failure> {
        let store = self.store.clone().or_else(|| Some(format!("embedded:{}", self.data.as_ref()?)));
        Ok(Config::load(&sources(self.config.as_deref(), [("store.url", store)])?)?)
    }
}

/// The sources of a configuration: a file, if given; the environment; and flags, by the names of the settings
/// they set.
pub(super) fn sources<const N: usize>(
    file: Option<&Path>,
    flags: [(&str, Option<String>); N],
) -> Result<Sources, Failure> {
    let file = match file {
        Some(file) => Some((file.display().to_string(), read_text(file)?)),
        None => None,
    };
    let flags = flags.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    Ok(Sources { file, environment: read_environment(), flags })
}

/// The environment variables that are valid UTF-8. Every setting is; a variable that is not belongs to
/// another program.
fn read_environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
