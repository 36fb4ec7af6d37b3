//! `snavio keys`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::name::{KeyVersion, ServiceName};
use snavio_sdk::Credentials;
use snavio_store::files;

use super::Failure;
use crate::CommandResult;
use crate::connection::{OperatorConnection, ServiceConnection, read_credentials};
use crate::output::{Output, print_line};

/// List, rotate, revoke and fetch the signing keys of a service.
#[derive(Args)]
#[command(after_help = "Example: snavio keys list acme/billing
Example: snavio keys rotate acme/billing --save credentials/acme/billing.json
Example: snavio keys fetch -c credentials/acme/billing.json")]
pub(crate) struct Keys {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the key versions of a service with their states.
    #[command(after_help = "Example: snavio keys list acme/billing
Example: snavio keys list acme/billing --output json
Example: snavio keys list acme/billing --url https://snavio.example.com")]
    List {
        #[command(flatten)]
        node: OperatorConnection,
        /// The service: tenant/service.
        service: ServiceName,
    },
    /// Make a new key for a service.
    ///
    /// The gateway accepts the previous key until the overlap ends (7 days by default). Older keys end at
    /// once.
    #[command(after_help = "Example: snavio keys rotate acme/billing
Example: snavio keys rotate acme/billing --save credentials/acme/billing.json
Example: snavio keys rotate acme/billing --why 'yearly exercise'")]
    Rotate {
        #[command(flatten)]
        node: OperatorConnection,
        /// The service: tenant/service.
        service: ServiceName,
        /// A note for the changelog: the reason for the change.
        #[arg(long, default_value = "", hide_default_value = true)]
        why: String,
        /// The service's credentials file, to write the new key to; without it the key is shown once.
        #[arg(long)]
        save: Option<PathBuf>,
    },
    /// Revoke a key at once, for example because it leaked.
    ///
    /// The gateway no longer accepts the key. A new key replaces it if it is the current one.
    #[command(after_help = "\
Example: snavio keys revoke acme/billing hmac-v3 --why 'was in a log'
Example: snavio keys revoke acme/billing hmac-v3 --why 'was in a log' --save keys/billing.json
Example: snavio keys revoke acme/billing hmac-v3 --why 'the service is retired' --no-replacement")]
    Revoke {
        #[command(flatten)]
        node: OperatorConnection,
        /// The service: tenant/service.
        service: ServiceName,
        /// The version of the key, for example hmac-v3.
        #[arg(value_name = "VERSION")]
        key: KeyVersion,
        /// A note for the changelog: the reason for the change.
        #[arg(long)]
        why: String,
        /// Make no new key: the service may then have no key at all.
        #[arg(long, conflicts_with = "save")]
        no_replacement: bool,
        /// The service's credentials file, to write the new key to; without it the key is shown once.
        #[arg(long)]
        save: Option<PathBuf>,
    },
    /// Fetch the current key of a service and write it to the service's credentials file.
    ///
    /// The service itself fetches its key: run the command every 12 hours. It works while the gateway accepts
    /// the key in the file, and only over TLS or on the machine of the node.
    #[command(after_help = "Example: snavio keys fetch -c credentials/acme/billing.json
Example: snavio keys fetch -c billing.json --url https://snavio.example.com
Example: snavio keys fetch -c billing.json --output json")]
    Fetch {
        #[command(flatten)]
        service: ServiceConnection,
    },
}

impl Keys {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        match self.command {
            Command::List { node, service } => {
                let keys = node.api()?.call(Method::GET, &keys_path(&service, ""), None).await?;
                let items = keys["keys"].as_array().cloned().unwrap_or_default();
                output.print_rows(&keys, &items, &["version", "state", "created_at", "ends_at"]);
                Ok(())
            }
            Command::Rotate { node, service, why, save } => {
                let api = node.api()?;
                let before = save.as_deref().map(|file| own_credentials(file, &service)).transpose()?;
                let path = keys_path(&service, "/rotate");
                let key = api.call(Method::POST, &path, Some(&json!({ "why": why }))).await?;
                save_or_print_key(output, key, save.as_deref().zip(before))
            }
            Command::Revoke { node, service, key, why, no_replacement, save } => {
                let api = node.api()?;
                let before = save.as_deref().map(|file| own_credentials(file, &service)).transpose()?;
                let body = json!({ "why": why, "replace": !no_replacement });
                let path = keys_path(&service, &format!("/{key}/revoke"));
                let mut revoked = api.call(Method::POST, &path, Some(&body)).await?;
                let replacement = revoked["replacement"].take();
                if output == Output::Table {
                    print_line(&format!("revoked: the gateway no longer accepts {key}"));
                }
                match replacement.is_null() {
                    true if output == Output::Json => output.print_object(&revoked),
                    true => {}
                    false => return save_or_print_key(output, replacement, save.as_deref().zip(before)),
                }
                Ok(())
            }
            Command::Fetch { service } => fetch(&service, output).await,
        }
    }
}

fn keys_path(service: &ServiceName, action: &str) -> String {
    format!("/v1/tenants/{}/services/{}/keys{action}", service.tenant(), service.service())
}

/// Reads the credentials file of a service. The caller does this before it makes a key, so that it makes no
/// key that it could not save.
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

/// Writes a new key to the credentials file, or prints it if there is no file to write to.
fn save_or_print_key(output: Output, key: Value, save: Option<(&Path, Credentials)>) -> CommandResult {
    let Some((file, before)) = save else {
        output.print_object(&key);
        return Ok(());
    };
    let version = key["hmac_version"].as_str().and_then(|version| version.parse().ok());
    let (Some(version), Some(secret)) = (version, key["hmac_secret"].as_str()) else {
        return Err(Failure::new(format!(
            "the node's response contains no key; the response is shown here, only this once: {key}"
        )));
    };
    let saved = save_credentials(file, &before.with_key(version, secret.to_owned()));
    saved.map_err(|failure| failure.with_advice(&format!("the key is shown here, only this once: {key}")))?;
    output.print_object(
        &json!({ "source": key["source"], "hmac_version": key["hmac_version"], "saved": file }),
    );
    Ok(())
}

fn save_credentials(file: &Path, credentials: &Credentials) -> Result<(), Failure> {
    let text = serde_json::to_string(credentials)?;
    files::write_whole(file, format!("{text}\n").as_bytes())
        .map_err(|error| Failure::caused_by(format!("cannot write {}", file.display()), &error))
}

async fn fetch(service: &ServiceConnection, output: Output) -> CommandResult {
    let file = service.file()?;
    let client = service.client()?;
    let before = client.credentials();
    let fetched = client.fetch_key().await.map_err(|error| {
        let has_key_ended = error.is_of_the_key();
        let failure = Failure::from(error);
        if has_key_ended { failure.with_advice(&ended_key_advice(&before.source, file)) } else { failure }
    })?;
    let after = client.credentials();
    if fetched {
        save_credentials(file, &after)?;
    }
    output.print_object(
        &json!({ "source": after.source, "hmac_version": after.hmac_version, "changed": fetched }),
    );
    Ok(())
}

/// The remedy for a key that the gateway no longer accepts.
pub(crate) fn ended_key_advice(service: &ServiceName, file: &Path) -> String {
    format!(
        "the key in {0} has ended, and only an operator can make a new one: snavio keys rotate {service} --save {0}; \
         to prevent this, run every 12 hours: snavio keys fetch -c {0}",
        file.display()
    )
}
