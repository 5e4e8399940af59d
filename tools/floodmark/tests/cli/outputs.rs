//! Where results go besides text in directories: Parquet files, standard output, and what the pipeline file may not say.

use std::collections::BTreeMap;
use std::fs;

use crate::support::{Ended, Site, flights_sample};

fn pipeline(output: &str, more: &str) -> String {
    format!(
        "name = \"outputs\"\n[source]\npath = {:?}\n\
         time = {{ field = \"sched_dep\", format = \"rfc3339\", min = \"2013-01-01T00:00:00Z\", max = \"2016-01-01T00:00:00Z\" }}\n\
         [watermark]\ndelay = \"15m\"\n[state]\ndirectory = \"state\"\n[checkpoint]\ninterval = \"20ms\"\n\
         [[window]]\nname = \"hourly\"\nkey = [\"origin\"]\ntype = \"tumbling\"\nsize = \"1h\"\n{more}\naggregates = [\n  \
         {{ name = \"flights\", function = \"count\" }},\n  \
         {{ name = \"delay\", function = \"sum\", field = \"dep_delay\", type = \"int\" }},\n]\noutput = {output}\n",
        flights_sample()
    )
}

#[test]
fn parquet_has_a_part_per_epoch_and_survives_kills() {
    let site = Site::in_memory(&pipeline("{ path = \"out/hourly\", format = \"parquet\" }", ""));
    let names = || {
        let entries = fs::read_dir(site.path("out/hourly")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    };
    for point in ["sink.stage.after", "sink.publish.before", "sink.publish.after"] {
        site.reset();
        assert_eq!(site.run_with_fault(&format!("{point}:kill:2")).signal, Some(9));
        let summary = site.run(&["--quiet"]).summary();
        assert_eq!(summary["outcome"], "completed");
        let parts = names();
        assert!(parts.len() > 1 && parts.iter().all(|name| name.ends_with(".parquet")), "{parts:?}");
        for part in parts {
            let bytes = fs::read(site.path("out/hourly").join(&part)).unwrap();
            assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"), "{part} is not whole");
        }
    }
    // The same state cannot go on in another form.
    site.write("pipeline.toml", pipeline("{ path = \"out/hourly\" }", ""));
    site.run(&["--quiet"]).assert_refused(6, &["the format or the columns of this output have changed"]);
}

#[test]
fn results_are_printed_once_their_checkpoint_is_durable() {
    let site = Site::in_memory(&pipeline("{ path = \"out/hourly\" }", ""));
    let (_, files) = site.complete(&["--quiet"]);
    site.reset();
    site.write("pipeline.toml", pipeline("{ path = \"-\" }", ""));
    site.run(&["--quiet"]).assert_refused(2, &["--json", "standard output"]);
    let run = |fault: Option<&str>| {
        let mut command = site.command(&["--quiet"]);
        let arguments: Vec<_> =
            command.get_args().filter(|word| *word != "--json").map(|word| word.to_owned()).collect();
        command = std::process::Command::new(command.get_program());
        command.args(arguments).env_remove("FLOODMARK_FAULT").env_remove("FLOODMARK_LOG");
        fault.map(|fault| command.env("FLOODMARK_FAULT", fault));
        Ended::of(command.output().unwrap())
    };
    let printed = run(None);
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    let lines: Vec<String> = printed.stdout.lines().map(str::to_owned).collect();
    assert_eq!(lines, files.lines("hourly"));
    // Killed after printing and before anybody knows: some lines come again, none is missing.
    site.reset();
    let killed = run(Some("sink.publish.after:kill:2"));
    assert_eq!(killed.signal, Some(9));
    let again = run(None);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let mut times = BTreeMap::new();
    for line in killed.stdout.lines().chain(again.stdout.lines()) {
        *times.entry(line.to_owned()).or_insert(0) += 1;
    }
    assert_eq!(times.len(), files.lines("hourly").len());
}

#[test]
fn an_output_that_makes_no_sense_is_refused_where_it_stands() {
    let table = "kind = \"postgres\", url_env = \"X\", table = \"t\"";
    for (output, more, words) in [
        ("{ path = \"out/hourly\", write = \"append\" }".to_owned(), "", ["write", "kind = \"postgres\""]),
        ("{ path = \"-\", format = \"parquet\" }".to_owned(), "", ["format", "no text to print"]),
        (
            "{ path = \"o\", format = \"parquet\", time_format = \"epoch_ms\" }".to_owned(),
            "",
            ["time_format", "Parquet"],
        ),
        (format!("{{ {table} }}"), "", ["`write` is missing", "upsert"]),
        (
            "{ kind = \"postgres\", url = \"postgresql://u:hunter2@h/d\", table = \"t\", write = \"append\" }".to_owned(),
            "",
            ["password", "url_env"],
        ),
        (format!("{{ {}, write = \"append\" }}", table.replace("\"t\"", "\"T; DROP\"")), "", ["table", "not a table name"]),
        (format!("{{ {table}, write = \"append\", path = \"out\" }}"), "", ["path", "no meaning for a table"]),
        (
            format!("{{ {table}, write = \"upsert\" }}"),
            "trigger = { count = 3 }\naccumulation = \"discarding\"",
            ["write", "increments"],
        ),
    ] {
        let site = Site::in_memory(&pipeline(&output, more));
        let ended = site.run(&["--quiet"]);
        ended.assert_refused(2, &words);
        assert!(ended.stderr.contains("pipeline.toml:") && !ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
    let sessions = pipeline(&format!("{{ {table}, write = \"upsert\" }}"), "mode = \"update\"")
        .replace("type = \"tumbling\"\nsize = \"1h\"", "type = \"session\"\ngap = \"1h\"");
    Site::in_memory(&sessions).run(&["--quiet"]).assert_refused(2, &["write", "retractions = true"]);
}
