//! The pipeline file as a whole: one that is right, and a table of those that are wrong.

use std::path::Path;

use super::*;

const FLIGHTS: &str = r#"name = "flights-hourly"

[source]
path = "../data/flights*.jsonl.zst"
time = { field = "sched_dep", format = "rfc3339", min = "2000-01-01T00:00:00Z", max_ahead = "5m" }
[[source.filter]]
field = "dep_delay"
not_null = true
[[source.filter]]
field = "dep_delay"
min = -100
max = 2000.5

[watermark]
delay = "15m"

[state]
directory = "state/flights"

[[window]]
name = "hourly"
key = ["origin", { field = "flight", type = "int" }]
type = "tumbling"
size = "1h"
offset = "-5m"
mode = "append"
aggregates = [
  { name = "flights", function = "count" },
  { name = "delay_sum", function = "sum", field = "dep_delay", type = "int" },
]
output = { path = "out/hourly" }

[late]
path = "out/late"
"#;

fn refusal(text: &str) -> (String, String) {
    match PipelineConfig::from_str(text, Path::new("conf/flights.toml")) {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            (error.to_string(), error.remedy().expect("every refusal has a remedy").to_owned())
        }
    }
}

#[test]
fn a_full_file_is_read_with_defaults_and_resolved_paths() {
    let config = PipelineConfig::from_str(FLIGHTS, Path::new("conf/flights.toml")).unwrap();
    assert_eq!(config.name, "flights-hourly");
    assert_eq!(config.sources[0].patterns, [PathBuf::from("data/flights*.jsonl.zst")]);
    assert_eq!(config.sources[0].declared_at, "conf/flights.toml:4:8");
    assert_eq!(config.sources[0].format, Format::JsonLines);
    assert_eq!(config.sources[0].filters[1].max, Some(Bound::Float(2000.5)));
    assert_eq!(
        config.sources[0].watermark.strategy,
        WatermarkStrategy::Bounded(Span::from_millis(900_000).unwrap())
    );
    assert!(config.watermark.close_at_end);
    assert_eq!(config.state.directory, Path::new("conf/state/flights"));
    assert_eq!(config.state.memory_bytes, 512 << 20);
    assert_eq!(config.checkpoint.interval, Span::from_millis(10_000).unwrap());
    assert_eq!(config.checkpoint.retain, 3);
    assert_eq!(config.checkpoint.verify_every, 16);
    let window = &config.windows[0];
    assert_eq!(window.key[1], KeyField { field: "flight".to_owned(), key_type: KeyType::Int });
    assert_eq!(window.windows.to_string(), "tumbling 1h with offset -5m");
    assert_eq!(window.trigger, Trigger::Watermark);
    assert!(!window.output.metadata);
    assert_eq!(config.late.as_deref(), Some(Path::new("conf/out/late")));
    assert_eq!(config.dead_letter, None);
}

#[test]
fn metadata_is_on_by_default_where_a_pane_can_be_emitted_twice() {
    for (from, to) in [
        ("mode = \"append\"", "mode = \"update\""),
        ("mode = \"append\"", "mode = \"append\"\ntrigger = { count = 5 }"),
        ("mode = \"append\"", "mode = \"append\"\nallowed_lateness = \"1m\""),
    ] {
        let config = PipelineConfig::from_str(&FLIGHTS.replace(from, to), Path::new("a.toml")).unwrap();
        assert!(config.windows[0].output.metadata, "{to}");
    }
}

/// Replaced text, its replacement, then parts of the message and of the remedy.
const REFUSED: &[(&str, &str, &str, &str)] = &[
    ("delay = \"15m\"", "dealy = \"15m\"", "flights.toml:15:1: unknown key `dealy` in watermark", "`delay`"),
    ("[late]", "[lat]", "unknown key `lat`", "`late`"),
    ("delay = \"15m\"", "zzz = 1", "unknown key `zzz` in watermark", "idle_timeout"),
    ("[watermark]\ndelay = \"15m\"", "", "window[1].mode: append needs a watermark", "[watermark]"),
    (
        "[watermark]\ndelay = \"15m\"",
        "[watermark]\nidle_timeout = \"1m\"",
        "no effect without a watermark",
        "delay",
    ),
    ("delay = \"15m\"", "strategy = \"bounded\"", "a bounded watermark needs a delay", "15m"),
    (
        "delay = \"15m\"",
        "strategy = \"monotone\"\ndelay = \"15m\"",
        "belongs to `strategy = \"bounded\"`",
        "remove",
    ),
    ("delay = \"15m\"", "strategy = \"punctuated\"", "needs the name of its field", "field"),
    ("delay = \"15m\"", "delay = \"15m\"\nfield = \"w\"", "belongs to `strategy = \"punctuated\"`", "remove"),
    ("delay = \"15m\"", "delay = \"15m\"\npolicy = \"mean\"", "\"mean\" is not known", "min, max"),
    ("delay = \"15m\"", "delay = \"-15m\"", "must not be negative", "0s"),
    ("delay = \"15m\"", "delay = \"15m\"\nidle_advance = \"0s\"", "must be longer than zero", "10s"),
    ("delay = \"15m\"", "idle_advance = \"1m\"", "no effect without a watermark", "delay"),
    (
        "delay = \"15m\"",
        "delay = \"15m\"\nbounds = { max = \"1990-01-01T00:00:00Z\" }",
        "the latest time believed, 1990-01-01T00:00:00Z, is before the earliest, 2000-01-01T00:00:00Z",
        "watermark.bounds",
    ),
    ("delay = \"15m\"", "delay = \"15m\"\nbounds = { max_ahead = \"never\" }", "not a length of time", "90s"),
    (
        "[watermark]",
        "[source.watermark]\nstrategy = \"none\"\nidle_timeout = \"1m\"\n[watermark]",
        "source.watermark.idle_timeout: has no effect without a watermark",
        "strategy",
    ),
    (
        "name = \"hourly\"",
        "name = \"hourly\"\nsource = \"flights\"",
        "there is no source \"flights\"",
        "source",
    ),
    ("name = \"hourly\"", "name = \"hourly\"\nsource = []", "the list is empty", "remove"),
    ("size = \"1h\"", "size = \"0s\"", "flights.toml:24:8: window[1].size: must be longer than zero", "10s"),
    ("size = \"1h\"", "size = \"-1s\"", "window[1].size: must be longer than zero", "10s"),
    ("size = \"1h\"", "size = \"1mo\"", "no fixed length", "1h 30m"),
    ("size = \"1h\"", "size = 3600", "expected a length of time as text, found an integer", "15m"),
    ("offset = \"-5m\"", "offset = \"-60m\"", "window[1].offset: the offset reaches a whole window", "-size"),
    ("type = \"tumbling\"\n", "type = \"tumblin\"\n", "\"tumblin\" is not known", "\"tumbling\""),
    ("\"origin\",", "\"origin\", \"origin\",", "`origin` is in the key already", "remove"),
    ("name = \"flights\"", "name = \"origin\"", "\"origin\" is taken by a field of the key", "another"),
    (
        "name = \"flights\"",
        "name = \"delay_sum\"",
        "\"delay_sum\" is taken by an aggregate before",
        "another",
    ),
    ("name = \"flights\"", "name = \"watermark\"", "a column that every result row has", "another"),
    ("function = \"count\"", "function = \"count\", type = \"int\"", "count without a field", "remove"),
    ("function = \"count\"", "function = \"avg\"", "avg of \"flights\" needs a field", "field"),
    (", type = \"int\" },\n]", " },\n]", "sum of `dep_delay` needs the field's type", "int"),
    (
        "function = \"count\"",
        "function = \"max\", field = \"dep_delay\", type = \"float\"",
        "field `dep_delay` is read as int here and as float at conf/flights.toml:28:",
        "one type",
    ),
    ("type = \"int\" },\n]", "type = \"string\" },\n]", "sum of `dep_delay` needs numbers", "\"decimal(2)\""),
    ("type = \"int\" },\n]", "type = \"decimal\" },\n]", "how many digits stand behind", "decimal(2)"),
    ("type = \"int\" },\n]", "type = \"decimal(19)\" },\n]", "how many digits stand behind", "from 0 to 18"),
    ("type = \"int\" },\n]", "type = \"text\" },\n]", "\"text\" is not known", "string"),
    ("\"sum\"", "\"som\"", "flights.toml:29:36: window[1].aggregates[2].function: \"som\" is not", "\"sum\""),
    ("\"sum\"", "\"sum\", limit = 5", "limit: has no meaning for sum", "remove"),
    ("\"sum\"", "\"median\", q = 0.5", "q: has no meaning for median", "remove"),
    ("\"sum\"", "\"quantile\"", "quantile needs `q`", "q = 0.95"),
    ("\"sum\"", "\"quantile\", q = 1.5", "from 0 to 1", "q = 0.95"),
    ("\"sum\"", "\"quantile\", q = -0.1", "from 0 to 1", "q = 0.95"),
    ("\"sum\"", "\"distinct\", limit = 0", "at least 1", "limit"),
    ("\"sum\"", "\"distinct\", limit = 100001", "larger than 100000", "smaller"),
    ("\"sum\"", "\"distinct\", beyond = \"guess\"", "\"guess\" is not known", "estimate"),
    ("\"sum\"", "\"approx_distinct\", precision = 3", "from 4 to 18", "14"),
    ("\"sum\"", "\"approx_distinct\", precision = 300", "from 4 to 18", "14"),
    ("\"sum\"", "\"top_k\", k = 20, limit = 10", "more than the 10 different values", "smaller `k`"),
    ("\"sum\"", "\"collect\", keep = \"some\"", "\"some\" is not known", "last"),
    (
        "mode = \"append\"",
        "mode = \"update\"\naccumulation = \"discarding\"",
        "discarding rows",
        "accumulating",
    ),
    ("mode = \"append\"", "mode = \"append\"\ntrigger = { count = 0 }", "at least 1", "count"),
    ("mode = \"append\"", "mode = \"append\"\ntrigger = {}", "trigger is empty", "early"),
    (
        "\"out/late\"",
        "\"out/hourly\"",
        "the late output shares its directory with the output of window",
        "own",
    ),
    ("\"out/late\"", "\"./out/../out/hourly\"", "shares its directory", "own"),
    ("\"out/late\"", "\"state/flights/late\"", "shares its directory with the state directory", "own"),
    ("\"out/late\"", "\"../data\"", "is where the source at conf/flights.toml:4:8 reads from", "not read"),
    ("format = \"rfc3339\"", "format = \"epoch\"", "\"epoch\" is not known", "epoch_s"),
    (", format = \"rfc3339\"", "", "`format` is missing", "never guessed"),
    ("format = \"rfc3339\"", "format = \"rfc3339\", zone = \"UTC\"", "belongs to", "strftime"),
    ("format = \"rfc3339\"", "format = \"strftime\"", "strftime needs a pattern", "pattern"),
    (
        "format = \"rfc3339\"",
        "format = \"strftime\", pattern = \"%Y-%m-%d %H:%M\"",
        "a zone is needed",
        "zone",
    ),
    (
        "format = \"rfc3339\"",
        "format = \"strftime\", pattern = \"%Y-%m-%d %H:%M%z\", zone = \"UTC\"",
        "already reads an offset",
        "remove",
    ),
    ("format = \"rfc3339\"", "format = \"strftime\", pattern = \"%Y %J\"", "cannot be used", "directives"),
    (
        "format = \"rfc3339\"",
        "format = \"strftime\", pattern = \"%H:%M\", zone = \"UTC\"",
        "cannot be used",
        "direct",
    ),
    (
        "format = \"rfc3339\"",
        "format = \"strftime\", pattern = \"%Y-%m-%d %H\", zone = \"Mars/Base\"",
        "\"Mars/Base\" is not known",
        "IANA",
    ),
    ("max_ahead = \"5m\"", "max = \"1999-01-01T00:00:00Z\"", "max is before min", "swap"),
    ("min = -100", "min = 5000", "max is below min", "swap"),
    ("not_null = true", "", "filter on `dep_delay` has no condition", "not_null"),
    ("path = \"../data/flights*.jsonl.zst\"", "path = \"data/*\"", "does not tell the format", "jsonl"),
    ("path = \"../data/flights*.jsonl.zst\"", "path = \"data/[\"", "not a pattern", "brackets"),
    (
        "path = \"../data/flights*.jsonl.zst\"",
        "path = [\"a.csv\", \"b.jsonl\"]",
        "does not tell the format",
        "csv",
    ),
    (
        "path = \"../data/flights*.jsonl.zst\"",
        "path = [\"-\", \"b.jsonl\"]",
        "cannot be mixed",
        "one or the other",
    ),
    (
        "path = \"../data/flights*.jsonl.zst\"",
        "path = \"a.jsonl\"\ncsv = { delimiter = \";\" }",
        "is about CSV and has no effect here",
        "csv",
    ),
    (
        "path = \"../data/flights*.jsonl.zst\"",
        "path = \"a.parquet\"\ncompression = \"zstd\"",
        "has no effect on Parquet",
        "remove it",
    ),
    (
        "path = \"../data/flights*.jsonl.zst\"",
        "path = \"-\"\nformat = \"parquet\"",
        "Parquet cannot be read from standard input",
        "name files",
    ),
    (
        "path = \"../data/flights*.jsonl.zst\"",
        "path = \"a.csv\"\ncsv = { header = false }",
        "columns have no names",
        "columns",
    ),
    (
        "path = \"../data/flights*.jsonl.zst\"",
        "path = \"a.csv\"\ncsv = { columns = [\"a\"] }",
        "named by the header",
        "header = false",
    ),
    ("name = \"flights-hourly\"", "name = \"Flights\"", "flights.toml:1:8: name: \"Flights\"", "a-z"),
    ("name = \"hourly\"", "name = \"hourly-1\"", "not a window name", "a-z"),
    ("[state]", "[state]\nmemory = \"lots\"", "not a number of bytes", "512MiB"),
    ("[state]", "[state]\nmemory = 0", "more than zero bytes", "512MiB"),
    (
        "[state]",
        "[state]\nmemory = \"1KiB\"",
        "flights.toml:18:10: state.memory: a store needs at least 16MiB",
        "512MiB",
    ),
    ("[state]", "[state]\nworkers = 0", "at least 1", "workers = 3"),
    ("[state]", "[state]\nworkers = 17", "more workers than there can be", "from 1 to 16"),
    ("[state]", "[state]\nmemory = \"9999999TiB\"", "no machine has so much memory", "512MiB"),
    (
        "\"out/late\"",
        "\"out/hourly/late\"",
        "the late output is inside, or around, the directory of the output",
        "own",
    ),
    ("\"out/late\"", "\"out\"", "the late output is inside, or around, the directory of the output", "own"),
    (
        "size = \"1h\"",
        "size = \"1h\"\nsource = [\"source\", \"source\"]",
        "\"source\" is named twice",
        "remove",
    ),
    (
        "path = \"../data/flights*.jsonl.zst\"",
        "path = \"a.csv\"\ncsv = { header = false, columns = [] }",
        "the list is empty",
        "in their order",
    ),
    (
        "type = \"tumbling\"\nsize = \"1h\"\noffset = \"-5m\"\n",
        "type = \"global\"\ntrigger = { count = 3 }\nallowed_lateness = \"1m\"\n",
        "allowed_lateness: has no meaning here: nothing is ever late",
        "remove",
    ),
    ("[late]", "[checkpoint]\ninterval = \"0s\"\n[late]", "must be longer than zero", "10s"),
    ("[[window]]", "[window]", "window: expected a list of tables, found a table", "write [[window]]"),
    (
        "size = \"1h\"",
        "size = \"1h\"\ninput = \"x\"",
        "there is no window \"x\" before this one",
        "to read a source, write `source`",
    ),
    ("path = \"out/late\"", "path = \"-\"", "goes into a directory", "path = \"out/late\""),
    ("name = \"flights-hourly\"", "name = ", "flights.toml:1:", "syntax"),
    ("name = \"flights-hourly\"", "name = \"a\"\nname = \"b\"", "not valid TOML: duplicate key", "syntax"),
];

#[test]
fn every_contradiction_is_refused_with_place_reason_and_remedy() {
    for (from, to, message, remedy) in REFUSED {
        assert!(FLIGHTS.contains(from), "the table names text that is not there: {from}");
        let (found, advice) = refusal(&FLIGHTS.replacen(from, to, 1));
        assert!(found.starts_with("conf/flights.toml:"), "{found}");
        assert!(found.contains(message), "{to}\n  message: {found}\n  wanted:  {message}");
        assert!(advice.contains(remedy), "{to}\n  remedy: {advice}\n  wanted: {remedy}");
    }
}

/// Two sources, the second with `second` in its table.
fn two_sources(second: &str) -> String {
    let first =
        "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\ntime = { field = \"t\", format = \"epoch_ms\" }\n";
    let second = format!(
        "[[source]]\n{second}\ntime = {{ field = \"t\", format = \"epoch_ms\", min = \"2020-01-01T00:00:00Z\" }}\n"
    );
    let rest = &FLIGHTS[FLIGHTS.find("[state]").unwrap()..];
    let bounds = "{ min = \"2010-01-01T00:00:00Z\", max_ahead = \"1h\" }";
    format!(
        "name = \"two\"\n{first}{second}[watermark]\ndelay = \"5s\"\npolicy = \"max\"\nbounds = {bounds}\n{rest}"
    )
}

#[test]
fn a_source_says_what_is_different_from_the_table_for_all() {
    let text = two_sources(
        "name = \"b\"\npath = \"-\"\nformat = \"csv\"\nwatermark = { strategy = \"punctuated\", field = \"w\" }",
    );
    let config = PipelineConfig::from_str(&text, Path::new("two.toml")).unwrap();
    let [first, second] = &config.sources[..] else { panic!("two sources: {config:?}") };
    assert_eq!(config.watermark.policy, Policy::Max);
    assert_eq!(first.watermark.strategy, WatermarkStrategy::Bounded(Span::from_millis(5_000).unwrap()));
    assert_eq!(second.watermark.strategy, WatermarkStrategy::Punctuated { field: "w".to_owned() });
    let min = |source: &SourceConfig| source.time.bounds.bounds.min.map(|time| time.to_string());
    assert_eq!(min(first).as_deref(), Some("2010-01-01T00:00:00Z"));
    assert_eq!(min(second).as_deref(), Some("2020-01-01T00:00:00Z"));
    assert_eq!(second.time.bounds.bounds.max_ahead, Span::from_millis(3_600_000));
    assert!(!second.time.bounds.max_ahead_by_default);
}

#[test]
fn a_live_source_is_guarded_unless_the_file_says_otherwise() {
    let live = |bounds: &str| {
        let text = FLIGHTS
            .replace("../data/flights*.jsonl.zst\"", "-\"\nformat = \"jsonl\"")
            .replace(", max_ahead = \"5m\"", bounds);
        let config = PipelineConfig::from_str(&text, Path::new("a.toml")).unwrap();
        let bounds = config.sources[0].time.bounds;
        (bounds.bounds.max_ahead, bounds.max_ahead_by_default)
    };
    assert_eq!(live(""), (Span::from_millis(300_000), true));
    assert_eq!(live(", max_ahead = \"1h\""), (Span::from_millis(3_600_000), false));
    assert_eq!(live(", max_ahead = \"off\""), (None, false));
}

#[test]
fn several_sources_need_names_that_differ() {
    let (message, _) = refusal(&two_sources("path = \"b.jsonl\""));
    assert!(message.contains("`name` is missing"), "{message}");
    let (message, _) = refusal(&two_sources("name = \"a\"\npath = \"b.jsonl\""));
    assert!(
        message.contains("source[2].name: there is a source \"a\" already, at conf/flights.toml:3:"),
        "{message}"
    );
}

#[test]
fn every_function_is_read_with_its_parameters() {
    for (text, function) in [
        ("\"variance_pop\"", Function::VariancePop),
        ("\"last\"", Function::Last),
        ("\"median\"", Function::Quantile { q: Fraction::HALF }),
        ("\"quantile\", q = 0.999", Function::Quantile { q: Fraction::from_millionths(999_000).unwrap() }),
        ("\"quantile\", q = 1", Function::Quantile { q: Fraction::from_millionths(1_000_000).unwrap() }),
        ("\"distinct\"", Function::Distinct { limit: 10_000, beyond: Beyond::Null }),
        (
            "\"distinct\", limit = 7, beyond = \"estimate\"",
            Function::Distinct { limit: 7, beyond: Beyond::Estimate },
        ),
        ("\"approx_distinct\", precision = 18", Function::ApproxDistinct { precision: 18 }),
        ("\"top_k\", limit = 5", Function::TopK { k: 5, limit: 5 }),
        ("\"collect\", keep = \"last\"", Function::Collect { limit: 1_000, keep: Keep::Last }),
    ] {
        let config =
            PipelineConfig::from_str(&FLIGHTS.replace("\"sum\"", text), Path::new("a.toml")).unwrap();
        assert_eq!(config.windows[0].aggregates[1].function, function, "{text}");
    }
}

#[test]
fn two_windows_may_not_share_a_name() {
    let second = &FLIGHTS[FLIGHTS.find("[[window]]").unwrap()..FLIGHTS.find("[late]").unwrap()];
    let (message, _) = refusal(&FLIGHTS.replace("[late]", &format!("{second}\n[late]")));
    assert!(message.contains("window[2].name: there is a window \"hourly\" already"), "{message}");
}

#[test]
fn every_example_is_accepted() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut accepted = 0;
    for folder in std::fs::read_dir(examples).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                PipelineConfig::load(&path).unwrap_or_else(|error| panic!("{error}"));
                accepted += 1;
            }
        }
    }
    assert!(accepted >= 12);
}

#[test]
fn a_missing_file_is_unavailable_and_names_its_path() {
    let error = PipelineConfig::load(Path::new("no/such/pipeline.toml")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no/such/pipeline.toml"));
}

const JOIN: &str = r#"name = "orders"
[[source]]
name = "orders"
path = "orders.jsonl"
time = { field = "t", format = "epoch_ms" }
dedup = { by = ["order"] }
[[source]]
name = "payments"
path = "payments.csv"
time = { field = "t", format = "epoch_ms" }
[watermark]
delay = "15m"
[state]
directory = "state"
[[join]]
name = "paid"
left = "orders"
right = "payments"
key = [{ field = "order", type = "int" }]
within = { from = "-5m", to = "1h" }
kind = "left"
select = { left = [{ field = "total", type = "decimal(2)" }], right = [{ field = "state", type = "string", name = "how" }] }
output = { path = "out/paid", format = "csv" }
"#;

#[test]
fn a_join_is_read_and_needs_no_window_beside_it() {
    let config = PipelineConfig::from_str(JOIN, Path::new("join.toml")).unwrap();
    assert!(config.windows.is_empty());
    let [join] = &config.joins[..] else { panic!("one join: {config:?}") };
    assert_eq!((join.left.as_str(), join.right.as_str()), ("orders", "payments"));
    assert_eq!((join.from_ms, join.to_ms), (-300_000, 3_600_000));
    assert_eq!(join.right_fields[0].name, "how");
    assert_eq!(join.output.path, PathBuf::from("out/paid"));
    let dedup = config.sources[0].dedup.as_ref().unwrap();
    assert_eq!((dedup.by[0].field.as_str(), dedup.within.as_millis()), ("order", 900_000));
}

#[test]
fn joins_and_deduplication_that_cannot_be_are_refused_where_they_stand() {
    let cases = [
        (
            "right = \"payments\"",
            "right = \"payment\"",
            "join.toml:18:9: join[1].right: there is no source",
            "payments",
        ),
        ("right = \"payments\"", "right = \"orders\"", "are one source", "two sources"),
        ("to = \"1h\"", "to = \"-1h\"", "join[1].within.to: is less than `from`", "swap"),
        ("within = { from = \"-5m\", to = \"1h\" }\n", "", "`within` is missing", "from"),
        ("kind = \"left\"", "kind = \"outer\"", "\"outer\" is not known here", "full"),
        ("name = \"how\"", "name = \"total\"", "there is a column \"total\" already", "another `name`"),
        ("name = \"how\"", "name = \"left_time\"", "there is a column \"left_time\" already", "another"),
        ("type = \"decimal(2)\"", "type = \"decimal\"", "does not say how many digits", "decimal(2)"),
        ("[watermark]\ndelay = \"15m\"\n", "", "dedup: needs a watermark", "delay"),
        ("delay = \"15m\"", "strategy = \"monotone\"", "does not follow from the watermark", "within"),
        (
            "delay = \"15m\"",
            "delay = \"15m\"\nadvance = \"batch\"",
            "joins do not go with watermark.advance",
            "event",
        ),
        ("by = [\"order\"]", "by = []", "dedup.by: the list is empty", "id"),
        ("path = \"out/paid\"", "path = \"state\"", "shares its directory", "directory of its own"),
        ("dedup = { by = [\"order\"] }\n", "dedup = { }\n", "`by` is missing", "by ="),
    ];
    for (from, to, message, remedy) in cases {
        assert!(JOIN.contains(from), "the table names text that is not there: {from}");
        let error =
            PipelineConfig::from_str(&JOIN.replacen(from, to, 1), Path::new("join.toml")).unwrap_err();
        let (found, advice) = (error.to_string(), error.remedy().unwrap_or_default());
        assert!(found.starts_with("join.toml:"), "{found}");
        assert!(found.contains(message), "{to}\n  message: {found}\n  wanted:  {message}");
        assert!(advice.contains(remedy), "{to}\n  remedy: {advice}\n  wanted: {remedy}");
    }
    let no_watermark =
        JOIN.replace("dedup = { by = [\"order\"] }\n", "").replace("[watermark]\ndelay = \"15m\"\n", "");
    let error = PipelineConfig::from_str(&no_watermark, Path::new("join.toml")).unwrap_err();
    assert!(error.to_string().contains("a join needs a watermark"), "{error}");
}
