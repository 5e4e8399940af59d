//! `floodmark inspect why`: why a window of a key has closed, or has not.

use clap::Args;
use floodmark::error::{Error, ErrorKind};
use floodmark::event_time::EventTime;
use floodmark::inspect::{self, Key, ListedPane, Why, WhyOptions};
use floodmark::pipeline::explain::parse_instant;

use super::place::{Need, One, asked_key};
use super::text::{known, origin};
use crate::console::print_report as print;
use crate::run::grouped;
use crate::table::{Table, printable};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    one: One,
    /// The key, one word for each of its fields, and then the window: its start, or START..END.
    #[arg(required = true, value_name = "KEY… WINDOW", allow_negative_numbers = true)]
    words: Vec<String>,
    /// The key, where it is not text; then WINDOW stands alone.
    #[arg(long, value_name = "B64")]
    key_base64: Vec<String>,
    /// Name of the window in the pipeline; without it the first whose key has as many fields.
    #[arg(long, value_name = "NAME")]
    window: Option<String>,
}

pub(super) fn run(arguments: &Arguments, now_ms: i64) -> Result<(), Error> {
    let One { place, at } = &arguments.one;
    let options = arguments.options()?;
    let located = place.locate(Need::Checkpoint(*at))?;
    let mut report = inspect::why(&located.path, *at, &options, now_ms)?;
    located.name(&mut report.checkpoint.path);
    print(place.json, &report, text)
}

impl Arguments {
    fn options(&self) -> Result<WhyOptions, Error> {
        let Some((window, key)) = self.words.split_last() else {
            return Err(Error::new(ErrorKind::Invalid, "there is no window to explain")
                .with_remedy("give the key and the start of the window"));
        };
        if !key.is_empty() && !self.key_base64.is_empty() {
            let message = format!("the key is given twice: key={key:?} --key-base64={:?}", self.key_base64);
            return Err(Error::new(ErrorKind::Invalid, message).with_remedy("give one of the two"));
        }
        let key = asked_key(key, &self.key_base64)?.unwrap_or(Key(Vec::new()));
        let (start, end) = bounds(window)?;
        Ok(WhyOptions { window: self.window.clone(), key, start, end })
    }
}

/// `TIME` or `START..END`.
fn bounds(text: &str) -> Result<(EventTime, Option<EventTime>), Error> {
    match text.split_once("..") {
        None => Ok((parse_instant(text)?, None)),
        Some((start, end)) => Ok((parse_instant(start)?, Some(parse_instant(end)?))),
    }
}

fn text(why: &Why) -> String {
    let mut text = origin(&why.checkpoint);
    let key = match why.key_fields.is_empty() {
        true => String::new(),
        false => format!(", {} = {}", why.key_fields.join(", "), why.key),
    };
    let (start, end, status) = (why.start, why.end, why.status.name());
    let heading = format!("window {}{key}: [{start}, {end}), {}, {status}", why.window, why.windows);
    text.push_str(&format!("{}\n", printable(&heading)));
    text.push_str(&format!("\n{}\n", printable(&why.answer)));
    for reason in &why.because {
        text.push_str(&format!("  - {}\n", printable(reason)));
    }
    if !why.panes.is_empty() {
        text.push('\n');
        text.push_str(&panes(&why.panes).render(2));
    }
    text
}

fn panes(panes: &[ListedPane]) -> Table {
    let names = panes.iter().find(|pane| pane.problem.is_none());
    let names: Vec<String> = names
        .map_or(Vec::new(), |pane| pane.aggregates.0.iter().map(|(name, _)| format!(">{name}")).collect());
    let headings = ["start", "end", ">events"].into_iter().chain(names.iter().map(String::as_str));
    let mut table = Table::new(&headings.collect::<Vec<_>>());
    for pane in panes {
        let mut cells = vec![pane.start.to_string(), pane.end.to_string(), known(pane.events, grouped)];
        match &pane.problem {
            Some(problem) => cells.push(format!("DAMAGED: {problem}")),
            None => cells.extend(pane.aggregates.0.iter().map(|(_, value)| value.to_string())),
        }
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_given_by_its_start_or_by_both_bounds() {
        let at = EventTime::from_millis;
        assert_eq!(bounds("1000").unwrap(), (at(1_000), None));
        assert_eq!(bounds("-5..1970-01-01T00:00:01Z").unwrap(), (at(-5), Some(at(1_000))));
        assert!(bounds("1000..").is_err() && bounds("soon").is_err());
    }
}
