//! `snavio audit verify`: this program does the verifying; a node, or a store without one, gives what is verified.

use std::collections::VecDeque;

use clap::Args;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_model::registry::{
    Digest, Evidence, Fault, LoggedChange, PublicKey, Seal, Skipped, Verified, Verifier,
};
use snavio_sdk::Api;
use snavio_server::changelog_public_key;
use snavio_server::config::StoreConfig;
use snavio_store::engine::{postgres, sqlite};

use crate::Ended;
use crate::cmd::Failure;
use crate::cmd::configuration::StorePlace;
use crate::connection::AsOperator;
use crate::output::Output;

/// Verify that no entry of the registry's changelog was removed, altered or rewritten.
///
/// Asks a running node, or with --data, --store or --config reads the store itself, beside its nodes or without any.
/// Prints the head of the chain: note it, and give it with --head the next time. Exits with 1 and names what is
/// wrong first, if anything is.
///
/// Example: snavio audit verify --public-key 5f0c… --head 9a41…
#[derive(Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    node: AsOperator,
    #[command(flatten)]
    place: StorePlace,
    /// A head that was noted before: a chain without it was cut off or rewritten since.
    #[arg(long)]
    head: Option<Digest>,
    /// The key that seals are verified with, as it was noted before; several, if the platform key was changed.
    /// Without it the node's own word is taken, or the platform key that the configuration names.
    #[arg(long)]
    public_key: Vec<PublicKey>,
}

impl Verify {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let mut source = self.source().await?;
        let (version, own_key, skips) = source.about().await?;
        let keys = match (self.public_key.is_empty(), own_key) {
            (false, _) => self.public_key.clone(),
            (true, Some(key)) => vec![key],
            (true, None) => {
                return Err(Failure::misuse(
                    "there is no platform key to verify with; name the public key with --public-key",
                ));
            }
        };
        let verifier = Verifier::new(keys.clone(), self.head, skips);
        match walk(&source, verifier, version).await? {
            Ok(verified) => {
                tell(&verified, &keys, self.public_key.is_empty(), output);
                Ok(())
            }
            Err(fault) => {
                if output == Output::Json {
                    let detail = fault.to_string();
                    output.object(&json!({ "result": "broken", "fault": fault.code(), "detail": detail }));
                }
                Err(Failure::new(format!("the changelog is not whole: {fault}")))
            }
        }
    }

    async fn source(&self) -> Result<Source, Failure> {
        if !self.place.is_named() {
            return Ok(Source::Node(self.node.api()?));
        }
        let config = self.place.config()?;
        let own = config.platform_keys.first().filter(|it| self.public_key.is_empty() && it.is_there());
        let key = own.map(changelog_public_key).transpose()?;
        Ok(match config.store {
            StoreConfig::Embedded { .. } => {
                Source::Folder(sqlite::Changelog::open(&config.data_folder)?, key)
            }
            StoreConfig::Postgres { url, ca_file, .. } => {
                let options = postgres::Options { ca_file, ..postgres::Options::new(url) };
                Source::Database(postgres::Changelog::open(&options).await?, key)
            }
        })
    }
}

/// Goes through the whole chain and log.
async fn walk(
    source: &Source,
    mut verifier: Verifier,
    version: i64,
) -> Result<Result<Verified, Fault>, Failure> {
    let (mut after, mut changes) = (0, Changes::default());
    loop {
        let seals = source.seals(after).await?;
        let Some(last) = seals.last() else { break };
        after = last.number;
        for seal in &seals {
            if let Err(fault) = verifier.seal(seal) {
                return Ok(Err(fault));
            }
            while verifier.wants_changes()
                && let Some(change) = changes.next(source).await?
            {
                if let Err(fault) = verifier.change(&change) {
                    return Ok(Err(fault));
                }
            }
        }
    }
    while let Some(change) = changes.next(source).await? {
        if let Err(fault) = verifier.change(&change) {
            return Ok(Err(fault));
        }
    }
    Ok(verifier.end(version))
}

/// All changes in their order, by pages that are read ahead.
#[derive(Default)]
struct Changes {
    last: i64,
    ahead: VecDeque<Evidence>,
}

impl Changes {
    async fn next(&mut self, source: &Source) -> Result<Option<Evidence>, Failure> {
        if self.ahead.is_empty() {
            self.ahead.extend(source.changes(self.last).await?);
        }
        let next = self.ahead.pop_front();
        self.last = next.as_ref().map_or(self.last, |change| change.version);
        Ok(next)
    }
}

fn tell(verified: &Verified, keys: &[PublicKey], on_its_word: bool, output: Output) {
    let unsealed = verified.unsealed().map_or(Value::Null, |(first, last)| json!([first, last]));
    let mut document = json!({
        "result": "whole",
        "version": verified.version,
        "sealed_version": verified.sealed_version,
        "unsealed": unsealed,
        "skipped": verified.skipped,
        "seals": verified.seals,
        "head": verified.head,
        "public_key": keys,
    });
    if output == Output::Table {
        document["public_key"] = keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ").into();
        document["unsealed"] = match verified.unsealed() {
            Some((first, last)) => format!("changes {first} to {last} are not sealed yet").into(),
            None => "none".into(),
        };
        let skipped = verified.skipped.iter().map(|it| format!("versions {} to {}", it.first, it.last));
        document["skipped"] = match verified.skipped.is_empty() {
            true => "none".into(),
            false => format!("{}: the store was restored", skipped.collect::<Vec<_>>().join(", ")).into(),
        };
        if on_its_word {
            let note =
                "the key is the store's own word; note it, and hold it against the store with --public-key";
            document["note"] = note.into();
        }
    }
    output.object(&document);
}

/// Who gives what is verified.
enum Source {
    Node(Api),
    Folder(sqlite::Changelog, Option<PublicKey>),
    Database(postgres::Changelog, Option<PublicKey>),
}

#[derive(Deserialize)]
struct Seals {
    items: Vec<Seal>,
    version: i64,
    skipped: Vec<Skipped>,
    public_key: PublicKey,
}

#[derive(Deserialize)]
struct ChangesPage {
    items: Vec<Evidence>,
}

impl Source {
    /// The registry's version, which the changelog must reach, the key by the source's own word, and what restores
    /// skipped.
    async fn about(&mut self) -> Result<(i64, Option<PublicKey>, Vec<Skipped>), Failure> {
        match self {
            Self::Node(api) => {
                let page: Seals = get(api, "/v1/registry/seals?limit=1").await?;
                Ok((page.version, Some(page.public_key), page.skipped))
            }
            Self::Folder(changelog, key) => Ok((changelog.version()?, *key, changelog.skipped()?)),
            Self::Database(changelog, key) => {
                Ok((changelog.version().await?, *key, changelog.skipped().await?))
            }
        }
    }

    async fn seals(&self, after: i64) -> Result<Vec<Seal>, Failure> {
        const MOST: usize = bounds::SEALS_PAGE_MAX;
        match self {
            Self::Node(api) => {
                let page: Seals = get(api, &format!("/v1/registry/seals?after={after}&limit={MOST}")).await?;
                Ok(page.items)
            }
            Self::Folder(changelog, _) => Ok(changelog.seals(after, MOST)?),
            Self::Database(changelog, _) => Ok(changelog.seals(after, MOST).await?),
        }
    }

    async fn changes(&self, since: i64) -> Result<Vec<Evidence>, Failure> {
        const MOST: usize = bounds::PAGE_MAX;
        let logged = match self {
            Self::Node(api) => {
                let path = format!("/v1/registry/evidence?since={since}&limit={MOST}");
                return Ok(get::<ChangesPage>(api, &path).await?.items);
            }
            Self::Folder(changelog, _) => changelog.logged_since(since, MOST)?,
            Self::Database(changelog, _) => changelog.logged_since(since, MOST).await?,
        };
        Ok(logged.iter().map(LoggedChange::evidence).collect())
    }
}

async fn get<T: for<'de> Deserialize<'de>>(api: &Api, path: &str) -> Result<T, Failure> {
    let document = api.call(Method::GET, path, None).await?;
    serde_json::from_value(document)
        .map_err(|error| Failure::of("the node's answer is not of this version", &error))
}
