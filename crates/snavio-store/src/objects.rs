//! Objects beside the store, in a local folder or a bucket of S3 and its like: written whole, read whole and bounded,
//! and replaced only by who has seen what is there (REG-20). The one file that knows how they are stored.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
#[cfg(feature = "s3")]
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};

use crate::files;
use crate::files::staged;

/// How long one request may take, and how long a connection to a bucket.
#[cfg(feature = "s3")]
const REQUEST_MAX: Duration = Duration::from_secs(20);
#[cfg(feature = "s3")]
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How often a request is made again.
#[cfg(feature = "s3")]
const RETRIES_MAX: usize = 2;
/// How long a writer waits for another's lock on a local folder.
const LOCK_MAX: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// The lock's file within a local folder.
const LOCK_FILE: &str = "registry.lock";

/// Where objects are, and what is needed to get there.
#[derive(Clone)]
pub struct Place {
    /// `file:///folder` or `s3://bucket/prefix`.
    pub url: String,
    /// Settings of S3, named as in the environment (`AWS_REGION`): they may hold secrets.
    pub options: Vec<(String, String)>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.options.iter().map(|(name, _)| name).collect();
        f.debug_struct("Place").field("url", &self.url).field("options", &names).finish()
    }
}

/// Why an object was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The URL names no place for objects.
    #[error("{0:?} is no place for objects; use file:///folder or s3://bucket/prefix")]
    Url(String),
    /// This program was built without S3.
    #[cfg(not(feature = "s3"))]
    #[error("this program was built without S3: build it with the feature s3, or use file:///folder")]
    NoS3,
    /// The storage did not do what it was asked.
    #[error("the object storage failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// An object has more bytes than may be read.
    #[error("{key} has {bytes} bytes, too many to read")]
    TooLarge {
        /// Which.
        key: String,
        /// How many.
        bytes: u64,
    },
    /// Somebody else replaced the object meanwhile.
    #[error("somebody else has written {key} meanwhile")]
    Changed {
        /// Which.
        key: String,
    },
    /// Another process holds the folder's lock.
    #[error("another process holds the lock {0}")]
    Locked(PathBuf),
}

impl ObjectsError {
    fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// An object as it was read.
#[derive(Debug)]
pub struct Found {
    /// Its bytes.
    pub bytes: Bytes,
    /// By what it is replaced, as long as nobody else did.
    pub seen: Seen,
}

/// What tells an object from the one that takes its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen(Option<String>, Option<String>);

/// Objects in a place.
pub struct Objects {
    storage: Arc<dyn ObjectStore>,
    prefix: Path,
    /// Where a lock takes the place of conditional writes.
    folder: Option<PathBuf>,
}

impl Objects {
    /// Objects in the place of a URL. Nothing is read or made yet.
    pub fn open(place: &Place) -> Result<Self, ObjectsError> {
        match locate(&place.url).ok_or_else(|| ObjectsError::Url(place.url.clone()))? {
            Located::Folder(folder, prefix) => {
                let storage = Arc::new(LocalFileSystem::new().with_automatic_cleanup(true));
                Ok(Self { storage, prefix, folder: Some(folder) })
            }
            Located::Bucket(bucket, prefix) => {
                Ok(Self { storage: s3(bucket, &place.options)?, prefix, folder: None })
            }
        }
    }

    /// Whether a URL names a place for objects.
    pub fn is_place(url: &str) -> bool {
        locate(url).is_some()
    }

    /// An object, if it is there and has not more bytes than this.
    pub async fn get(&self, key: &str, bytes_max: usize) -> Result<Option<Found>, ObjectsError> {
        let found = match self.storage.get_opts(&self.path(key)?, GetOptions::default()).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(ObjectsError::failed(error)),
        };
        if found.meta.size > bytes_max as u64 {
            return Err(ObjectsError::TooLarge { key: key.to_owned(), bytes: found.meta.size });
        }
        let seen = Seen(found.meta.e_tag.clone(), found.meta.version.clone());
        let bytes = found.bytes().await.map_err(ObjectsError::failed)?;
        Ok(Some(Found { bytes, seen }))
    }

    /// Writes an object under a name that only it can have. In a folder it is its owner's alone, whatever the umask.
    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<(), ObjectsError> {
        let path = self.path(key)?;
        match self.file(key) {
            Some(file) => apart(move || staged::write(&file, &bytes)).await,
            None => self.storage.put(&path, bytes.into()).await.map(|_| ()).map_err(ObjectsError::failed),
        }
    }

    /// Writes an object in the place of the one that was seen there, or of none, unless somebody else did so first.
    pub async fn replace(&self, key: &str, bytes: Bytes, seen: Option<&Seen>) -> Result<(), ObjectsError> {
        let Some(folder) = &self.folder else { return self.put_in_place_of(key, bytes, seen).await };
        // A local folder has no conditional writes: who holds its lock looks again, then writes.
        self.make_folder()?;
        let _lock = lock(folder.join(LOCK_FILE)).await?;
        let now = match self.storage.head(&self.path(key)?).await {
            Ok(meta) => Some(Seen(meta.e_tag, meta.version)),
            Err(Error::NotFound { .. }) => None,
            Err(error) => return Err(ObjectsError::failed(error)),
        };
        if now.as_ref() != seen {
            return Err(ObjectsError::Changed { key: key.to_owned() });
        }
        self.put(key, bytes).await
    }

    async fn put_in_place_of(
        &self,
        key: &str,
        bytes: Bytes,
        seen: Option<&Seen>,
    ) -> Result<(), ObjectsError> {
        let mode = match seen {
            Some(Seen(e_tag, version)) => {
                PutMode::Update(UpdateVersion { e_tag: e_tag.clone(), version: version.clone() })
            }
            None => PutMode::Create,
        };
        match self.storage.put_opts(&self.path(key)?, bytes.into(), mode.into()).await {
            Ok(_) => Ok(()),
            Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => {
                Err(ObjectsError::Changed { key: key.to_owned() })
            }
            Err(error) => Err(ObjectsError::failed(error)),
        }
    }

    /// The keys of all objects below one.
    pub async fn keys(&self, below: &str) -> Result<Vec<String>, ObjectsError> {
        let prefix = self.path(below)?;
        let of_object = |path: &Path| {
            let rest = path.as_ref().strip_prefix(self.prefix.as_ref())?;
            Some(rest.trim_start_matches('/').to_owned())
        };
        let listed: Vec<_> =
            self.storage.list(Some(&prefix)).try_collect().await.map_err(ObjectsError::failed)?;
        Ok(listed.iter().filter_map(|meta| of_object(&meta.location)).collect())
    }

    /// Deletes objects, with what was left of writing them; those that are gone already are as they should be.
    pub async fn delete(&self, keys: &[String]) -> Result<(), ObjectsError> {
        let paths: Vec<_> = keys.iter().map(|key| self.path(key)).collect::<Result<_, _>>()?;
        for file in keys.iter().filter_map(|key| self.file(key)) {
            apart(move || staged::clear(&file)).await?;
        }
        let paths = futures_util::stream::iter(paths.into_iter().map(Ok)).boxed();
        let mut deleted = self.storage.delete_stream(paths);
        while let Some(deleted) = deleted.next().await {
            match deleted {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(ObjectsError::failed(error)),
            }
        }
        Ok(())
    }

    fn path(&self, key: &str) -> Result<Path, ObjectsError> {
        let path = format!("{}/{key}", self.prefix);
        Path::parse(path.trim_matches('/')).map_err(ObjectsError::failed)
    }

    /// Where an object of a folder is.
    fn file(&self, key: &str) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(key))
    }

    fn make_folder(&self) -> Result<(), ObjectsError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        files::make_folder(folder).map_err(ObjectsError::failed)
    }
}

/// Does what waits for a disk on a thread of its own.
async fn apart(work: impl FnOnce() -> std::io::Result<()> + Send + 'static) -> Result<(), ObjectsError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(ObjectsError::failed)?;
    done.map_err(ObjectsError::failed)
}

enum Located<'u> {
    Folder(PathBuf, Path),
    Bucket(&'u str, Path),
}

fn locate(url: &str) -> Option<Located<'_>> {
    if let Some(folder) = url.strip_prefix("file://") {
        let folder = PathBuf::from(folder);
        let prefix = Path::from_absolute_path(&folder).ok().filter(|_| folder.is_absolute())?;
        return Some(Located::Folder(folder, prefix));
    }
    let bucket = url.strip_prefix("s3://")?;
    let (bucket, prefix) = bucket.split_once('/').unwrap_or((bucket, ""));
    let prefix = Path::parse(prefix.trim_end_matches('/')).ok().filter(|_| !bucket.is_empty())?;
    Some(Located::Bucket(bucket, prefix))
}

#[cfg(not(feature = "s3"))]
fn s3(_: &str, _: &[(String, String)]) -> Result<Arc<dyn ObjectStore>, ObjectsError> {
    Err(ObjectsError::NoS3)
}

#[cfg(feature = "s3")]
fn s3(bucket: &str, options: &[(String, String)]) -> Result<Arc<dyn ObjectStore>, ObjectsError> {
    use object_store::{BackoffConfig, ClientOptions, RetryConfig};
    // The client takes the process's provider, which may not have been chosen yet.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let is_plain = options.iter().any(|(_, value)| value.starts_with("http://"));
    let client = ClientOptions::new()
        .with_timeout(REQUEST_MAX)
        .with_connect_timeout(CONNECT_MAX)
        .with_allow_http(is_plain);
    let retry = RetryConfig {
        max_retries: RETRIES_MAX,
        retry_timeout: REQUEST_MAX,
        backoff: BackoffConfig { max_backoff: Duration::from_secs(2), ..BackoffConfig::default() },
    };
    let mut builder = AmazonS3Builder::new().with_client_options(client).with_retry(retry);
    for (name, value) in options {
        // Variables of other programs begin with AWS_ too.
        if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    let builder = builder.with_bucket_name(bucket).with_conditional_put(S3ConditionalPut::ETagMatch);
    Ok(Arc::new(builder.build().map_err(ObjectsError::failed)?))
}

/// Takes the lock of a folder, which ends with what is given back, and with the process.
async fn lock(file: PathBuf) -> Result<std::fs::File, ObjectsError> {
    use rustix::fs::{FlockOperation, flock};
    let open = files::open_file(&file).map_err(ObjectsError::failed)?;
    let taken = async {
        while flock(&open, FlockOperation::NonBlockingLockExclusive).is_err() {
            tokio::time::sleep(LOCK_PAUSE).await;
        }
    };
    match tokio::time::timeout(LOCK_MAX, taken).await {
        Ok(()) => Ok(open),
        Err(_) => Err(ObjectsError::Locked(file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(folder: &std::path::Path) -> Objects {
        Objects::open(&Place { url: format!("file://{}", folder.display()), options: Vec::new() }).unwrap()
    }

    /// REG-20
    #[tokio::test]
    async fn an_object_is_replaced_only_by_who_has_seen_it() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made/for us");
        is_replaced_by_who_has_seen_it(&local(&made)).await;
        assert_eq!(files::open_to_others(&made).unwrap(), None);
    }

    /// REG-20. TEST_S3_ENDPOINT names a service that has an empty bucket `snavio-test` and takes the credentials in the
    /// environment.
    #[cfg(feature = "s3")]
    #[tokio::test]
    #[ignore = "needs TEST_S3_ENDPOINT, see docs/guides/snapshots.md"]
    async fn an_object_in_a_bucket_is_replaced_only_by_who_has_seen_it() {
        let endpoint = std::env::var("TEST_S3_ENDPOINT").expect("TEST_S3_ENDPOINT names a service");
        let of_s3 = std::env::vars().filter(|(name, _)| name.starts_with("AWS_"));
        let options = of_s3.chain([("AWS_ENDPOINT_URL".to_owned(), endpoint)]).collect();
        let place = Place { url: "s3://snavio-test/some/where".to_owned(), options };
        is_replaced_by_who_has_seen_it(&Objects::open(&place).unwrap()).await;
    }

    async fn is_replaced_by_who_has_seen_it(objects: &Objects) {
        const KEY: &str = "registry/latest.json";
        let is_changed = |put: Result<(), ObjectsError>| matches!(put, Err(ObjectsError::Changed { .. }));
        assert!(objects.get(KEY, 10).await.unwrap().is_none());
        objects.replace(KEY, "one".into(), None).await.unwrap();
        assert!(is_changed(objects.replace(KEY, "two".into(), None).await));
        let found = objects.get(KEY, 3).await.unwrap().unwrap();
        assert_eq!(found.bytes, "one");
        objects.replace(KEY, "three".into(), Some(&found.seen)).await.unwrap();
        assert!(is_changed(objects.replace(KEY, "four".into(), Some(&found.seen)).await));
        let large = objects.get(KEY, 4).await;
        assert!(matches!(large, Err(ObjectsError::TooLarge { bytes: 5, .. })));
        assert_eq!(objects.keys("registry").await.unwrap(), [KEY]);
        objects.delete(&[KEY.to_owned()]).await.unwrap();
        assert!(objects.get(KEY, 10).await.unwrap().is_none());
    }

    /// REG-20
    #[tokio::test]
    async fn objects_are_listed_and_deleted_by_their_keys() {
        let folder = tempfile::tempdir().unwrap();
        let objects = local(folder.path());
        for key in ["registry/1/aa", "registry/2/bb"] {
            objects.put(key, "x".into()).await.unwrap();
        }
        let mut keys = objects.keys("registry").await.unwrap();
        keys.sort();
        assert_eq!(keys, ["registry/1/aa", "registry/2/bb"]);
        objects.delete(&["registry/1/aa".to_owned(), "registry/9/gone".to_owned()]).await.unwrap();
        assert_eq!(objects.keys("registry").await.unwrap(), ["registry/2/bb"]);
    }

    /// CLM-18: what a kill left of writing an object says what the object was to say.
    #[tokio::test]
    async fn what_was_left_of_writing_an_object_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let objects = local(&folder.path().join("archive"));
        let key = "claims/some segment".to_owned();
        let leave = || {
            let left = folder.path().join(format!("archive/{key}#1"));
            std::fs::write(&left, "said").unwrap();
            left
        };
        objects.put(&key, "x".into()).await.unwrap();
        for made in ["archive", "archive/claims", "archive/claims/some segment"] {
            assert_eq!(files::open_to_others(&folder.path().join(made)).unwrap(), None, "{made}");
        }
        let left = leave();
        assert_eq!(objects.keys("claims").await.unwrap(), std::slice::from_ref(&key), "it is none by itself");
        objects.put(&key, "y".into()).await.unwrap();
        assert!(!left.exists(), "it goes when the object is written again");
        assert_eq!(objects.get(&key, 1).await.unwrap().unwrap().bytes, "y");
        let left = leave();
        objects.delete(std::slice::from_ref(&key)).await.unwrap();
        assert!(!left.exists(), "and when it is deleted");
        std::fs::create_dir_all(folder.path().join("archive/claims")).unwrap();
        let left = leave();
        objects.delete(std::slice::from_ref(&key)).await.unwrap();
        assert!(!left.exists(), "though it was never written to its end");
    }

    #[test]
    fn a_place_is_a_folder_or_a_bucket() {
        let open = |url: &str| {
            let region = ("AWS_REGION".to_owned(), "eu-west-1".to_owned());
            let place = Place { url: url.to_owned(), options: vec![region] };
            assert!(!format!("{place:?}").contains("eu-west-1"), "settings may be secret");
            Objects::is_place(url)
        };
        for (url, is_place) in [
            ("file:///var/lib/snavio", true),
            ("s3://bucket", true),
            ("s3://bucket/a/b/", true),
            ("file://relative", false),
            ("s3://", false),
            ("http://bucket", false),
            ("", false),
        ] {
            assert_eq!(open(url), is_place, "{url}");
        }
    }
}
