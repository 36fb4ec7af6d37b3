//! The changelog and its chain, read beside the nodes of a database or without any; nothing is written.

use snavio_model::registry::{LoggedChange, Seal, Skipped};

use super::client::GenericClient;
use super::pool::{self, Pool, sql};
use super::version::Version;
use super::{OpenError, Options, fleet, layout, registry, seal};
use crate::StoreError;

/// A database's changelog.
pub struct Changelog(Pool);

impl Changelog {
    /// Connects, and leaves everything as it is.
    pub async fn open(options: &Options) -> Result<Self, OpenError> {
        let client = pool::connect(options).await?;
        Version::ask(&client).await?.verdict()?;
        if !layout::is_there(&client).await? {
            return Err(OpenError::Layout("there is no store in the database".to_owned()));
        }
        if layout::version(&client).await? < Some(layout::LAYOUT) {
            let older =
                "the database has an older version's layout; start a node of this version over it first";
            return Err(OpenError::Layout(older.to_owned()));
        }
        if let Some(outdated) = layout::outdated(&client, layout::LAYOUT).await? {
            return Err(OpenError::Layout(outdated));
        }
        let pool = Pool::new(&Options { connections_max: 1, ..options.clone() }, false)?;
        Ok(Self(pool))
    }

    /// The registry's version.
    pub async fn version(&self) -> Result<i64, StoreError> {
        registry::version(&self.client().await?).await
    }

    /// The versions that restores skipped.
    pub async fn skipped(&self) -> Result<Vec<Skipped>, StoreError> {
        let notes = fleet::notes(&self.client().await?, Skipped::NOTES).await?;
        Ok(notes.iter().filter_map(|(name, value)| Skipped::of_note(name, value)).collect())
    }

    /// The seals after a number, oldest first.
    pub async fn seals(&self, after: i64, limit: usize) -> Result<Vec<Seal>, StoreError> {
        seal::page(&self.client().await?, after, limit).await
    }

    /// The changes after a version as they are written, oldest first.
    pub async fn logged_since(&self, version: i64, limit: usize) -> Result<Vec<LoggedChange>, StoreError> {
        registry::logged_since(&self.client().await?, version, limit).await
    }

    async fn client(&self) -> Result<super::Client, StoreError> {
        let client = self.0.get().await?;
        client.batch_execute("SET default_transaction_read_only = on").await.map_err(sql)?;
        Ok(client)
    }
}
