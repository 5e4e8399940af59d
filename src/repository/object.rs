//! Object stores behind the face of a repository: S3 and what speaks its protocol, Google Cloud Storage, Azure.
//!
//! The only file that names `object_store`; its runtime has one thread, and calls block. Credentials and endpoints come
//! from the environment and go nowhere else: reasons of failures are blanked before they leave.

use std::io::Read;
use std::sync::Arc;

use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path as StorePath;
use object_store::{
    Error as StoreError, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    PutResult, RetryConfig, UpdateVersion,
};
use tokio::runtime::Runtime;

use super::error::RepositoryError;
use super::{Listing, ObjectInfo, Repository, Tag};

/// Files up to this size are put in one call, larger ones in parts of this size, unless there would be too many.
const PART_BYTES: u64 = 8 << 20;
/// S3 takes 10,000.
const PARTS_MAX: u64 = 9_000;
/// Answers that are the same a moment later.
const FINAL: [&str; 4] = ["NoSuchBucket", "ContainerNotFound", "401 Unauthorized", "403 Forbidden"];
/// More of an answer is not repeated in a message.
const REASON_CHARS_MAX: usize = 400;

/// A repository in an object store.
pub struct ObjectRepository {
    store: Arc<dyn ObjectStore>,
    place: String,
    prefix: String,
    runtime: Runtime,
}

impl std::fmt::Debug for ObjectRepository {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The store's own form may hold credentials.
        f.debug_struct("ObjectRepository").field("place", &self.place).finish_non_exhaustive()
    }
}

impl ObjectRepository {
    /// The repository below `prefix` in the bucket of `base` (`scheme://bucket`), configured by the environment.
    ///
    /// # Errors
    /// [`RepositoryError::Refused`] when the configuration makes no sense, [`RepositoryError::Thread`].
    pub fn open(base: &str, prefix: &str) -> Result<Self, RepositoryError> {
        // Retries are ours: they end when told to, and are the same for all stores.
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let built: Result<Arc<dyn ObjectStore>, StoreError> = match base.split("://").next() {
            Some("s3" | "s3a") => AmazonS3Builder::from_env()
                .with_url(base)
                .with_retry(retry)
                .build()
                .map(|store| Arc::new(store) as _),
            Some("gs") => GoogleCloudStorageBuilder::from_env()
                .with_url(base)
                .with_retry(retry)
                .build()
                .map(|store| Arc::new(store) as _),
            _ => MicrosoftAzureBuilder::from_env()
                .with_url(base)
                .with_retry(retry)
                .build()
                .map(|store| Arc::new(store) as _),
        };
        let store = built.map_err(|error| refused("open the repository", base, &error))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("floodmark-repository")
            .enable_all()
            .build()
            .map_err(|_| RepositoryError::Thread)?;
        let place = if prefix.is_empty() { base.to_owned() } else { format!("{base}/{prefix}") };
        Ok(Self { store, place, prefix: prefix.to_owned(), runtime })
    }

    fn path(&self, name: &str) -> StorePath {
        let parts = self.prefix.split('/').chain(name.split('/')).filter(|part| !part.is_empty());
        parts.collect()
    }

    fn put(&self, name: &str, bytes: &[u8], mode: PutMode) -> Result<Tag, RepositoryError> {
        let payload = PutPayload::from(bytes.to_vec());
        let options = PutOptions { mode, ..PutOptions::default() };
        let path = self.path(name);
        self.runtime
            .block_on(self.store.put_opts(&path, payload, options))
            .map(tag)
            .map_err(|error| failed("write", name, error))
    }

    fn put_parts(&self, name: &str, stream: &mut dyn Read, bytes: u64) -> Result<(), RepositoryError> {
        let part_bytes = PART_BYTES.max(bytes.div_ceil(PARTS_MAX));
        let begun = self.runtime.block_on(self.store.put_multipart(&self.path(name)));
        let mut upload = begun.map_err(|error| failed("begin to write", name, error))?;
        let mut left = bytes;
        let mut put_all = || {
            while left > 0 {
                let part = read_exactly(name, stream, left.min(part_bytes))?;
                left -= part.len() as u64;
                self.runtime
                    .block_on(upload.put_part(part.into()))
                    .map_err(|error| failed("write a part", name, error))?;
            }
            Ok(())
        };
        let done = put_all().and_then(|()| {
            let completed = self.runtime.block_on(upload.complete());
            completed.map(|_| ()).map_err(|error| failed("complete", name, error))
        });
        if done.is_err() {
            // What this cannot remove, a lifecycle rule of the bucket does.
            let _ = self.runtime.block_on(upload.abort());
        }
        done
    }
}

impl Repository for ObjectRepository {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<Tag, RepositoryError> {
        self.put(name, bytes, PutMode::Create)
    }

    fn put_if(&self, name: &str, bytes: &[u8], current: &Tag) -> Result<Tag, RepositoryError> {
        let current = UpdateVersion { e_tag: current.etag.clone(), version: current.version.clone() };
        self.put(name, bytes, PutMode::Update(current))
    }

    fn put_file(&self, name: &str, stream: &mut dyn Read, bytes: u64) -> Result<(), RepositoryError> {
        if bytes > PART_BYTES {
            return self.put_parts(name, stream, bytes);
        }
        let contents = read_exactly(name, stream, bytes)?;
        self.put(name, &contents, PutMode::Overwrite).map(|_| ())
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<(Vec<u8>, Tag), RepositoryError> {
        let path = self.path(name);
        self.runtime.block_on(async {
            let got = self.store.get(&path).await.map_err(|error| missing("read", name, error))?;
            if got.meta.size > bytes_max {
                return Err(RepositoryError::TooLarge { name: name.to_owned(), bytes: got.meta.size });
            }
            let tag = Tag { etag: got.meta.e_tag.clone(), version: got.meta.version.clone() };
            let bytes = got.bytes().await.map_err(|error| missing("read", name, error))?;
            Ok((bytes.to_vec(), tag))
        })
    }

    fn get_range(&self, name: &str, from: u64, bytes: u64) -> Result<Vec<u8>, RepositoryError> {
        let path = self.path(name);
        let range = GetRange::Bounded(from..from.saturating_add(bytes));
        let options = GetOptions { range: Some(range), ..GetOptions::default() };
        self.runtime.block_on(async {
            let got =
                self.store.get_opts(&path, options).await.map_err(|error| missing("read", name, error))?;
            let read = got.bytes().await.map_err(|error| missing("read", name, error))?;
            Ok(read.to_vec())
        })
    }

    fn list(&self, prefix: &str, objects_max: usize) -> Result<Listing, RepositoryError> {
        let path = self.path(prefix);
        // As the store spells it, with what it escapes.
        let prefix_length = self.path("").as_ref().len();
        let skipped = if prefix_length == 0 { 0 } else { prefix_length + 1 };
        self.runtime.block_on(async {
            let mut objects = self.store.list(Some(&path));
            let mut listing = Listing { objects: Vec::new(), complete: true };
            while let Some(meta) = objects.try_next().await.map_err(|error| failed("list", prefix, error))? {
                if listing.objects.len() >= objects_max {
                    listing.complete = false;
                    break;
                }
                let Some(name) = meta.location.as_ref().get(skipped..) else { continue };
                listing.objects.push(ObjectInfo {
                    name: name.to_owned(),
                    bytes: meta.size,
                    modified_ms: meta.last_modified.timestamp_millis(),
                });
            }
            listing.objects.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(listing)
        })
    }

    fn delete(&self, name: &str) -> Result<(), RepositoryError> {
        match self.runtime.block_on(self.store.delete(&self.path(name))) {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed("delete", name, error)),
        }
    }
}

fn tag(put: PutResult) -> Tag {
    Tag { etag: put.e_tag, version: put.version }
}

fn read_exactly(name: &str, stream: &mut dyn Read, bytes: u64) -> Result<Vec<u8>, RepositoryError> {
    let mut contents = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
    let read = stream.take(bytes).read_to_end(&mut contents);
    let local =
        |error| RepositoryError::local("read a file of the checkpoint", std::path::Path::new(name))(error);
    if read.map_err(local)? as u64 != bytes {
        let short =
            std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "file is shorter than it should be");
        return Err(local(short));
    }
    Ok(contents)
}

/// A failed read, where an object that is missing is an answer.
fn missing(step: &'static str, name: &str, error: StoreError) -> RepositoryError {
    match error {
        // A bucket that does not exist is no object that does not exist.
        StoreError::NotFound { ref source, .. } if source.to_string().contains("NoSuchBucket") => {
            refused(step, name, &error)
        }
        StoreError::NotFound { .. } => RepositoryError::NotFound { name: name.to_owned() },
        error => failed(step, name, error),
    }
}

fn failed(step: &'static str, name: &str, error: StoreError) -> RepositoryError {
    let object = || name.to_owned();
    match error {
        StoreError::AlreadyExists { .. } => RepositoryError::Exists { name: object() },
        StoreError::Precondition { .. } | StoreError::NotModified { .. } => {
            RepositoryError::Changed { name: object() }
        }
        // A write finds no bucket; a part finds that its upload is gone, and the whole is tried again.
        StoreError::NotFound { ref source, .. } if source.to_string().contains("NoSuchUpload") => {
            RepositoryError::Unavailable { step, name: object(), reason: reason(&error) }
        }
        StoreError::NotFound { .. }
        | StoreError::InvalidPath { .. }
        | StoreError::NotSupported { .. }
        | StoreError::NotImplemented { .. }
        | StoreError::PermissionDenied { .. }
        | StoreError::Unauthenticated { .. }
        | StoreError::UnknownConfigurationKey { .. } => refused(step, name, &error),
        error => {
            let reason = reason(&error);
            // Listings say everything in one kind of error.
            if FINAL.iter().any(|word| reason.contains(word)) {
                return RepositoryError::Refused { step, name: object(), reason };
            }
            RepositoryError::Unavailable { step, name: object(), reason }
        }
    }
}

fn refused(step: &'static str, name: &str, error: &StoreError) -> RepositoryError {
    RepositoryError::Refused { step, name: name.to_owned(), reason: reason(error) }
}

/// The error with all its causes as one line, short, without anything that the environment calls secret.
fn reason(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    let variables = std::env::vars_os();
    let text = blanked(
        text,
        variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    );
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(REASON_CHARS_MAX).collect()
}

/// Replaces the values of variables whose names sound like credentials.
fn blanked(mut text: String, variables: impl Iterator<Item = (String, String)>) -> String {
    let secret = ["SECRET", "KEY", "TOKEN", "PASSWORD", "CREDENTIAL", "SAS", "ACCOUNT"];
    for (name, value) in variables {
        let name = name.to_ascii_uppercase();
        let store = ["AWS_", "AZURE_", "GOOGLE_"].iter().any(|start| name.starts_with(start));
        if store && value.len() >= 4 && secret.iter().any(|word| name.contains(word)) {
            text = text.replace(&value, "[credential]");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_do_not_repeat_credentials() {
        let variables = [
            ("AWS_SECRET_ACCESS_KEY", "hush-hush"),
            ("AZURE_STORAGE_ACCOUNT_KEY", "quiet-now"),
            ("AWS_REGION", "us-east-1"),
            ("PASSWORD", "elsewhere"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let text = "hush-hush in us-east-1 with quiet-now and elsewhere".to_owned();
        assert_eq!(
            blanked(text, variables.into_iter()),
            "[credential] in us-east-1 with [credential] and elsewhere"
        );
    }

    #[test]
    fn stores_of_every_kind_open_without_a_network() {
        for base in ["s3://bucket", "gs://bucket"] {
            let repository = ObjectRepository::open(base, "a/b").unwrap();
            assert_eq!(repository.place(), format!("{base}/a/b"));
            assert_eq!(repository.path("manifests/x").as_ref(), "a/b/manifests/x");
        }
    }
}
