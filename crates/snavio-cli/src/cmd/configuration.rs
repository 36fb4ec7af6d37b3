//! What a node is configured by, for commands that are one or look at its store themselves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use snavio_server::config::{Config, Sources};

use super::{Failure, read_text};

/// A store, named as `snavio serve` names it.
#[derive(Args)]
pub(super) struct StorePlace {
    /// The configuration file.
    #[arg(long)]
    config: Option<PathBuf>,
    /// The data folder (store.url = embedded:<folder>).
    #[arg(long, conflicts_with = "store")]
    data: Option<String>,
    /// The engine (store.url), for example postgres://snavio@db.internal/snavio.
    #[arg(long)]
    store: Option<String>,
}

impl StorePlace {
    /// Whether any store is named.
    pub(super) fn is_named(&self) -> bool {
        self.config.is_some() || self.data.is_some() || self.store.is_some()
    }

    /// The configuration of a node over it.
    pub(super) fn config(&self) -> Result<Config, Failure> {
        let store = self.store.clone().or_else(|| Some(format!("embedded:{}", self.data.as_ref()?)));
        Ok(Config::load(&sources(self.config.as_deref(), [("store.url", store)])?)?)
    }
}

/// Where a configuration comes from: its file, if one is named, the environment, and what flags say, by the settings' names.
pub(super) fn sources<const N: usize>(
    file: Option<&Path>,
    flags: [(&str, Option<String>); N],
) -> Result<Sources, Failure> {
    let read = |file: &Path| Ok::<_, Failure>((file.display().to_string(), read_text(file)?));
    let flags = flags.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    Ok(Sources { file: file.map(read).transpose()?, environment: environment(), flags })
}

/// The environment as far as it is text: no setting is anything else.
fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
