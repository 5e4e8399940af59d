//! Settings that are fine alone and wrong together: directories that coincide, names and types that clash.
//!
//! Remembers where each claim was made, so that a refusal names both places.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::aggregate::InputType;
use super::origin::{Origin, closest};
use super::reader::Item;
use super::source::SourceConfig;
use crate::error::Result;

/// What was claimed so far, and where.
#[derive(Debug)]
pub(super) struct Places<'a> {
    origin: &'a Origin<'a>,
    directories: Vec<Directory>,
    tables: Vec<(String, String, String)>,
    console: Option<String>,
    field_types: HashMap<String, (InputType, String)>,
    sources: Vec<(String, String)>,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    what: String,
    span: Range<usize>,
    is_state: bool,
}

impl<'a> Places<'a> {
    pub(super) fn new(origin: &'a Origin<'a>) -> Self {
        Self {
            origin,
            directories: Vec::new(),
            tables: Vec::new(),
            console: None,
            field_types: HashMap::new(),
            sources: Vec::new(),
        }
    }

    /// Notes that there is a source called `name`.
    pub(super) fn add_source(&mut self, item: Option<&Item<'_>>, name: &str) -> Result<()> {
        let place = item.map(Item::place).unwrap_or_default();
        if let (Some((_, earlier)), Some(item)) = (self.sources.iter().find(|(known, _)| known == name), item)
        {
            let message = format!("there is a source \"{name}\" already, at {earlier}");
            return Err(item.error(message, "give each source its own name"));
        }
        self.sources.push((name.to_owned(), place));
        Ok(())
    }

    /// The name of a source that has to exist.
    pub(super) fn source(&self, item: &Item<'_>) -> Result<String> {
        let name = item.name()?;
        if self.sources.iter().any(|(known, _)| *known == name) {
            return Ok(name);
        }
        let known = || self.sources.iter().map(|(known, _)| known.as_str());
        let remedy = match closest(&name, known()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("name one of the sources: {}", known().collect::<Vec<_>>().join(", ")),
        };
        Err(item.error(format!("there is no source \"{name}\""), remedy))
    }

    /// Notes that `what` will own the directory at `path`. The first one noted is the state directory.
    pub(super) fn add_directory(&mut self, item: &Item<'_>, what: &str, path: &Path) {
        let is_state = self.directories.is_empty();
        self.directories.push(Directory {
            path: path.to_owned(),
            what: what.to_owned(),
            span: item.span.clone(),
            is_state,
        });
    }

    /// The state directory, which is noted before all others.
    pub(super) fn state_directory(&self) -> PathBuf {
        self.directories.first().map(|directory| directory.path.clone()).unwrap_or_default()
    }

    /// Notes that `what` writes a table; each has one writer.
    pub(super) fn add_table(
        &mut self,
        item: &Item<'_>,
        what: &str,
        url_env: &str,
        table: &str,
    ) -> Result<()> {
        let taken = self.tables.iter().find(|(env, known, _)| env == url_env && known == table);
        if let Some((_, _, earlier)) = taken {
            let message = format!("{what} writes the same table as {earlier}");
            return Err(item.error(message, "give each output a table of its own"));
        }
        let place = format!("{what} at {}", item.place());
        self.tables.push((url_env.to_owned(), table.to_owned(), place));
        Ok(())
    }

    /// Notes that an output is printed; rows of two would be mixed.
    pub(super) fn add_console(&mut self, item: &Item<'_>) -> Result<()> {
        if let Some(earlier) = &self.console {
            let message =
                format!("rows of two outputs would be mixed on standard output; the other is at {earlier}");
            return Err(item.error(message, "print one of them, and give the other a directory"));
        }
        self.console = Some(item.place());
        Ok(())
    }

    /// Refuses directories with two owners, one inside another, and input from an own output.
    pub(super) fn check_directories(&self, sources: &[SourceConfig]) -> Result<()> {
        for (index, later) in self.directories.iter().enumerate() {
            for earlier in &self.directories[..index] {
                let nested = later.path.starts_with(&earlier.path) || earlier.path.starts_with(&later.path);
                if nested {
                    let place = self.origin.place(earlier.span.start);
                    let shares = match later.path == earlier.path || earlier.is_state {
                        true => "shares its directory with",
                        false => "is inside, or around, the directory of",
                    };
                    let message = format!("{} {shares} {} at {place}", later.what, earlier.what);
                    return Err(self.origin.error(&later.span, message, "give each a directory of its own"));
                }
            }
            let patterns =
                sources.iter().flat_map(|source| source.patterns.iter().map(move |path| (source, path)));
            for (source, pattern) in patterns.filter(|(_, pattern)| pattern.as_os_str() != "-") {
                if literal_directory(pattern).starts_with(&later.path) {
                    let message =
                        format!("{} is where the source at {} reads from", later.what, source.declared_at);
                    return Err(self.origin.error(
                        &later.span,
                        message,
                        "write to a directory that is not read",
                    ));
                }
            }
        }
        Ok(())
    }

    /// Notes that aggregates read `field` as `input`; one field has one type in a pipeline.
    pub(super) fn add_field_type(&mut self, item: &Item<'_>, field: &str, input: InputType) -> Result<()> {
        let (known, place) =
            self.field_types.entry(field.to_owned()).or_insert_with(|| (input, item.place())).clone();
        if known == input {
            return Ok(());
        }
        let message =
            format!("field `{field}` is read as {} here and as {} at {place}", input.name(), known.name());
        Err(item.error(message, "read a field with one type everywhere in the pipeline"))
    }
}

/// The directory part of a pattern up to its first wildcard.
fn literal_directory(pattern: &Path) -> PathBuf {
    let wild = |part: &std::ffi::OsStr| part.to_string_lossy().contains(['*', '?', '[']);
    let literal: PathBuf = pattern.iter().take_while(|part| !wild(part)).collect();
    if literal == pattern { literal.parent().map_or(PathBuf::new(), Path::to_owned) } else { literal }
}
