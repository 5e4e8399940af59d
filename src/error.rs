//! The public error: what happened in one sentence, and what the caller can do next.
//!
//! Modules keep private error types that say what went wrong in their own words; they become a [`Error`] at the
//! public face, with the private error kept as `source`.

use std::fmt;

/// What the caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request is wrong: fix the call, the pipeline file or the input.
    Invalid,
    /// The machine is in the way (missing file, permission, full disk): mend it and try again.
    Unavailable,
    /// Another process owns the directory, or has taken over the lineage.
    Locked,
    /// Stored bytes are damaged: restore from another checkpoint.
    Damaged,
    /// State and definition do not fit: migrate, change the definition, or start a new state directory.
    Incompatible,
    /// This store failed earlier and refuses work: reopen it, which restores the last checkpoint.
    Poisoned,
    /// A defect in Floodmark: please report it.
    Bug,
}

impl ErrorKind {
    /// Stable lowercase name, used in logs and `--json` output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unavailable => "unavailable",
            Self::Locked => "locked",
            Self::Damaged => "damaged",
            Self::Incompatible => "incompatible",
            Self::Poisoned => "poisoned",
            Self::Bug => "bug",
        }
    }
}

/// Something did not work: what, and through [`Error::kind`] and [`Error::remedy`], what to do about it.
pub struct Error {
    kind: ErrorKind,
    message: String,
    remedy: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync + 'static>>,
}

impl Error {
    /// An error of a kind with its sentence: lowercase, specific, details as `key=value` at the end.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), remedy: None, source: None }
    }

    /// Adds what the reader should do, as an imperative sentence.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Keeps the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What the caller can do next.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The advice, when there is any.
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.kind.name())?;
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

/// Result with the public [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
