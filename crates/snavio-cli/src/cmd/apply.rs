//! `snavio apply`.

use std::path::{Path, PathBuf};

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_store::files;

use super::{Failure, read_text};
use crate::CommandResult;
use crate::connection::OperatorConnection;
use crate::output::{Output, print_line};

/// Register the entries of a file in one transaction.
///
/// The file can name tenants, services, routes, event types, subscriptions, adapters and grants. Applying the
/// same file again changes nothing.
///
/// A new service gets a client and an HMAC key, and a route or subscription that pushes for the first time
/// gets a push secret. The secrets are shown once. With --credentials-dir the command writes them to files
/// instead.
#[derive(Args)]
#[command(after_help = "Example: snavio apply -f registry.toml --dry-run
Example: snavio apply -f registry.toml --credentials-dir ./credentials
Example: snavio apply -f registry.yaml --prune --why 'the bot is retired'")]
pub(crate) struct Apply {
    #[command(flatten)]
    node: OperatorConnection,
    /// The registry file: YAML, TOML or JSON, by its file name extension.
    #[arg(long, short)]
    file: PathBuf,
    /// Print the changes without making them.
    #[arg(long)]
    dry_run: bool,
    /// Also remove entries that the tenants of the file own and the file does not name.
    ///
    /// This concerns services, routes, event types, subscriptions, adapters and grants.
    #[arg(long)]
    prune: bool,
    /// A note for the changelog: the reason for the change; without it, the note in the file.
    #[arg(long)]
    why: Option<String>,
    /// The folder for the credentials of new services, readable by you only.
    ///
    /// The credentials of a service are in <tenant>/<service>.json, the push secret of a route or
    /// subscription in push/<destination>.json.
    #[arg(long)]
    credentials_dir: Option<PathBuf>,
}

impl Apply {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let mut file = read(&self.file)?;
        let members = file.as_object_mut().ok_or_else(|| {
            Failure::new(format!("{} is not a table at its top level", self.file.display()))
        })?;
        if self.dry_run {
            members.insert("dry_run".into(), true.into());
        }
        if self.prune {
            members.insert("prune".into(), true.into());
        }
        if let Some(why) = &self.why {
            members.insert("why".into(), why.clone().into());
        }
        if let Some(folder) = self.credentials_dir.as_ref().filter(|_| !self.dry_run) {
            check_writable(folder)?;
        }
        let mut answer = self.node.api()?.call(Method::POST, "/v1/registry/apply", Some(&file)).await?;
        let saved = self.credentials_dir.as_ref().map(|folder| save_secrets(folder, &mut answer));
        let changes = answer["changes"].as_array().cloned().unwrap_or_default();
        if output == Output::Table && changes.is_empty() {
            print_line(&format!("nothing to change, version {}", answer["version"]));
            output.print_warnings(&answer);
            return Ok(());
        }
        let shown: Vec<_> = changes.into_iter().map(with_difference_text).collect();
        output.print_rows(&answer, &shown, &["step", "kind", "name", "difference"]);
        output.print_warnings(&answer);
        if output == Output::Table {
            print_credentials(&answer);
        }
        saved.unwrap_or(Ok(()))
    }
}

/// Prints the files with new credentials, and the credentials that are in no file.
pub(super) fn print_credentials(answer: &Value) {
    let files = answer["credential_files"].as_array().into_iter().flatten();
    files.filter_map(Value::as_str).for_each(|file| print_line(&format!("credentials: {file}")));
    let unsaved = [&answer["credentials"], &answer["push_secrets"]];
    for secret in unsaved.into_iter().filter_map(Value::as_array).flatten() {
        print_line(&secret.to_string());
    }
}

/// Adds the text of a change's differences: `suspended: true → false`.
pub(super) fn with_difference_text(mut change: Value) -> Value {
    let members = change["members"].as_object().into_iter().flatten();
    let texts = members.map(|(name, values)| format!("{name}: {} → {}", values["before"], values["after"]));
    change["difference"] = texts.collect::<Vec<_>>().join(", ").into();
    change
}

/// Reads a file in YAML, TOML or JSON, by its extension. Without a known extension it is TOML.
pub(crate) fn read(path: &Path) -> Result<Value, Failure> {
    let (name, text) = (path.display(), read_text(path)?);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => serde_json::from_str(&text)
            .map_err(|error| Failure::caused_by(format!("{name} is not JSON"), &error)),
        Some("yaml" | "yml") => serde_saphyr::from_str(&text)
            .map_err(|error| Failure::caused_by(format!("{name} is not YAML"), &error)),
        _ => toml::from_str(&text).map_err(|error| Failure::caused_by(format!("{name} is not TOML"), &error)),
    }
}

/// Makes the folder and writes a probe file into it. A caller does this before it registers anything: the
/// node returns credentials only once.
pub(super) fn check_writable(folder: &Path) -> Result<(), Failure> {
    let probe = folder.join(format!(".probe-{}", std::process::id()));
    files::write_new(&probe, b"").and_then(|()| std::fs::remove_file(&probe)).map_err(|error| {
        Failure::caused_by(
            format!("cannot write credentials to {}; nothing was registered", folder.display()),
            &error,
        )
    })
}

/// Moves the credentials of a response to files. Credentials that cannot be written stay in the response, so
/// that the caller prints them.
pub(super) fn save_secrets(folder: &Path, answer: &mut Value) -> Result<(), Failure> {
    let Value::Array(credentials) = answer["credentials"].take() else { return Ok(()) };
    let (mut files, mut unsaved, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for service_credentials in credentials {
        // The source is `tenant/service`: each tenant gets a folder.
        let source = service_credentials["source"].as_str().unwrap_or_default();
        let file = folder.join(format!("{source}.json"));
        match files::write_new(&file, format!("{service_credentials}\n").as_bytes()) {
            Ok(()) => files.push(file),
            Err(error) => {
                problems.push(format!("cannot write {}: {error}", file.display()));
                unsaved.push(service_credentials);
            }
        }
    }
    if let Value::Array(secrets) = answer["push_secrets"].take() {
        let mut unsaved_secrets = Vec::new();
        for secret in secrets {
            // No name contains a colon or a slash: each destination has its own path.
            let path = secret["destination"].as_str().unwrap_or_default().replace(':', "/");
            let file = folder.join("push").join(format!("{path}.json"));
            match files::write_new(&file, format!("{secret}\n").as_bytes()) {
                Ok(()) => files.push(file),
                Err(error) => {
                    problems.push(format!("cannot write {}: {error}", file.display()));
                    unsaved_secrets.push(secret);
                }
            }
        }
        answer["push_secrets"] = unsaved_secrets.into();
    }
    answer["credential_files"] = json!(files);
    answer["credentials"] = unsaved.into();
    if problems.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{}; the credentials are shown above, only this once: save them now",
        problems.join("; ")
    )))
}
