//! Reading a TOML tree with places: every table knows its keys, every value knows where it stands.
//!
//! Knows TOML and messages; which keys exist and what they mean is said by its callers.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::origin::{Origin, closest};
use super::units;
use crate::error::{Error, Result};
use crate::event_time::Span;

/// A table whose keys were checked against those that are allowed in it.
#[derive(Debug)]
pub(super) struct Section<'a> {
    origin: &'a Origin<'a>,
    /// Dotted path, empty for the root.
    path: String,
    /// Where the table stands.
    span: Range<usize>,
    entries: Vec<(Spanned<std::borrow::Cow<'a, str>>, Spanned<DeValue<'a>>)>,
}

/// A value, its dotted path and its place.
#[derive(Debug)]
pub(super) struct Item<'a> {
    origin: &'a Origin<'a>,
    pub(super) path: String,
    pub(super) span: Range<usize>,
    value: DeValue<'a>,
}

impl<'a> Section<'a> {
    /// The root table of a file.
    pub(super) fn parse(origin: &'a Origin<'a>, allowed: &[&str]) -> Result<Self> {
        let table = DeTable::parse(origin.text).map_err(|error| origin.syntax(&error))?;
        let span = table.span();
        Self::of(origin, String::new(), span, table.into_inner(), allowed)
    }

    fn of(
        origin: &'a Origin<'a>,
        path: String,
        span: Range<usize>,
        table: DeTable<'a>,
        allowed: &[&str],
    ) -> Result<Self> {
        let section = Self { origin, path, span, entries: table.into_iter().collect() };
        for (key, _) in &section.entries {
            let name: &str = key.get_ref();
            if !allowed.contains(&name) {
                return Err(section.unknown_key(name, &key.span(), allowed));
            }
        }
        Ok(section)
    }

    fn unknown_key(&self, name: &str, span: &Range<usize>, allowed: &[&str]) -> Error {
        let place = if self.path.is_empty() { String::new() } else { format!(" in {}", self.path) };
        let remedy = match closest(name, allowed.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("remove it; known here: {}", allowed.join(", ")),
        };
        self.origin.error(span, format!("unknown key `{name}`{place}"), remedy)
    }

    /// The value of `key`, when it is given. Each key can be taken once.
    pub(super) fn take(&mut self, key: &str) -> Option<Item<'a>> {
        let index = self.entries.iter().position(|(name, _)| name.get_ref().as_ref() == key)?;
        let (_, value) = self.entries.swap_remove(index);
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Some(Item { origin: self.origin, path, span: value.span(), value: value.into_inner() })
    }

    /// The value of `key`; its absence is an error with `remedy`.
    pub(super) fn require(&mut self, key: &str, remedy: &str) -> Result<Item<'a>> {
        match self.take(key) {
            Some(item) => Ok(item),
            None => Err(self.error(format!("{}`{key}` is missing", self.prefix()), remedy)),
        }
    }

    fn prefix(&self) -> String {
        if self.path.is_empty() { String::new() } else { format!("{}: ", self.path) }
    }

    /// An error about this table as a whole.
    pub(super) fn error(&self, message: impl AsRef<str>, remedy: impl Into<String>) -> Error {
        self.origin.error(&self.span, message, remedy)
    }
}

impl<'a> Item<'a> {
    /// An error about this value.
    pub(super) fn error(&self, message: impl AsRef<str>, remedy: impl Into<String>) -> Error {
        self.origin.error(&self.span, format!("{}: {}", self.path, message.as_ref()), remedy)
    }

    /// `file:line:column` of this value.
    pub(super) fn place(&self) -> String {
        self.origin.place(self.span.start)
    }

    fn wrong_type(&self, wanted: &str, example: &str) -> Error {
        let found = match &self.value {
            DeValue::String(_) => "text",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.error(format!("expected {wanted}, found {found}"), format!("write for example {example}"))
    }

    /// Text without interpretation.
    pub(super) fn text(&self) -> Result<&str> {
        match &self.value {
            DeValue::String(text) => Ok(text),
            _ => Err(self.wrong_type("text", &format!("{} = \"…\"", self.key()))),
        }
    }

    /// Text that is not empty.
    pub(super) fn name(&self) -> Result<String> {
        let text = self.text()?;
        if text.is_empty() {
            return Err(self.error("must not be empty", format!("give `{}` a value", self.key())));
        }
        Ok(text.to_owned())
    }

    /// True when the value is text.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.value, DeValue::String(_))
    }

    /// True when the value is a table.
    pub(super) fn is_table(&self) -> bool {
        matches!(self.value, DeValue::Table(_))
    }

    /// `true` or `false`.
    pub(super) fn boolean(&self) -> Result<bool> {
        match self.value {
            DeValue::Boolean(value) => Ok(value),
            _ => Err(self.wrong_type("true or false", &format!("{} = true", self.key()))),
        }
    }

    /// A 64-bit integer, when the value is one.
    pub(super) fn as_integer(&self) -> Option<i64> {
        match &self.value {
            DeValue::Integer(value) => i64::from_str_radix(value.as_str(), value.radix()).ok(),
            _ => None,
        }
    }

    /// A finite float, when the value is one.
    pub(super) fn as_float(&self) -> Option<f64> {
        match &self.value {
            DeValue::Float(value) => value.as_str().parse().ok().filter(|value: &f64| value.is_finite()),
            _ => None,
        }
    }

    /// A boolean, when the value is one.
    pub(super) fn as_boolean(&self) -> Option<bool> {
        match self.value {
            DeValue::Boolean(value) => Some(value),
            _ => None,
        }
    }

    /// A positive integer of at most 32 bits.
    pub(super) fn count(&self) -> Result<u32> {
        self.count_or_zero().and_then(|value| if value > 0 { Ok(value) } else { Err(self.not_a_count(1)) })
    }

    /// A whole number, or zero where that turns something off.
    pub(super) fn count_or_zero(&self) -> Result<u32> {
        let value = match &self.value {
            DeValue::Integer(_) => self.as_integer().and_then(|value| u32::try_from(value).ok()),
            _ => return Err(self.wrong_type("a whole number", &format!("{} = 3", self.key()))),
        };
        value.ok_or_else(|| self.not_a_count(0))
    }

    fn not_a_count(&self, least: u32) -> Error {
        let message = format!("must be at least {least} and at most 4294967295");
        self.error(message, format!("write for example {} = 3", self.key()))
    }

    /// One of several words, as the value that goes with it.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T> {
        let word = self.text()?;
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == word) {
            return Ok(*value);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let remedy = match closest(word, names.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"? known: {}", names.join(", ")),
            None => format!("choose one of {}", names.join(", ")),
        };
        Err(self.error(format!("\"{word}\" is not known here"), remedy))
    }

    /// Signed milliseconds of a duration such as `"1h 30m"`.
    pub(super) fn millis(&self) -> Result<i64> {
        if !self.is_text() {
            return Err(self.wrong_type("a length of time as text", &format!("{} = \"15m\"", self.key())));
        }
        let text = self.text()?;
        units::millis(text).map_err(|reason| {
            self.error(
                format!("\"{text}\" is not a length of time: {reason}"),
                "write a number and a unit, such as \"250ms\", \"90s\", \"15m\", \"1h 30m\" or \"1d\"",
            )
        })
    }

    /// A duration that is not negative.
    pub(super) fn span(&self) -> Result<Span> {
        let millis = self.millis()?;
        Span::from_millis(millis).ok_or_else(|| {
            self.error("must not be negative", format!("write {} = \"0s\" or more", self.key()))
        })
    }

    /// A duration longer than nothing.
    pub(super) fn positive_span(&self) -> Result<Span> {
        match Span::from_millis(self.millis()?) {
            Some(span) if span > Span::ZERO => Ok(span),
            _ => {
                Err(self
                    .error("must be longer than zero", format!("write for example {} = \"10s\"", self.key())))
            }
        }
    }

    /// A number of bytes: `"512MiB"`, `"1GB"`, `"65536"` or `65536`.
    pub(super) fn bytes(&self) -> Result<u64> {
        let remedy = "write for example \"512MiB\", \"1GB\" or \"65536\"";
        let value = match &self.value {
            DeValue::String(text) => units::bytes(text),
            DeValue::Integer(_) => self.as_integer().and_then(|value| u64::try_from(value).ok()),
            _ => return Err(self.wrong_type("a number of bytes", &format!("{} = \"512MiB\"", self.key()))),
        };
        match value {
            Some(0) => Err(self.error("must be more than zero bytes", remedy)),
            Some(bytes) => Ok(bytes),
            None => Err(self.error("this is not a number of bytes", remedy)),
        }
    }

    /// The items of a list.
    pub(super) fn list(self) -> Result<Vec<Item<'a>>> {
        if !matches!(self.value, DeValue::Array(_)) {
            let key = self.key();
            // Tables of the root are many where one may be enough: `[window]` for `[[window]]`.
            return Err(match self.is_table() && self.path == key {
                true => self.error(
                    "expected a list of tables, found a table",
                    format!("write [[{key}]], also for a single one"),
                ),
                false => self.wrong_type("a list", &format!("{key} = [ … ]")),
            });
        }
        let DeValue::Array(items) = self.value else { return Ok(Vec::new()) };
        let (origin, path) = (self.origin, self.path);
        let item = |(index, value): (usize, Spanned<DeValue<'a>>)| Item {
            origin,
            path: format!("{path}[{}]", index + 1),
            span: value.span(),
            value: value.into_inner(),
        };
        Ok(items.into_iter().enumerate().map(item).collect())
    }

    /// The value as a table with the given keys.
    pub(super) fn section(self, allowed: &[&str]) -> Result<Section<'a>> {
        match self.value {
            DeValue::Table(table) => Section::of(self.origin, self.path, self.span, table, allowed),
            _ => Err(self.wrong_type("a table", &format!("{} = {{ … }}", self.key()))),
        }
    }

    /// As [`Item::section`], for a value that is still needed for messages.
    pub(super) fn to_section(&self, allowed: &[&str]) -> Result<Section<'a>> {
        Item {
            origin: self.origin,
            path: self.path.clone(),
            span: self.span.clone(),
            value: self.value.clone(),
        }
        .section(allowed)
    }

    /// The last part of the path, without a list index: the key to show in examples.
    fn key(&self) -> &str {
        let last = self.path.rsplit('.').next().unwrap_or(&self.path);
        last.split('[').next().unwrap_or(last)
    }
}
