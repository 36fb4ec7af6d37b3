//! `snavio audit verify`: reads the changelog and its seals from a node or from the store, and verifies them
//! here. The node takes no part in the verification.

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

use crate::CommandResult;
use crate::cmd::Failure;
use crate::cmd::configuration::StoreArguments;
use crate::connection::OperatorConnection;
use crate::output::Output;

/// Verify that nobody removed, altered or rewrote a change in the changelog of the registry.
///
/// The command reads from a running node. With --data, --store or --config it reads the store itself, with or
/// without running nodes. It prints the head of the seal chain: keep it, and pass it with --head the next
/// time. If the verification fails, the command names the first fault and exits with 1.
#[derive(Args)]
#[command(after_help = "Example: snavio audit verify
Example: snavio audit verify --data /var/lib/snavio
Example: snavio audit verify --public-key $PUBLIC_KEY --head $LAST_HEAD")]
pub(crate) struct Verify {
    #[command(flatten)]
    node: OperatorConnection,
    #[command(flatten)]
    store: StoreArguments,
    /// The head from an earlier verification.
    ///
    /// A chain that does not contain this head was cut off or rewritten since then.
    #[arg(long)]
    head: Option<Digest>,
    /// The public key from an earlier verification, to verify the seals with.
    ///
    /// Give the option several times if the platform key was replaced. Without it the command trusts the key
    /// that the node returns, or uses the platform key of the configuration.
    #[arg(long)]
    public_key: Vec<PublicKey>,
}

impl Verify {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let mut source = self.source().await?;
        let (version, own_key, skips) = source.facts().await?;
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
        match verify_all(&source, verifier, version).await? {
            Ok(verified) => {
                print_verified(&verified, &keys, self.public_key.is_empty(), output);
                Ok(())
            }
            Err(fault) => {
                if output == Output::Json {
                    let detail = fault.to_string();
                    output.print_object(
                        &json!({ "result": "broken", "fault": fault.code(), "detail": detail }),
                    );
                }
                Err(Failure::new(format!("the changelog is not whole: {fault}")))
            }
        }
    }

    async fn source(&self) -> Result<ChangelogSource, Failure> {
        if !self.store.is_named() {
            return Ok(ChangelogSource::Node(self.node.api()?));
        }
        let config = self.store.config()?;
        let own = config.platform_keys.first();
        let own = own.filter(|key| self.public_key.is_empty() && key.is_there());
        let key = own.map(changelog_public_key).transpose()?;
        Ok(match config.store {
            StoreConfig::Embedded { .. } => {
                ChangelogSource::Folder(sqlite::Changelog::open(&config.data_folder)?, key)
            }
            StoreConfig::Postgres { url, ca_file, .. } => {
                let options = postgres::Options { ca_file, ..postgres::Options::new(url) };
                ChangelogSource::Database(postgres::Changelog::open(&options).await?, key)
            }
        })
    }
}

/// Verifies all seals and all changes.
async fn verify_all(
    source: &ChangelogSource,
    mut verifier: Verifier,
    version: i64,
) -> Result<Result<Verified, Fault>, Failure> {
    let (mut after, mut changes) = (0, ChangeReader::default());
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

/// Reads all changes in their order, page by page.
#[derive(Default)]
struct ChangeReader {
    last: i64,
    page: VecDeque<Evidence>,
}

impl ChangeReader {
    async fn next(&mut self, source: &ChangelogSource) -> Result<Option<Evidence>, Failure> {
        if self.page.is_empty() {
            self.page.extend(source.changes(self.last).await?);
        }
        let next = self.page.pop_front();
        self.last = next.as_ref().map_or(self.last, |change| change.version);
        Ok(next)
    }
}

fn print_verified(verified: &Verified, keys: &[PublicKey], is_key_unproved: bool, output: Output) {
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
        let skipped = verified.skipped.iter();
        let skipped = skipped.map(|range| format!("versions {} to {}", range.first, range.last));
        document["skipped"] = match verified.skipped.is_empty() {
            true => "none".into(),
            false => format!("{}: the store was restored", skipped.collect::<Vec<_>>().join(", ")).into(),
        };
        if is_key_unproved {
            let note = "the public key comes from the store itself, so it proves little; keep it, and pass it with \
                        --public-key the next time";
            document["note"] = note.into();
        }
    }
    output.print_object(&document);
}

/// The source of the changelog and the seals.
enum ChangelogSource {
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

impl ChangelogSource {
    /// The registry version, which the changelog must reach; the public key that the source itself returns;
    /// and the versions that restores skipped.
    async fn facts(&mut self) -> Result<(i64, Option<PublicKey>, Vec<Skipped>), Failure> {
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
        const LIMIT: usize = bounds::SEALS_PAGE_MAX;
        match self {
            Self::Node(api) => {
                let path = format!("/v1/registry/seals?after={after}&limit={LIMIT}");
                Ok(get::<Seals>(api, &path).await?.items)
            }
            Self::Folder(changelog, _) => Ok(changelog.seals(after, LIMIT)?),
            Self::Database(changelog, _) => Ok(changelog.seals(after, LIMIT).await?),
        }
    }

    async fn changes(&self, since: i64) -> Result<Vec<Evidence>, Failure> {
        const LIMIT: usize = bounds::PAGE_MAX;
        let logged = match self {
            Self::Node(api) => {
                let path = format!("/v1/registry/evidence?since={since}&limit={LIMIT}");
                return Ok(get::<ChangesPage>(api, &path).await?.items);
            }
            Self::Folder(changelog, _) => changelog.logged_since(since, LIMIT)?,
            Self::Database(changelog, _) => changelog.logged_since(since, LIMIT).await?,
        };
        Ok(logged.iter().map(LoggedChange::evidence).collect())
    }
}

async fn get<T: for<'de> Deserialize<'de>>(api: &Api, path: &str) -> Result<T, Failure> {
    let document = api.call(Method::GET, path, None).await?;
    serde_json::from_value(document).map_err(|error| {
        Failure::caused_by(
            format!("cannot read the node's response to {path}; use a snavio of the node's version"),
            &error,
        )
    })
}
