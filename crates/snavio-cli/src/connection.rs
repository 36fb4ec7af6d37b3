//! How commands reach a node: its address, and whose credentials they use.

use std::path::{Path, PathBuf};

use clap::Args;
use snavio_sdk::{Api, Client, Credentials};

use crate::cmd::Failure;

/// Where the node is.
#[derive(Args, Debug, Clone)]
pub(crate) struct NodeAddress {
    /// The node's address, for example 127.0.0.1:8080. Without http:// or https:// it is http:// for this machine
    /// and https:// for others. One on this machine is never reached through a proxy, whatever HTTP_PROXY says.
    #[arg(long, global = true, env = "SNAVIO_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// A PEM file with a root certificate to trust besides the usual ones.
    #[arg(long, global = true, env = "SNAVIO_CA")]
    ca: Option<PathBuf>,
}

impl NodeAddress {
    pub(crate) fn api(&self) -> Result<Api, Failure> {
        let read = |path: &PathBuf| {
            std::fs::read(path)
                .map_err(|error| Failure::of(format!("cannot read {}", path.display()), &error))
        };
        let ca = self.ca.as_ref().map(read).transpose()?;
        Ok(Api::new(&self.url, ca.as_deref())?)
    }
}

/// A node, and the token of the operator or of a person.
#[derive(Args, Debug, Clone)]
pub(crate) struct AsOperator {
    #[command(flatten)]
    node: NodeAddress,
    /// The operator's token, or one that an operator issued to you; without it, the token file is read.
    #[arg(long, global = true, env = "SNAVIO_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The file with the operator's token, or yours.
    #[arg(long, global = true, default_value = "./snavio-data/operator.token")]
    token_file: PathBuf,
}

impl AsOperator {
    pub(crate) fn api(&self) -> Result<Api, Failure> {
        let token = match &self.token {
            Some(token) => token.clone(),
            None => std::fs::read_to_string(&self.token_file).map_err(|error| {
                let file = self.token_file.display();
                Failure::of(
                    format!("no token: give --token, set SNAVIO_TOKEN, or name the file with --token-file (tried {file})"),
                    &error,
                )
            })?,
        };
        Ok(self.node.api()?.with_token(token.trim()))
    }
}

/// A node, and either a service's credentials or a token as above.
#[derive(Args, Debug, Clone)]
pub(crate) struct AsAnybody {
    #[command(flatten)]
    token: AsOperator,
    /// The file with a service's credentials, to act as that service instead.
    #[arg(long, short = 'c', global = true, env = "SNAVIO_CREDENTIALS")]
    credentials: Option<PathBuf>,
}

impl AsAnybody {
    pub(crate) async fn api(&self) -> Result<Api, Failure> {
        let Some(file) = &self.credentials else { return self.token.api() };
        let client = Client::new(self.token.node.api()?, read_credentials(file)?)?;
        Ok(client.authorized().await?)
    }
}

/// A node, and a service's credentials.
#[derive(Args, Debug, Clone)]
pub(crate) struct AsService {
    #[command(flatten)]
    node: NodeAddress,
    /// The file with the service's credentials, as `snavio apply --credentials-dir` wrote it.
    // Not required, because what may also stand behind a command of a command cannot be.
    #[arg(long, short = 'c', global = true, env = "SNAVIO_CREDENTIALS")]
    credentials: Option<PathBuf>,
}

impl AsService {
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        // A command goes by its file: what it would learn would be forgotten with its end.
        Ok(Client::new(self.node.api()?, read_credentials(self.file()?)?)?.without_following())
    }

    /// The file with the credentials.
    pub(crate) fn file(&self) -> Result<&Path, Failure> {
        let missing = || Failure::misuse("name the service's credentials: -c <file>, or SNAVIO_CREDENTIALS");
        self.credentials.as_deref().ok_or_else(missing)
    }
}

/// A path of the API, whatever its parts and parameters hold; a parameter that is empty is left out.
pub(crate) fn path(segments: &[&str], parameters: &[(&str, &str)]) -> String {
    let mut url = reqwest::Url::parse("http://node").expect("an address of our own");
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

/// Reads a credentials file.
pub(crate) fn read_credentials(path: &Path) -> Result<Credentials, Failure> {
    let file = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::of(format!("cannot read the credentials in {file}"), &error))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::of(format!("{file} does not hold credentials"), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INT-1
    #[test]
    fn paths_hold_what_they_are_given_and_nothing_else() {
        assert_eq!(path(&["v1", "tokens"], &[("why", "")]), "/v1/tokens");
        assert_eq!(path(&["v1", "a/b?c"], &[("why", "a&b=ä")]), "/v1/a%2Fb%3Fc?why=a%26b%3D%C3%A4");
    }
}
