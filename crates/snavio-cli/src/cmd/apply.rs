//! `snavio apply`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::Failure;
use crate::Ended;
use crate::connection::AsOperator;
use crate::output::Output;

/// Register what a file says: tenants, services, routes and grants, in one transaction.
///
/// The same file applied again changes nothing. New services get a client and an HMAC key, whose secrets are
/// shown once: keep them with --credentials-dir.
///
/// Example: snavio apply -f registry.toml --credentials-dir ./credentials
#[derive(Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    node: AsOperator,
    /// The registry file, in TOML or JSON.
    #[arg(long, short)]
    file: PathBuf,
    /// Only say what would change.
    #[arg(long)]
    dry_run: bool,
    /// Why, for the changelog.
    #[arg(long, default_value = "")]
    why: String,
    /// Where to write the credentials of new services, one file each, readable by you alone.
    #[arg(long)]
    credentials_dir: Option<PathBuf>,
}

impl Apply {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let mut file = read(&self.file)?;
        let members = file.as_object_mut().ok_or_else(|| Failure::new("a registry file is a table"))?;
        members.insert("dry_run".into(), self.dry_run.into());
        members.insert("why".into(), self.why.clone().into());
        let mut answer = self.node.api()?.call(Method::POST, "/v1/registry/apply", Some(&file)).await?;
        if let Some(folder) = &self.credentials_dir {
            let credentials = answer["credentials"].take();
            let saved = credentials.as_array().into_iter().flatten().map(|one| save(folder, one));
            let files = saved.collect::<Result<Vec<_>, _>>()?;
            if output == Output::Table {
                files.iter().for_each(|file| println!("credentials: {}", file.display()));
            }
            answer["credential_files"] = serde_json::json!(files);
        }
        let changes = answer["changes"].as_array().cloned().unwrap_or_default();
        if output == Output::Table && changes.is_empty() {
            println!("nothing to change, version {}", answer["version"]);
            return Ok(());
        }
        output.rows(&answer, &changes, &["step", "kind", "name"]);
        if output == Output::Table {
            for one in answer["credentials"].as_array().into_iter().flatten() {
                println!("{one}");
            }
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Value, Failure> {
    let name = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::of(format!("cannot read {name}"), &error))?;
    if path.extension().is_some_and(|it| it == "json") {
        return serde_json::from_str(&text)
            .map_err(|error| Failure::of(format!("{name} is not JSON"), &error));
    }
    toml::from_str(&text).map_err(|error| Failure::of(format!("{name} is not TOML"), &error))
}

/// Writes one service's credentials to `tenant--service.json`.
fn save(folder: &Path, credentials: &Value) -> Result<PathBuf, Failure> {
    use std::os::unix::fs::OpenOptionsExt;

    std::fs::create_dir_all(folder)?;
    let name = credentials["source"].as_str().unwrap_or_default().replace('/', "--");
    let path = folder.join(format!("{name}.json"));
    let opened = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    let mut file = opened.map_err(|error| Failure::of(format!("cannot write {}", path.display()), &error))?;
    writeln!(file, "{credentials}")?;
    Ok(path)
}
