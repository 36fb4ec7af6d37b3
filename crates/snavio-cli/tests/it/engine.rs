//! The engine under a node: the embedded one, or, with `TEST_ENGINE=postgres`, a new database for each node.

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

/// Which engine, and where.
#[derive(Debug, Clone)]
pub(crate) enum Engine {
    /// A folder in the node's own.
    Embedded,
    /// A database.
    Postgres(Database),
}

/// A database, and the folder of the secrets that all nodes over it have.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    pub(crate) url: String,
    secrets: Arc<tempfile::TempDir>,
}

impl Database {
    /// A new, empty one. The first node over it makes the secrets.
    pub(crate) fn new() -> Self {
        Self::at(Postgres::shared().database().expect("a database can be made"))
    }

    /// One by its URL.
    pub(crate) fn at(url: impl Into<String>) -> Self {
        let secrets = tempfile::tempdir().expect("a temporary folder can be made");
        Self { url: url.into(), secrets: Arc::new(secrets) }
    }

    /// The same secrets for another database, or for this one by another URL.
    pub(crate) fn moved_to(&self, url: impl Into<String>) -> Self {
        Self { url: url.into(), secrets: Arc::clone(&self.secrets) }
    }

    /// With secrets as an operator would make them before the first of several nodes is started.
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

    /// The settings that name the secrets.
    pub(crate) fn settings(&self) -> [(&'static str, String); 2] {
        let path = |name: &str| self.secrets.path().join(name).display().to_string();
        [
            ("SNAVIO_PLATFORM_KEY_FILE", path("platform.key")),
            ("SNAVIO_PLATFORM_OPERATOR_TOKEN_FILE", path("operator.token")),
        ]
    }

    /// Runs statements in it as somebody beside the nodes, and gives back what they print.
    pub(crate) fn ask(&self, statements: &str) -> String {
        Postgres::shared().ask(&self.url, statements).expect("the database answers")
    }
}

impl Engine {
    /// The one that this run of the tests is for.
    pub(crate) fn chosen() -> Self {
        match std::env::var("TEST_ENGINE").as_deref() {
            Err(_) | Ok("embedded") => Self::Embedded,
            Ok("postgres") => Self::Postgres(Database::new()),
            Ok(other) => panic!("TEST_ENGINE is {other:?}; use embedded or postgres"),
        }
    }

    /// The database. The embedded engine has none: a test that looks into it belongs in module postgres.
    pub(crate) fn database(&self) -> &Database {
        match self {
            Self::Embedded => panic!("the embedded engine has no database"),
            Self::Postgres(database) => database,
        }
    }

    /// Tells `snavio serve` to use it.
    pub(crate) fn tell(&self, command: &mut Command, folder: &Path) {
        match self {
            Self::Embedded => command.arg("--data").arg(self.data(folder)),
            Self::Postgres(database) => command.envs(database.settings()).arg("--store").arg(&database.url),
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
            Self::Postgres(database) => database.secrets.path().to_owned(),
        }
    }

    /// The store itself, of a node that has ended.
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

    /// Everything it keeps, by file or table, as whoever gets hold of it would see it.
    pub(crate) fn kept(&self, folder: &Path) -> Vec<(String, Vec<u8>)> {
        match self {
            Self::Embedded => files(&self.data(folder)),
            Self::Postgres(database) => tables(database),
        }
    }
}

/// The files of a folder, but for those that hold the platform's secrets.
pub(crate) fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let all =
        std::fs::read_dir(folder).expect("the folder is there").map(|file| file.expect("a file").path());
    let is_secret = |path: &Path| path.extension().is_some_and(|it| it == "key" || it == "token");
    let store = all.filter(|path| path.is_file() && !is_secret(path));
    store.map(|path| (path.display().to_string(), std::fs::read(&path).expect("it can be read"))).collect()
}

fn tables(database: &Database) -> Vec<(String, Vec<u8>)> {
    const TABLES: &str = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'";
    let rows = |table: &str| database.ask(&format!("SELECT whole::text FROM \"{table}\" AS whole"));
    database.ask(TABLES).lines().map(|table| (table.to_owned(), rows(table).into_bytes())).collect()
}
