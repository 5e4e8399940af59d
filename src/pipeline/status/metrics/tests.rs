use super::super::tests::running;
use super::*;

fn both() -> [String; 2] {
    let mut snapshot = running();
    snapshot.run.pipeline = "odd\"name".to_owned();
    snapshot.partitions[0].name = "dir\\a\nb".to_owned();
    snapshot.input.this_run.rejected.insert("missing_key".to_owned(), 3);
    [Format::Prometheus, Format::OpenMetrics]
        .map(|format| text(&snapshot, &Warnings::default(), 2_500, format))
}

#[test]
fn open_metrics_is_for_those_who_prefer_it() {
    let scraper = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    assert_eq!(Format::accepted(scraper), Format::OpenMetrics);
    assert_eq!(Format::accepted("application/openmetrics-text"), Format::OpenMetrics);
    for accept in [
        "",
        "*/*",
        "text/html",
        "text/plain,application/openmetrics-text;q=0.4",
        "application/openmetrics-text;q=0",
    ] {
        assert_eq!(Format::accepted(accept), Format::Prometheus, "{accept}");
    }
}

#[test]
fn each_format_names_counters_and_ends_as_it_has_to() {
    let [prometheus, open] = both();
    assert!(prometheus.contains("# TYPE floodmark_input_events_total counter\n"));
    assert!(open.contains("# TYPE floodmark_input_events counter\n"));
    assert!(open.contains("# UNIT floodmark_watermark_lag_seconds seconds\n"));
    assert!(open.ends_with("# EOF\n") && !prometheus.contains("# EOF"));
    for text in [prometheus, open] {
        assert!(text.contains("floodmark_input_events_total{pipeline=\"odd\\\"name\"} 0\n"), "{text}");
        let rejected =
            "floodmark_rejected_records_total{pipeline=\"odd\\\"name\",reason=\"missing_key\"} 3\n";
        assert!(text.contains(rejected), "{text}");
        assert!(text.contains("partition=\"dir\\\\a\\nb\""), "{text}");
    }
}

#[test]
fn ages_go_on_while_the_task_shows_nothing() {
    let [text, _] = both();
    for line in [
        "floodmark_snapshot_age_seconds{pipeline=\"odd\\\"name\"} 2.5\n",
        "floodmark_watermark_unmoved_seconds{pipeline=\"odd\\\"name\"} 2.5\n",
        "floodmark_watermark_event_lag_seconds{pipeline=\"odd\\\"name\"} 31\n",
        "floodmark_watermark_timestamp_seconds{pipeline=\"odd\\\"name\"} 59\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn every_metric_has_its_row_in_the_documentation_and_no_other_has() {
    let mut snapshot = running();
    snapshot.repository = Some(crate::pipeline::Uploads::default());
    let text = text(&snapshot, &Warnings::default(), 0, Format::Prometheus);
    let names = |line: &str, before: &str| Some(line.strip_prefix(before)?.split(' ').next()?.to_owned());
    let mut written: Vec<String> = text.lines().filter_map(|line| names(line, "# TYPE ")).collect();
    let page = include_str!("../../../../docs/METRICS.md");
    let told = page.lines().filter_map(|line| line.strip_prefix("| `floodmark_")?.split('`').next());
    let mut told: Vec<String> = told.map(|name| format!("floodmark_{name}")).collect();
    written.sort();
    told.sort();
    assert_eq!(written, told, "left: the code; right: docs/METRICS.md");
}

#[test]
fn partitions_beyond_the_bound_are_counted_and_not_listed() {
    let mut snapshot = running();
    snapshot.partitions =
        (0..PARTITIONS_MAX + 5).map(|index| super::super::tests::partition(&index.to_string(), 0)).collect();
    snapshot.partitions_left_out = 2;
    let text = text(&snapshot, &Warnings::default(), 0, Format::Prometheus);
    let listed = text.lines().filter(|line| line.starts_with("floodmark_partition_records_total{")).count();
    assert_eq!(listed, PARTITIONS_MAX);
    assert!(text.contains("floodmark_partitions_left_out{pipeline=\"visits\"} 7\n"));
}
