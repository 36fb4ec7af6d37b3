//! `snavio adapters`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use super::get::fetch_entries;
use super::{Failure, apply, read_text};
use crate::CommandResult;
use crate::connection::{AnyConnection, path};
use crate::output::{Output, print_line};

/// Manage adapters, which turn the webhooks of providers into events.
///
/// An adapter belongs to one service. The provider sends its webhooks to /v1/hooks/<tenant>/<name>, proved by
/// the adapter's secret. Each webhook becomes one event of the service, even if the provider sends it again.
/// There are presets for Telegram, Google Calendar, GitHub and Stripe; a file can describe other providers.
#[derive(Args)]
#[command(after_help = "\
Example: snavio adapters put stripe --service acme/shop --preset stripe --secret-file stripe.secret
Example: snavio adapters list
Example: snavio adapters remove acme/stripe --why 'we pay by invoice now'")]
pub(crate) struct Adapters {
    #[command(flatten)]
    node: AnyConnection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, ValueEnum)]
enum Preset {
    /// The updates of a bot; the secret is the secret_token of setWebhook.
    Telegram,
    /// The notifications of a channel; the secret is the token of watch.
    GoogleCalendar,
    /// The events of a repository, an organisation or an app; the secret is the secret of the webhook.
    Github,
    /// The events of an endpoint; the secret is its signing secret.
    Stripe,
}

#[derive(Subcommand)]
enum Command {
    /// List the adapters.
    #[command(after_help = "Example: snavio adapters list
Example: snavio adapters list --output json
Example: snavio adapters list -c credentials/acme/shop.json")]
    List,
    /// Show an adapter, without its secrets.
    #[command(after_help = "Example: snavio adapters show acme/stripe
Example: snavio adapters show acme/stripe --output json
Example: snavio adapters show acme/bot")]
    Show {
        /// The adapter: tenant/name.
        adapter: String,
    },
    /// Register an adapter, or change one.
    ///
    /// Without --secret-file an adapter keeps its secrets.
    #[command(after_help = "\
Example: snavio adapters put bot --service acme/shop --preset telegram --secret-file bot.secret
Example: snavio adapters put pay --service acme/shop --preset stripe --event-type payment
Example: snavio adapters put crm --service acme/shop -f crm.toml --secret-file crm.secret")]
    Put {
        /// The name of the adapter within the tenant of its service.
        name: String,
        /// The service that publishes the events: tenant/service.
        #[arg(long)]
        service: String,
        /// The ready-made settings for a provider.
        #[arg(long, value_enum, required_unless_present = "file")]
        preset: Option<Preset>,
        /// A file with settings, in YAML, TOML or JSON, by its extension; with --preset only the differences.
        #[arg(long, short)]
        file: Option<PathBuf>,
        /// The type of the events; without it, the type of the preset or the file.
        #[arg(long)]
        event_type: Option<String>,
        /// A file that contains only a secret of the provider.
        ///
        /// Give two files, with the new and the old secret, while the provider changes its secret.
        #[arg(long)]
        secret_file: Vec<PathBuf>,
        /// A note for the changelog: the reason for the change.
        #[arg(long, default_value = "", hide_default_value = true)]
        why: String,
    },
    /// Remove an adapter.
    #[command(after_help = "Example: snavio adapters remove acme/stripe
Example: snavio adapters remove acme/stripe --why 'we pay by invoice now'
Example: snavio adapters remove acme/bot --output json")]
    Remove {
        /// The adapter: tenant/name.
        adapter: String,
        /// A note for the changelog: the reason for the change.
        #[arg(long, default_value = "", hide_default_value = true)]
        why: String,
    },
}

impl Adapters {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let api = self.node.api().await?;
        let (method, path, body) = match &self.command {
            Command::List => {
                let items = fetch_entries(&api, "adapter").await?;
                let columns = ["name", "service", "event_type", "verification"];
                output.print_rows(&Value::Array(items.clone()), &items, &columns);
                return Ok(());
            }
            Command::Show { adapter } => (Method::GET, adapter_path(adapter, "")?, None),
            Command::Remove { adapter, why } => (Method::DELETE, adapter_path(adapter, why)?, None),
            Command::Put { name, service, why, .. } => {
                let tenant = service.split_once('/').map_or("", |(tenant, _)| tenant);
                (Method::PUT, adapter_path(&format!("{tenant}/{name}"), why)?, Some(self.command.body()?))
            }
        };
        let is_put = body.is_some();
        output.print_object(&api.call(method, &path, body.as_ref()).await?);
        if is_put && output == Output::Table {
            let hook = path.replacen("/adapters/", "/hooks/", 1);
            print_line(&format!("its provider sends to: {}", hook.split('?').next().unwrap_or_default()));
        }
        Ok(())
    }
}

impl Command {
    /// The request body of `put`.
    fn body(&self) -> Result<Value, Failure> {
        let Self::Put { service, preset, file, event_type, secret_file, .. } = self else {
            return Ok(Value::Null);
        };
        let mut body = file.as_deref().map_or_else(|| Ok(json!({})), apply::read)?;
        let members = body
            .as_object_mut()
            .ok_or_else(|| Failure::new("the file of an adapter must be a table at its top level"))?;
        members.insert("service".into(), json!(service));
        if let Some(preset) = preset.and_then(|preset| preset.to_possible_value()) {
            members.insert("preset".into(), json!(preset.get_name()));
        }
        if let Some(event_type) = event_type {
            members.insert("event_type".into(), json!(event_type));
        }
        if !secret_file.is_empty() {
            let secrets = secret_file.iter().map(|file| read_secret(file)).collect::<Result<Vec<_>, _>>()?;
            members.insert("secrets".into(), json!(secrets));
        }
        Ok(body)
    }
}

/// The path of an adapter in the API.
fn adapter_path(adapter: &str, why: &str) -> Result<String, Failure> {
    let parts = adapter.split_once('/').filter(|(tenant, name)| !tenant.is_empty() && !name.is_empty());
    let (tenant, name) = parts.ok_or_else(|| {
        Failure::misuse(format!(
            "{adapter:?} is not an adapter's name; use tenant/name, for example acme/stripe"
        ))
    })?;
    Ok(path(&["v1", "adapters", tenant, name], &[("why", why)]))
}

/// Reads a secret from its file, without the line break that editors add at the end.
fn read_secret(file: &Path) -> Result<String, Failure> {
    Ok(read_text(file)?.trim_end_matches(['\r', '\n']).to_owned())
}
