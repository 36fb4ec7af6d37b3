//! The connection of a command to a node: its address, and the credentials to use.

use std::path::{Path, PathBuf};

use clap::Args;
use snavio_sdk::{Api, Client, Credentials};

use crate::cmd::Failure;

// Every option here has its heading, so that each command's own options come first in its help.

/// The address of the node.
#[derive(Args, Debug, Clone)]
pub(crate) struct NodeAddress {
    /// The address of the node, for example 127.0.0.1:8080.
    ///
    /// Without a scheme it is http:// for this machine and https:// for others. A command reaches a node on
    /// this machine without a proxy, even if HTTP_PROXY is set.
    #[arg(
        long,
        global = true,
        help_heading = "Connection",
        env = "SNAVIO_URL",
        default_value = "http://127.0.0.1:8080"
    )]
    url: String,
    /// A PEM file with a root certificate to trust in addition to the system's.
    #[arg(long, global = true, help_heading = "Connection", env = "SNAVIO_CA")]
    ca: Option<PathBuf>,
}

impl NodeAddress {
    pub(crate) fn api(&self) -> Result<Api, Failure> {
        let ca = self.ca.as_deref().map(read_certificate).transpose()?;
        Ok(Api::new(&self.url, ca.as_deref())?)
    }
}

fn read_certificate(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::caused_by(format!("cannot read {}", path.display()), &error))
}

/// A node, and the token of the operator or of a person.
#[derive(Args, Debug, Clone)]
pub(crate) struct OperatorConnection {
    #[command(flatten)]
    node: NodeAddress,
    /// The operator's token or your personal token; without it, the command reads the token file.
    #[arg(long, global = true, help_heading = "Connection", env = "SNAVIO_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The file with the operator's token or your personal token.
    #[arg(long, global = true, help_heading = "Connection", default_value = "./snavio-data/operator.token")]
    token_file: PathBuf,
}

impl OperatorConnection {
    pub(crate) fn api(&self) -> Result<Api, Failure> {
        let token = match &self.token {
            Some(token) => token.clone(),
            None => std::fs::read_to_string(&self.token_file).map_err(|error| {
                let file = self.token_file.display();
                Failure::caused_by(
                    format!(
                        "no token: give --token, set SNAVIO_TOKEN, or name the file with --token-file \
                         (tried {file})"
                    ),
                    &error,
                )
            })?,
        };
        Ok(self.node.api()?.with_token(token.trim()))
    }
}

/// A node, and either a token as above or a service's credentials.
#[derive(Args, Debug, Clone)]
pub(crate) struct AnyConnection {
    #[command(flatten)]
    token: OperatorConnection,
    /// The credentials file of a service, to act as that service instead of with a token.
    #[arg(long, short = 'c', global = true, help_heading = "Connection", env = "SNAVIO_CREDENTIALS")]
    credentials: Option<PathBuf>,
}

impl AnyConnection {
    pub(crate) async fn api(&self) -> Result<Api, Failure> {
        let Some(file) = &self.credentials else { return self.token.api() };
        let client = Client::new(self.token.node.api()?, read_credentials(file)?)?;
        Ok(client.authorized().await?)
    }
}

/// A node, and a service's credentials.
#[derive(Args, Debug, Clone)]
pub(crate) struct ServiceConnection {
    #[command(flatten)]
    node: NodeAddress,
    /// The service's credentials file, as written by `snavio apply --credentials-dir`.
    // `file` checks that it is present: clap cannot require a global option.
    #[arg(long, short = 'c', global = true, help_heading = "Connection", env = "SNAVIO_CREDENTIALS")]
    credentials: Option<PathBuf>,
}

impl ServiceConnection {
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        // A command signs with the key in its file and does not follow rotations: a key that it fetched would
        // be lost when the command ends.
        Ok(Client::new(self.node.api()?, read_credentials(self.file()?)?)?.without_following())
    }

    /// The credentials file.
    pub(crate) fn file(&self) -> Result<&Path, Failure> {
        let file = self.credentials.as_deref();
        file.ok_or_else(|| {
            Failure::misuse(
                "no credentials: name the service's credentials file with -c <file> or set SNAVIO_CREDENTIALS",
            )
        })
    }
}

/// A path of the API. It escapes segments and parameters, and leaves empty parameters out.
pub(crate) fn path(segments: &[&str], parameters: &[(&str, &str)]) -> String {
    let mut url = reqwest::Url::parse("http://node").expect("the constant address is valid");
    if let Ok(mut path) = url.path_segments_mut() {
        path.clear().extend(segments);
    }
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    for (name, value) in given {
        url.query_pairs_mut().append_pair(name, value);
    }
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}{query}", url.path())
}

pub(crate) fn read_credentials(path: &Path) -> Result<Credentials, Failure> {
    let file = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::caused_by(format!("cannot read the credentials file {file}"), &error))?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::caused_by(
            format!("{file} is not a credentials file; name one that `snavio apply --credentials-dir` wrote"),
            &error,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INT-1
    #[test]
    fn paths_escape_segments_and_parameters() {
        assert_eq!(path(&["v1", "tokens"], &[("why", "")]), "/v1/tokens");
        assert_eq!(path(&["v1", "a/b?c"], &[("why", "a&b=ä")]), "/v1/a%2Fb%3Fc?why=a%26b%3D%C3%A4");
    }
}
