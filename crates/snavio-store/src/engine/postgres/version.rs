//! Which servers can be used. An older one would fail later, at whichever statement it does not know.

use tokio_postgres::Client;

use super::OpenError;

/// The oldest server that is tested with, as PostgreSQL numbers its versions.
const OLDEST: i32 = 15_00_00;

/// What a server says it is.
pub(super) struct Version {
    number: i32,
    pub(super) text: String,
}

impl Version {
    pub(super) async fn ask(client: &Client) -> Result<Self, tokio_postgres::Error> {
        const VERSION: &str =
            "SELECT current_setting('server_version_num')::int, current_setting('server_version')";
        let row = client.query_one(VERSION, &[]).await?;
        Ok(Self { number: row.try_get(0)?, text: row.try_get(1)? })
    }

    /// Why the server cannot be used, if so.
    pub(super) fn verdict(&self) -> Result<(), OpenError> {
        if self.number < OLDEST {
            return Err(OpenError::Old { is: self.text.clone(), oldest: OLDEST / 10_000 });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ENG-3
    #[test]
    fn servers_before_15_are_refused_with_both_versions() {
        for (number, text, usable) in [
            (90_624, "9.6.24", false),
            (14_00_13, "14.13 (Debian 14.13-1)", false),
            (15_00_00, "15beta1", true),
            (15_00_08, "15.8", true),
            (18_00_01, "18.1", true),
        ] {
            let verdict = Version { number, text: text.to_owned() }.verdict();
            assert_eq!(verdict.is_ok(), usable, "{text}");
            if let Err(error) = verdict {
                let said = error.to_string();
                assert!(said.contains(text) && said.contains("15 or later"), "{said}");
            }
        }
    }
}
