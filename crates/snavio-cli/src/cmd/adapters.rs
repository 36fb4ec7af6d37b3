//! `snavio adapters`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use super::get::entries;
use super::{Failure, apply, read_text};
use crate::Ended;
use crate::connection::{AsAnybody, path};
use crate::output::{Output, print_line};

/// Take webhooks of others as events: Telegram, Google Calendar, GitHub, Stripe, or whatever an adapter describes.
///
/// An adapter speaks for one service. Whoever has its secret sends to /v1/hooks/<tenant>/<name>, and each webhook becomes an
/// event of that service, once, however often it is sent.
///
/// Example: snavio adapters put stripe --service acme/shop --preset stripe --secret-file stripe.secret
#[derive(Args)]
pub(crate) struct Adapters {
    #[command(flatten)]
    node: AsAnybody,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, ValueEnum)]
enum Preset {
    /// Updates of a bot, with the secret_token of setWebhook.
    Telegram,
    /// Notifications of a channel, with the token of watch.
    GoogleCalendar,
    /// Events of a repository, an organisation or an app, with the webhook's secret.
    Github,
    /// Events of an endpoint, with its signing secret.
    Stripe,
}

#[derive(Subcommand)]
enum Command {
    /// List the adapters.
    ///
    /// Example: snavio adapters list
    List,
    /// Show an adapter, without its secrets.
    ///
    /// Example: snavio adapters show acme/stripe
    Show {
        /// tenant/name.
        adapter: String,
    },
    /// Register an adapter, or change it. Secrets that are not given stay as they are.
    ///
    /// Example: snavio adapters put bot --service acme/shop --preset telegram --secret-file bot.secret
    Put {
        /// Its name within the tenant of its service.
        name: String,
        /// The service it speaks for: tenant/service.
        #[arg(long)]
        service: String,
        /// What is known of a provider.
        #[arg(long, value_enum, required_unless_present = "file")]
        preset: Option<Preset>,
        /// All other settings, in YAML, TOML or JSON, by its ending; beside a preset, those that differ from it.
        #[arg(long, short)]
        file: Option<PathBuf>,
        /// The type of its events; that of the preset or the file without it.
        #[arg(long)]
        event_type: Option<String>,
        /// A file with a secret of the provider and nothing else. Give the new one and the old one while the provider
        /// changes over.
        #[arg(long)]
        secret_file: Vec<PathBuf>,
        /// Why, for the changelog.
        #[arg(long, default_value = "")]
        why: String,
    },
    /// Remove an adapter.
    ///
    /// Example: snavio adapters remove acme/stripe --why "we pay by invoice now"
    Remove {
        /// tenant/name.
        adapter: String,
        /// Why, for the changelog.
        #[arg(long, default_value = "")]
        why: String,
    },
}

impl Adapters {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let api = self.node.api().await?;
        let (method, path, body) = match &self.command {
            Command::List => {
                let items = entries(&api, "adapter").await?;
                let columns = ["name", "service", "event_type", "verification"];
                output.rows(&Value::Array(items.clone()), &items, &columns);
                return Ok(());
            }
            Command::Show { adapter } => (Method::GET, of(adapter, "")?, None),
            Command::Remove { adapter, why } => (Method::DELETE, of(adapter, why)?, None),
            Command::Put { name, service, why, .. } => {
                let tenant = service.split_once('/').map_or("", |(tenant, _)| tenant);
                (Method::PUT, of(&format!("{tenant}/{name}"), why)?, Some(self.command.body()?))
            }
        };
        let is_put = body.is_some();
        output.object(&api.call(method, &path, body.as_ref()).await?);
        if is_put && output == Output::Table {
            let hook = path.replacen("/adapters/", "/hooks/", 1);
            print_line(&format!("its provider sends to: {}", hook.split('?').next().unwrap_or_default()));
        }
        Ok(())
    }
}

impl Command {
    /// What is to be put.
    fn body(&self) -> Result<Value, Failure> {
        let Self::Put { service, preset, file, event_type, secret_file, .. } = self else {
            return Ok(Value::Null);
        };
        let mut body = file.as_deref().map_or_else(|| Ok(json!({})), apply::read)?;
        let members = body.as_object_mut().ok_or_else(|| Failure::new("an adapter's file is a table"))?;
        members.insert("service".into(), json!(service));
        if let Some(preset) = preset.and_then(|it| it.to_possible_value()) {
            members.insert("preset".into(), json!(preset.get_name()));
        }
        if let Some(event_type) = event_type {
            members.insert("event_type".into(), json!(event_type));
        }
        if !secret_file.is_empty() {
            let secrets = secret_file.iter().map(|it| secret(it)).collect::<Result<Vec<_>, _>>()?;
            members.insert("secrets".into(), json!(secrets));
        }
        Ok(body)
    }
}

/// Where an adapter is.
fn of(adapter: &str, why: &str) -> Result<String, Failure> {
    let parts = adapter.split_once('/').filter(|(tenant, name)| !tenant.is_empty() && !name.is_empty());
    let (tenant, name) = parts.ok_or_else(|| Failure::misuse("an adapter is named tenant/name"))?;
    Ok(path(&["v1", "adapters", tenant, name], &[("why", why)]))
}

/// A secret from its file, without the line's end that editors add.
fn secret(file: &Path) -> Result<String, Failure> {
    Ok(read_text(file)?.trim_end_matches(['\r', '\n']).to_owned())
}
