//! `snavio keys`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::name::{KeyVersion, ServiceName};
use snavio_sdk::Credentials;
use snavio_store::files;

use super::Failure;
use crate::Ended;
use crate::connection::{AsOperator, AsService, read_credentials};
use crate::output::{Output, print_line};

/// List, rotate and revoke a service's signing keys, and fetch the current one.
///
/// Example: snavio keys list acme/billing
#[derive(Args)]
pub(crate) struct Keys {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the versions of a service's key, and what each is good for.
    ///
    /// Example: snavio keys list acme/billing
    List {
        #[command(flatten)]
        node: AsOperator,
        /// The service: tenant/service.
        service: ServiceName,
    },
    /// Make a new key. The one before it is accepted for the overlap (7 days), older ones end at once.
    ///
    /// Example: snavio keys rotate acme/billing --why "yearly exercise" --save credentials/acme/billing.json
    Rotate {
        #[command(flatten)]
        node: AsOperator,
        /// The service: tenant/service.
        service: ServiceName,
        /// Why, for the changelog.
        #[arg(long, default_value = "")]
        why: String,
        /// The service's credentials file, to put the new key into it; without it the key is shown, once.
        #[arg(long)]
        save: Option<PathBuf>,
    },
    /// Take a key back at once, for example because somebody else has it. The current one is replaced by a new one.
    ///
    /// Example: snavio keys revoke acme/billing hmac-v3 --why "was in a log" --save credentials/acme/billing.json
    Revoke {
        #[command(flatten)]
        node: AsOperator,
        /// The service: tenant/service.
        service: ServiceName,
        /// The version, for example hmac-v3.
        #[arg(value_name = "VERSION")]
        key: KeyVersion,
        /// Why, for the changelog.
        #[arg(long)]
        why: String,
        /// Make no new key in its place: the service may be left without one.
        #[arg(long, conflicts_with = "save")]
        no_replacement: bool,
        /// The service's credentials file, to put the new key into it; without it the key is shown, once.
        #[arg(long)]
        save: Option<PathBuf>,
    },
    /// Fetch the current key as the service itself, and put it into its credentials file.
    ///
    /// Run it every 12 hours: it works for as long as the key in the file is accepted, over TLS or on the same machine.
    ///
    /// Example: snavio keys fetch -c credentials/acme/billing.json
    Fetch {
        #[command(flatten)]
        service: AsService,
    },
}

impl Keys {
    pub(crate) async fn run(self, output: Output) -> Ended {
        match self.command {
            Command::List { node, service } => {
                let keys = node.api()?.call(Method::GET, &path(&service, ""), None).await?;
                let items = keys["keys"].as_array().cloned().unwrap_or_default();
                output.rows(&keys, &items, &["version", "state", "created_at", "ends_at"]);
                Ok(())
            }
            Command::Rotate { node, service, why, save } => {
                let api = node.api()?;
                let before = save.as_deref().map(|file| own_credentials(file, &service)).transpose()?;
                let made =
                    api.call(Method::POST, &path(&service, "/rotate"), Some(&json!({ "why": why }))).await?;
                told(output, made, save.as_deref().zip(before))
            }
            Command::Revoke { node, service, key, why, no_replacement, save } => {
                let api = node.api()?;
                let before = save.as_deref().map(|file| own_credentials(file, &service)).transpose()?;
                let body = json!({ "why": why, "replace": !no_replacement });
                let path = path(&service, &format!("/{key}/revoke"));
                let mut revoked = api.call(Method::POST, &path, Some(&body)).await?;
                let replacement = revoked["replacement"].take();
                if output == Output::Table {
                    print_line(&format!("{key} is not accepted any more"));
                }
                match replacement.is_null() {
                    true if output == Output::Json => output.object(&revoked),
                    true => {}
                    false => return told(output, replacement, save.as_deref().zip(before)),
                }
                Ok(())
            }
            Command::Fetch { service } => fetch(&service, output).await,
        }
    }
}

fn path(service: &ServiceName, what: &str) -> String {
    format!("/v1/tenants/{}/services/{}/keys{what}", service.tenant(), service.service())
}

/// Reads the file before anything is changed: a key that cannot be kept is better not made.
fn own_credentials(file: &Path, service: &ServiceName) -> Result<Credentials, Failure> {
    let credentials = read_credentials(file)?;
    if credentials.source != *service {
        let of = &credentials.source;
        return Err(Failure::misuse(format!(
            "{} holds the credentials of {of}, not of {service}",
            file.display()
        )));
    }
    Ok(credentials)
}

/// Puts a new key into its file, or shows it.
fn told(output: Output, made: Value, save: Option<(&Path, Credentials)>) -> Ended {
    let Some((file, before)) = save else {
        output.object(&made);
        return Ok(());
    };
    let unreadable = || Failure::new(format!("the answer holds no key; it is shown here, once: {made}"));
    let version = made["hmac_version"].as_str().and_then(|it| it.parse().ok()).ok_or_else(unreadable)?;
    let secret = made["hmac_secret"].as_str().ok_or_else(unreadable)?;
    let saved = save_credentials(file, &before.with_key(version, secret.to_owned()));
    saved.map_err(|failure| failure.with_advice(&format!("the key is shown here, once: {made}")))?;
    output.object(&json!({ "source": made["source"], "hmac_version": made["hmac_version"], "saved": file }));
    Ok(())
}

fn save_credentials(file: &Path, credentials: &Credentials) -> Result<(), Failure> {
    let text = serde_json::to_string(credentials)?;
    files::write_whole(file, format!("{text}\n").as_bytes())
        .map_err(|error| Failure::of(format!("cannot write {}", file.display()), &error))
}

async fn fetch(service: &AsService, output: Output) -> Ended {
    let file = service.file()?;
    let client = service.client()?;
    let before = client.credentials();
    let fetched = client.fetch_key().await.map_err(|error| {
        let ended = error.is_of_the_key();
        let failure = Failure::from(error);
        if ended { failure.with_advice(&ask_operator(&before.source, file)) } else { failure }
    })?;
    let after = client.credentials();
    if fetched {
        save_credentials(file, &after)?;
    }
    output.object(&json!({ "source": after.source, "hmac_version": after.hmac_version, "changed": fetched }));
    Ok(())
}

/// What helps whose key is not accepted any more.
pub(crate) fn ask_operator(service: &ServiceName, file: &Path) -> String {
    format!(
        "the key in {0} has ended, and only an operator can give a new one: snavio keys rotate {service} --save {0}; to keep up by itself, run every 12 hours: snavio keys fetch -c {0}",
        file.display()
    )
}
