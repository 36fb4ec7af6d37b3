//! The engine under a node: the embedded one, or, with `TEST_ENGINE=postgres`, a new database for each node.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use snavio_store::Store;
use snavio_store::embedded::{self, EmbeddedStore};
use snavio_store::postgres::{self, PostgresStore};
use snavio_testbed::Postgres;

/// Which engine, and where.
#[derive(Debug, Clone)]
pub(crate) enum Engine {
    /// A folder in the node's own.
    Embedded,
    /// A database, by its URL.
    Postgres(String),
}

impl Engine {
    /// The one that this run of the tests is for.
    pub(crate) fn chosen() -> Self {
        match std::env::var("TEST_ENGINE").as_deref() {
            Err(_) | Ok("embedded") => Self::Embedded,
            Ok("postgres") => Self::postgres(),
            Ok(other) => panic!("TEST_ENGINE is {other:?}; use embedded or postgres"),
        }
    }

    /// A new, empty database.
    pub(crate) fn postgres() -> Self {
        Self::Postgres(Postgres::shared().database().expect("a database can be made"))
    }

    /// Tells `snavio serve` to use it.
    pub(crate) fn tell(&self, command: &mut Command, folder: &Path) {
        match self {
            Self::Embedded => command.arg("--data").arg(self.data(folder)),
            Self::Postgres(url) => {
                let secrets = self.secrets(folder);
                command.env("SNAVIO_PLATFORM_KEY_FILE", secrets.join("platform.key"));
                command.env("SNAVIO_PLATFORM_OPERATOR_TOKEN_FILE", secrets.join("operator.token"));
                command.arg("--store").arg(url)
            }
        };
    }

    /// The store's folder within the node's.
    pub(crate) fn data(&self, folder: &Path) -> PathBuf {
        match self {
            Self::Embedded => folder.join("data"),
            Self::Postgres(_) => panic!("a database has no folder: this test belongs in module embedded"),
        }
    }

    /// Where the platform's secrets are.
    pub(crate) fn secrets(&self, folder: &Path) -> PathBuf {
        match self {
            Self::Embedded => self.data(folder),
            Self::Postgres(_) => folder.join("secrets"),
        }
    }

    /// The store itself, of a node that has ended.
    pub(crate) async fn open(&self, folder: &Path) -> Arc<dyn Store> {
        match self {
            Self::Embedded => {
                let options = embedded::Options::new(self.data(folder));
                Arc::new(EmbeddedStore::open(&options).expect("the store opens"))
            }
            Self::Postgres(url) => {
                let options = postgres::Options::new(url);
                Arc::new(PostgresStore::open(&options).await.expect("the store opens"))
            }
        }
    }

    /// Everything it keeps, by file or table, as whoever gets hold of it would see it.
    pub(crate) fn kept(&self, folder: &Path) -> Vec<(String, Vec<u8>)> {
        match self {
            Self::Embedded => files(&self.data(folder)),
            Self::Postgres(url) => tables(url),
        }
    }
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let all =
        std::fs::read_dir(folder).expect("the folder is there").map(|file| file.expect("a file").path());
    let store = all.filter(|path| !path.extension().is_some_and(|it| it == "key" || it == "token"));
    store.map(|path| (path.display().to_string(), std::fs::read(&path).expect("it can be read"))).collect()
}

fn tables(url: &str) -> Vec<(String, Vec<u8>)> {
    const TABLES: &str = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'";
    let ask = |statement: &str| Postgres::shared().ask(url, statement).expect("the database answers");
    let rows = |table: &str| ask(&format!("SELECT whole::text FROM \"{table}\" AS whole"));
    ask(TABLES).lines().map(|table| (table.to_owned(), rows(table).into_bytes())).collect()
}
