//! The storage engine under a node: embedded, or, with `TEST_ENGINE=postgres`, a new database for each node.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use snavio_store::Store;
use snavio_store::engine::postgres::PostgresStore;
use snavio_store::engine::sqlite::EmbeddedStore;
use snavio_store::engine::{postgres, sqlite};
use snavio_testbed::Postgres;

#[derive(Debug, Clone)]
pub(crate) enum Engine {
    /// The store is in a subfolder of the node's folder.
    Embedded,
    Postgres(Database),
}

/// A database, and the folder with the secrets that all nodes over it share.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    pub(crate) url: String,
    secrets: Arc<tempfile::TempDir>,
}

impl Database {
    /// A new, empty database. The first node over it makes the secrets.
    pub(crate) fn new() -> Self {
        Self::at(Postgres::shared().database().expect("a database can be made"))
    }

    /// The database at this URL.
    pub(crate) fn at(url: impl Into<String>) -> Self {
        let secrets = tempfile::tempdir().expect("a temporary folder can be made");
        Self { url: url.into(), secrets: Arc::new(secrets) }
    }

    /// The same secrets with another database, or with another URL of this one.
    pub(crate) fn moved_to(&self, url: impl Into<String>) -> Self {
        Self { url: url.into(), secrets: Arc::clone(&self.secrets) }
    }

    /// Makes the secrets, as an operator does before the start of the first of several nodes.
    pub(crate) fn with_secrets(self) -> Self {
        let random = || STANDARD.encode([(); 2].map(|()| uuid::Uuid::now_v7().into_bytes()).concat());
        for (name, prefix) in [("platform.key", ""), ("operator.token", "snavop_")] {
            let path = self.secrets.path().join(name);
            std::fs::write(&path, format!("{prefix}{}\n", random())).expect("a file can be written");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&path, mode).expect("the file is ours");
        }
        self
    }

    /// The settings that name the files of the secrets.
    pub(crate) fn settings(&self) -> [(&'static str, String); 2] {
        [
            ("SNAVIO_PLATFORM_KEY_FILE", "platform.key"),
            ("SNAVIO_PLATFORM_OPERATOR_TOKEN_FILE", "operator.token"),
        ]
        .map(|(setting, name)| (setting, self.secrets.path().join(name).display().to_string()))
    }

    /// Runs SQL statements outside the nodes, and returns their output.
    pub(crate) fn ask(&self, statements: &str) -> String {
        Postgres::shared().ask(&self.url, statements).expect("the database answers")
    }
}

impl Engine {
    /// The engine that this run of the tests uses.
    pub(crate) fn chosen() -> Self {
        match std::env::var("TEST_ENGINE").as_deref() {
            Err(_) | Ok("embedded") => Self::Embedded,
            Ok("postgres") => Self::Postgres(Database::new()),
            Ok(other) => panic!("TEST_ENGINE is {other:?}; use embedded or postgres"),
        }
    }

    /// The database. Panics on the embedded engine, which has none: a test that needs it belongs in module
    /// postgres.
    pub(crate) fn database(&self) -> &Database {
        match self {
            Self::Embedded => panic!("the embedded engine has no database"),
            Self::Postgres(database) => database,
        }
    }

    /// Adds the arguments and variables that make `snavio serve` use this engine.
    pub(crate) fn tell(&self, command: &mut Command, folder: &Path) {
        match self {
            Self::Embedded => command.arg("--data").arg(self.data(folder)),
            Self::Postgres(database) => command.envs(database.settings()).arg("--store").arg(&database.url),
        };
    }

    /// The store's folder within the node's. Panics on PostgreSQL, where the store has no folder.
    pub(crate) fn data(&self, folder: &Path) -> PathBuf {
        match self {
            Self::Embedded => folder.join("data"),
            Self::Postgres(_) => panic!("a database has no folder: this test belongs in module embedded"),
        }
    }

    /// The folder of the platform's secrets.
    pub(crate) fn secrets(&self, folder: &Path) -> PathBuf {
        match self {
            Self::Embedded => self.data(folder),
            Self::Postgres(database) => database.secrets.path().to_owned(),
        }
    }

    /// Opens the store of a node that has ended.
    pub(crate) async fn open(&self, folder: &Path) -> Arc<dyn Store> {
        match self {
            Self::Embedded => {
                let options = sqlite::Options::new(self.data(folder));
                Arc::new(EmbeddedStore::open(&options).expect("the store opens"))
            }
            Self::Postgres(database) => {
                let options = postgres::Options::new(&database.url);
                Arc::new(PostgresStore::open(&options).await.expect("the store opens"))
            }
        }
    }

    /// The whole content of the store, by file or table, as a thief of it would see it.
    pub(crate) fn kept(&self, folder: &Path) -> Vec<(String, Vec<u8>)> {
        match self {
            Self::Embedded => read_files(&self.data(folder)),
            Self::Postgres(database) => tables(database),
        }
    }
}

/// The files of a folder, without those that hold the platform's secrets.
pub(crate) fn read_files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let all =
        std::fs::read_dir(folder).expect("the folder is there").map(|file| file.expect("a file").path());
    let is_secret =
        |path: &Path| path.extension().is_some_and(|extension| extension == "key" || extension == "token");
    let visible = all.filter(|path| path.is_file() && !is_secret(path));
    visible.map(|path| (path.display().to_string(), std::fs::read(&path).expect("it can be read"))).collect()
}

fn tables(database: &Database) -> Vec<(String, Vec<u8>)> {
    const TABLES: &str = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'";
    let names = database.ask(TABLES);
    let tables = names.lines().map(|table| {
        let rows = database.ask(&format!("SELECT whole::text FROM \"{table}\" AS whole"));
        (table.to_owned(), rows.into_bytes())
    });
    tables.collect()
}
