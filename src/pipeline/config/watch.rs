//! The `[status]` and `[watch]` tables: where a run shows how it stands, and what it warns of.
//!
//! Plain data; neither changes a result, so both may change between two runs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::reader::{Item, Section};
use super::source::SourceConfig;
use crate::error::Result;
use crate::event_time::Span;

/// The port of the status page unless the file says otherwise.
const PORT: u16 = 9470;
/// The watermark may stand still for so long, in milliseconds.
const STALLED_MS: i64 = 300_000;
/// A partition of a pipeline with a live source may be so far from the others, in milliseconds.
const SKEW_MS: i64 = 3_600_000;
/// This share of the events may be late.
const LATE_SHARE: f64 = 0.05;
/// Over this time, in milliseconds.
const LATE_OVER_MS: i64 = 60_000;
/// A checkpoint may take so many intervals, and at least so long, in milliseconds.
const CHECKPOINT_INTERVALS: i64 = 6;
const CHECKPOINT_AGE_MS_MIN: i64 = 60_000;

/// Where a run shows how it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusConfig {
    /// The address to listen at.
    pub address: SocketAddr,
    /// Whether keys, and what belongs to single keys, may be shown.
    pub keys: bool,
}

impl Default for StatusConfig {
    fn default() -> Self {
        Self { address: SocketAddr::new(loopback(), PORT), keys: false }
    }
}

/// What a run warns of. `None` turns a warning off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchConfig {
    /// The watermark has not moved for so long.
    pub stalled: Option<Span>,
    /// The latest event of a partition is so far from the median of the others.
    pub skew: Option<Span>,
    /// One event moved the watermark by more than this.
    pub jump: Jumps,
    /// More than this share of the events was late, between 0 and 1.
    pub late_share: Option<f64>,
    /// The time over which that share is taken.
    pub late_over: Span,
    /// Events have been waiting for a checkpoint for so long.
    pub checkpoint_age: Option<Span>,
}

/// Which jumps of the watermark are remarked on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jumps {
    /// Those of more than a hundred delays, and at least a day.
    #[default]
    Unusual,
    /// Those of more than this.
    Above(Span),
    /// None.
    Off,
}

const fn loopback() -> IpAddr {
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}

/// Reads an address to listen at: `9470`, `127.0.0.1:9470`, `[::1]:9470`, `localhost:9470`. A port alone is on this
/// machine only.
#[must_use]
pub fn parse_address(text: &str) -> Option<SocketAddr> {
    if let Ok(port) = text.parse() {
        return Some(SocketAddr::new(loopback(), port));
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        return port.parse().ok().map(|port| SocketAddr::new(loopback(), port));
    }
    text.parse().ok()
}

/// Reads `[status]`.
pub(super) fn read_status(root: &mut Section<'_>) -> Result<Option<StatusConfig>> {
    let Some(item) = root.take("status") else { return Ok(None) };
    let mut section = item.section(&["address", "keys"])?;
    let default = StatusConfig::default();
    Ok(Some(StatusConfig {
        address: section.take("address").map_or(Ok(default.address), |item| read_address(&item))?,
        keys: section.take("keys").map_or(Ok(default.keys), |item| item.boolean())?,
    }))
}

fn read_address(item: &Item<'_>) -> Result<SocketAddr> {
    let text = match item.as_integer() {
        Some(port) => port.to_string(),
        None => item.text()?.to_owned(),
    };
    parse_address(&text).ok_or_else(|| {
        let remedy = "write a port, such as \"9470\", or an address with a port, such as \"127.0.0.1:9470\"";
        item.error(format!("\"{text}\" is no address to listen at"), remedy)
    })
}

/// Reads `[watch]`. What is usual depends on the sources, and on how often there are checkpoints.
pub(super) fn read_watch(
    root: &mut Section<'_>,
    sources: &[SourceConfig],
    interval: Span,
) -> Result<WatchConfig> {
    let default = defaults(sources, interval);
    let Some(item) = root.take("watch") else { return Ok(default) };
    let keys = ["stalled", "skew", "jump", "late_share", "late_over", "checkpoint_age"];
    let mut section = item.section(&keys)?;
    Ok(WatchConfig {
        stalled: section.take("stalled").map_or(Ok(default.stalled), |item| span_or_off(&item))?,
        skew: section.take("skew").map_or(Ok(default.skew), |item| span_or_off(&item))?,
        jump: match section.take("jump") {
            None => default.jump,
            Some(item) => span_or_off(&item)?.map_or(Jumps::Off, Jumps::Above),
        },
        late_share: section.take("late_share").map_or(Ok(default.late_share), |item| read_share(&item))?,
        late_over: section.take("late_over").map_or(Ok(default.late_over), |item| item.positive_span())?,
        checkpoint_age: section
            .take("checkpoint_age")
            .map_or(Ok(default.checkpoint_age), |item| span_or_off(&item))?,
    })
}

fn defaults(sources: &[SourceConfig], interval: Span) -> WatchConfig {
    let is_live = sources.iter().any(SourceConfig::is_live);
    let age = interval.as_millis().saturating_mul(CHECKPOINT_INTERVALS).max(CHECKPOINT_AGE_MS_MIN);
    WatchConfig {
        stalled: Span::from_millis(STALLED_MS),
        skew: Span::from_millis(SKEW_MS).filter(|_| is_live),
        jump: Jumps::Unusual,
        late_share: Some(LATE_SHARE),
        late_over: Span::from_millis(LATE_OVER_MS).unwrap_or_default(),
        checkpoint_age: Span::from_millis(age),
    }
}

fn is_off(item: &Item<'_>) -> bool {
    item.is_text() && item.text().is_ok_and(|text| text == "off")
}

fn span_or_off(item: &Item<'_>) -> Result<Option<Span>> {
    if is_off(item) { Ok(None) } else { item.positive_span().map(Some) }
}

fn read_share(item: &Item<'_>) -> Result<Option<f64>> {
    if is_off(item) {
        return Ok(None);
    }
    let share = item.as_float().or_else(|| item.as_integer().map(|whole| whole as f64));
    match share {
        Some(share) if (0.0..=1.0).contains(&share) => Ok(Some(share)),
        _ => Err(item.error(
            "this is no share of the events",
            "write a number between 0 and 1, such as 0.05 for one in twenty, or \"off\"",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::PipelineConfig;
    use super::*;
    use crate::error::Error;

    fn read(tables: &str, path: &str) -> Result<PipelineConfig, Error> {
        let text = format!(
            "name = \"p\"\n[source]\npath = \"{path}\"\nformat = \"jsonl\"\ntime = {{ field = \"t\", format = \
             \"epoch_ms\" }}\n[watermark]\ndelay = \"1s\"\n[state]\ndirectory = \"s\"\n[checkpoint]\ninterval = \"20s\"\n\
             [[window]]\nname = \"w\"\ntype = \"tumbling\"\nsize = \"1m\"\naggregates = [{{ name = \"n\", function = \
             \"count\" }}]\noutput = {{ path = \"out\" }}\n{tables}"
        );
        PipelineConfig::from_str(&text, Path::new("p.toml"))
    }

    fn seconds(seconds: i64) -> Option<Span> {
        Span::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_status_page_is_off_until_asked_for_and_then_on_this_machine_only() {
        assert_eq!(read("", "in").unwrap().status, None);
        let status = read("[status]\n", "in").unwrap().status.unwrap();
        assert_eq!((status.address.to_string().as_str(), status.keys), ("127.0.0.1:9470", false));
        let status = read("[status]\naddress = \"0.0.0.0:80\"\nkeys = true\n", "in").unwrap().status.unwrap();
        assert_eq!((status.address.to_string().as_str(), status.keys), ("0.0.0.0:80", true));
        let said = read("[status]\naddress = \"here\"\n", "in").unwrap_err().to_string();
        assert!(said.contains("status.address: \"here\" is no address"), "{said}");
    }

    #[test]
    fn an_address_may_be_a_port_alone() {
        let shown = |text| parse_address(text).map(|address| address.to_string());
        assert_eq!(shown("8080").as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(shown("localhost:0").as_deref(), Some("127.0.0.1:0"));
        assert_eq!(shown("[::1]:9").as_deref(), Some("[::1]:9"));
        for wrong in ["", "70000", "127.0.0.1", "example.org:80", "-1"] {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_warned_of_depends_on_the_pipeline_until_it_is_said() {
        let files = read("", "in").unwrap().watch;
        assert_eq!((files.stalled, files.skew, files.checkpoint_age), (seconds(300), None, seconds(120)));
        assert_eq!(read("", "-").unwrap().watch.skew, seconds(3_600));
        let text = "[watch]\nstalled = \"10s\"\nskew = \"2m\"\njump = \"1h\"\nlate_share = 0.5\nlate_over = \"5s\"\n\
                    checkpoint_age = \"off\"\n";
        let said = WatchConfig {
            stalled: seconds(10),
            skew: seconds(120),
            jump: Jumps::Above(seconds(3_600).unwrap()),
            late_share: Some(0.5),
            late_over: seconds(5).unwrap(),
            checkpoint_age: None,
        };
        assert_eq!(read(text, "in").unwrap().watch, said);
        for wrong in ["late_share = 5", "late_share = \"few\"", "stalled = \"0s\"", "skw = \"1s\""] {
            let error = read(&format!("[watch]\n{wrong}\n"), "in").unwrap_err();
            assert!(error.to_string().contains("p.toml:") && error.remedy().is_some(), "{error}");
        }
    }
}
