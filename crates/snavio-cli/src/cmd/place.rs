//! Which store a command is about that looks at it itself.

use std::path::PathBuf;

use clap::Args;
use snavio_server::config::{Config, Sources};

use super::Failure;
use super::serve::environment;

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
        let file = match &self.config {
            Some(path) => {
                let name = path.display().to_string();
                let content = std::fs::read_to_string(path)
                    .map_err(|error| Failure::of(format!("cannot read {name}"), &error))?;
                Some((name, content))
            }
            None => None,
        };
        let store = self.store.clone().or_else(|| Some(format!("embedded:{}", self.data.as_ref()?)));
        let flags = store.map(|store| ("store.url".to_owned(), store)).into_iter().collect();
        Ok(Config::load(&Sources { file, environment: environment(), flags })?)
    }
}
