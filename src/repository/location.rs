//! Where a repository is: a directory, or the URL of an object store. Read without opening anything.
//!
//! Credentials are never part of it: they come from the environment, and a text that holds some is refused unseen.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Repository;
use super::error::RepositoryError;
use super::local::LocalRepository;

/// Schemes of object stores.
const SCHEMES: [&str; 6] = ["s3", "s3a", "gs", "az", "abfs", "abfss"];

/// A place for checkpoints, understood and not yet opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A directory, such as a network filesystem that another machine mounts as well.
    Directory(PathBuf),
    /// An object store.
    Store {
        /// `scheme://bucket`.
        base: String,
        /// What names start with, without slashes at its ends; may be empty.
        prefix: String,
    },
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::Store { base, prefix } if prefix.is_empty() => f.write_str(base),
            Self::Store { base, prefix } => write!(f, "{base}/{prefix}"),
        }
    }
}

impl Location {
    /// Reads a path or URL; a relative path starts at `base`.
    ///
    /// # Errors
    /// [`RepositoryError::Location`] with the reason.
    pub fn parse(text: &str, base: &Path) -> Result<Self, RepositoryError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return if text.is_empty() {
                Err(invalid("", "it is empty"))
            } else {
                Ok(Self::Directory(base.join(text)))
            };
        };
        let scheme = scheme.to_ascii_lowercase();
        let shown = format!("{scheme}://…");
        if scheme == "file" {
            return if rest.starts_with('/') && rest.len() > 1 {
                Ok(Self::Directory(PathBuf::from(rest)))
            } else {
                Err(invalid(&shown, "a file URL needs an absolute path: file:///directory"))
            };
        }
        if !SCHEMES.contains(&scheme.as_str()) {
            return Err(invalid(&shown, "this kind of URL is not known"));
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        // abfs URLs name the container before the account.
        let account = bucket.contains('@') && scheme.starts_with("abfs") && !bucket.contains(':');
        if (bucket.contains('@') && !account) || bucket.contains(':') {
            return Err(invalid(&shown, "credentials and ports do not belong into it"));
        }
        if bucket.is_empty() {
            return Err(invalid(&shown, "it names no bucket"));
        }
        if rest.contains(['?', '#']) {
            return Err(invalid(&shown, "it has a query or a fragment"));
        }
        let parts: Vec<&str> = prefix.split('/').filter(|part| !part.is_empty()).collect();
        if parts.iter().any(|part| *part == "." || *part == "..") {
            return Err(invalid(text, "its prefix has `.` or `..` in it"));
        }
        Ok(Self::Store { base: format!("{scheme}://{bucket}"), prefix: parts.join("/") })
    }

    /// Opens it. Nothing is read or written yet.
    ///
    /// # Errors
    /// [`RepositoryError::Refused`] when the configuration in the environment makes no sense, or this build has no
    /// object stores; [`RepositoryError::Local`].
    pub fn open(&self) -> Result<Arc<dyn Repository>, RepositoryError> {
        match self {
            Self::Directory(path) => Ok(Arc::new(LocalRepository::new(path))),
            #[cfg(feature = "object-store")]
            Self::Store { base, prefix } => {
                Ok(Arc::new(super::object::ObjectRepository::open(base, prefix)?))
            }
            #[cfg(not(feature = "object-store"))]
            Self::Store { .. } => Err(RepositoryError::Refused {
                step: "open the repository",
                name: self.to_string(),
                reason: "this build has no object stores (cargo feature `object-store`)".to_owned(),
            }),
        }
    }
}

fn invalid(text: &str, reason: &str) -> RepositoryError {
    RepositoryError::Location { text: text.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_shown() {
        let cases = [
            ("s3://bucket/a/b", "s3://bucket/a/b"),
            ("s3://bucket", "s3://bucket"),
            ("S3://bucket/a/", "s3://bucket/a"),
            ("gs://bucket//a", "gs://bucket/a"),
            ("az://container/a", "az://container/a"),
            (
                "abfss://container@account.dfs.core.windows.net/a",
                "abfss://container@account.dfs.core.windows.net/a",
            ),
            ("file:///mnt/shared", "/mnt/shared"),
            ("mirror", "/base/mirror"),
            ("/mnt/shared", "/mnt/shared"),
        ];
        for (text, shown) in cases {
            assert_eq!(Location::parse(text, Path::new("/base")).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_holds_credentials_is_refused_and_not_repeated() {
        let bad = [
            "s3://key:topsecret@bucket/a",
            "s3://topsecret@bucket/a",
            "az://container/a?sig=topsecret",
            "https://topsecret@host/bucket",
            "s3://",
            "file://host/a",
            "s3://bucket/../a",
            "",
        ];
        for text in bad {
            let error = Location::parse(text, Path::new("/base")).unwrap_err();
            assert!(matches!(error, RepositoryError::Location { .. }), "{text}");
            assert!(!error.to_string().contains("topsecret"), "{error}");
        }
    }
}
