//! `snavio apply`.

use std::path::{Path, PathBuf};

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_store::files;

use super::{Failure, read_text};
use crate::Ended;
use crate::connection::AsOperator;
use crate::output::{Output, print_line};

/// Register what a file says: tenants, services, routes, event types, subscriptions, adapters and grants, in one
/// transaction.
///
/// The same file applied again changes nothing. New services get a client and an HMAC key, whose secrets are
/// shown once: keep them with --credentials-dir. So do routes and subscriptions that push for the first time: what their
/// requests are signed with is written to push/<destination>.json there.
///
/// Example: snavio apply -f registry.toml --credentials-dir ./credentials
#[derive(Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    node: AsOperator,
    /// The registry file, in YAML, TOML or JSON, by its ending.
    #[arg(long, short)]
    file: PathBuf,
    /// Only say what would change.
    #[arg(long)]
    dry_run: bool,
    /// Also remove what the tenants of the file own and the file does not name: services, routes, event types,
    /// subscriptions, adapters and grants.
    #[arg(long)]
    prune: bool,
    /// Why, for the changelog; without it, what the file says.
    #[arg(long)]
    why: Option<String>,
    /// Where to write the credentials of new services, each as <tenant>/<service>.json, readable by you alone.
    #[arg(long)]
    credentials_dir: Option<PathBuf>,
}

impl Apply {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let mut file = read(&self.file)?;
        let members = file.as_object_mut().ok_or_else(|| Failure::new("a registry file is a table"))?;
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
            prepare(folder)?;
        }
        let mut answer = self.node.api()?.call(Method::POST, "/v1/registry/apply", Some(&file)).await?;
        let saved = self.credentials_dir.as_ref().map(|folder| save_all(folder, &mut answer));
        let changes = answer["changes"].as_array().cloned().unwrap_or_default();
        if output == Output::Table && changes.is_empty() {
            print_line(&format!("nothing to change, version {}", answer["version"]));
            output.warnings(&answer);
            return Ok(());
        }
        let shown: Vec<_> = changes.into_iter().map(with_differences).collect();
        output.rows(&answer, &shown, &["step", "kind", "name", "difference"]);
        output.warnings(&answer);
        if output == Output::Table {
            tell_credentials(&answer);
        }
        saved.unwrap_or(Ok(()))
    }
}

/// Says where the credentials of new services are, and those that are nowhere else.
pub(super) fn tell_credentials(answer: &Value) {
    let files = answer["credential_files"].as_array().into_iter().flatten();
    files.filter_map(Value::as_str).for_each(|file| print_line(&format!("credentials: {file}")));
    let unsaved = [&answer["credentials"], &answer["push_secrets"]];
    for one in unsaved.into_iter().filter_map(Value::as_array).flatten() {
        print_line(&one.to_string());
    }
}

/// A change with its members in words: `suspended: true → false`.
pub(super) fn with_differences(mut change: Value) -> Value {
    let members = change["members"].as_object().into_iter().flatten();
    let told = members.map(|(name, it)| format!("{name}: {} → {}", it["before"], it["after"]));
    change["difference"] = told.collect::<Vec<_>>().join(", ").into();
    change
}

/// Reads a registry file.
pub(crate) fn read(path: &Path) -> Result<Value, Failure> {
    let (name, text) = (path.display(), read_text(path)?);
    match path.extension().and_then(|it| it.to_str()) {
        Some("json") => {
            serde_json::from_str(&text).map_err(|error| Failure::of(format!("{name} is not JSON"), &error))
        }
        Some("yaml" | "yml") => {
            serde_saphyr::from_str(&text).map_err(|error| Failure::of(format!("{name} is not YAML"), &error))
        }
        _ => toml::from_str(&text).map_err(|error| Failure::of(format!("{name} is not TOML"), &error)),
    }
}

/// Makes the folder and tries it, before anything is registered: credentials are told only once.
pub(super) fn prepare(folder: &Path) -> Result<(), Failure> {
    let probe = folder.join(format!(".probe-{}", std::process::id()));
    files::write_new(&probe, b"").and_then(|()| std::fs::remove_file(&probe)).map_err(|error| {
        Failure::of(
            format!("cannot keep credentials in {}; nothing was registered", folder.display()),
            &error,
        )
    })
}

/// Moves the answer's credentials to files; those that cannot be written stay in the answer, to be shown.
pub(super) fn save_all(folder: &Path, answer: &mut Value) -> Result<(), Failure> {
    let Value::Array(credentials) = answer["credentials"].take() else { return Ok(()) };
    let (mut files, mut unsaved, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for one in credentials {
        // Names of services are names of files, each in the folder of its tenant.
        let file = folder.join(format!("{}.json", one["source"].as_str().unwrap_or_default()));
        match files::write_new(&file, format!("{one}\n").as_bytes()) {
            Ok(()) => files.push(file),
            Err(error) => {
                problems.push(format!("cannot write {}: {error}", file.display()));
                unsaved.push(one);
            }
        }
    }
    if let Value::Array(secrets) = answer["push_secrets"].take() {
        let mut left = Vec::new();
        for one in secrets {
            // Colons and slashes are in no name: each destination is a path of its own.
            let place = one["destination"].as_str().unwrap_or_default().replace(':', "/");
            let file = folder.join("push").join(format!("{place}.json"));
            match files::write_new(&file, format!("{one}\n").as_bytes()) {
                Ok(()) => files.push(file),
                Err(error) => {
                    problems.push(format!("cannot write {}: {error}", file.display()));
                    left.push(one);
                }
            }
        }
        answer["push_secrets"] = left.into();
    }
    answer["credential_files"] = json!(files);
    answer["credentials"] = unsaved.into();
    if problems.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("{}; the credentials are shown above, once", problems.join("; "))))
}
