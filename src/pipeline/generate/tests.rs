//! Golden bytes of a seed, and that each knob of the specification does what it says.

use super::*;

fn text(spec: Spec, seed: u64, format: TextFormat) -> String {
    let generator = Generator::new(spec, seed).unwrap();
    let digits = generator.key_digits();
    let mut out = format.header().as_bytes().to_vec();
    generator.for_each(|event| append_event(&mut out, &event, format, digits));
    String::from_utf8(out).unwrap()
}

fn rich(events: u64) -> Spec {
    Spec {
        keys: 5_000,
        skew: Skew::Zipf { exponent: 1.1 },
        lateness: vec![
            Lateness { share: 0.95, min_ms: 0, max_ms: 5_000 },
            Lateness { share: 0.05, min_ms: 30_000, max_ms: 60_000 },
        ],
        partitions: 3,
        value_min: -1_000,
        value_max: 1_000,
        null_share: 0.1,
        malformed_share: 0.02,
        ..Spec::s1(events)
    }
}

#[test]
fn a_seed_names_its_bytes_on_every_platform() {
    let sum = |spec, format| crc32fast::hash(text(spec, 2, format).as_bytes());
    let sums = [
        sum(Spec::s1(10_000), TextFormat::Jsonl),
        sum(rich(10_000), TextFormat::Jsonl),
        sum(rich(10_000), TextFormat::Csv),
    ];
    let lines = text(Spec::s1(2), 1, TextFormat::Jsonl) + &text(Spec::s4(2), 1, TextFormat::Csv);
    assert_eq!(
        lines,
        "{\"ts\":1699999999500,\"key\":\"k007462\",\"value\":18}\n\
         {\"ts\":1699999997383,\"key\":\"k000966\",\"value\":13}\n\
         ts,key,value\n1699999999500,k746216,18\n1699999997383,k096601,13\n"
    );
    assert_eq!(sums, [428_941_512, 3_640_641_376, 1_332_222_560]);
}

#[test]
fn five_million_events_of_s1_span_ten_minutes() {
    let spec = Spec::s1(5_000_000);
    let span_ms = spec.events * 1_000 / spec.rate;
    assert!(span_ms.abs_diff(600_000) < 100, "{span_ms}");
    assert_eq!(Spec::s4(1).keys, 1_000_000);
}

#[test]
fn events_are_as_late_as_the_mix_says() {
    let spec = rich(50_000);
    let disorder = i64::from(spec.disorder_ms());
    assert_eq!(disorder, 60_000);
    let (start, rate) = (spec.start.as_millis(), spec.rate);
    let mut late = 0_u32;
    for (index, event) in Generator::new(spec, 3).unwrap().enumerate() {
        let delay = start + (index as u64 * 1_000 / rate) as i64 - event.time.as_millis();
        assert!((0..=5_000).contains(&delay) || (30_000..=60_000).contains(&delay), "{delay}");
        late += u32::from(delay > 5_000);
    }
    assert!(late.abs_diff(2_500) < 250, "{late}");
}

#[test]
fn zipf_prefers_low_keys_and_uniform_does_not() {
    let share_of_first_hundred = |skew| {
        let spec = Spec { skew, keys: 10_000, ..Spec::s1(20_000) };
        Generator::new(spec, 4).unwrap().filter(|event| event.key < 100).count()
    };
    assert!(share_of_first_hundred(Skew::Zipf { exponent: 1.0 }) > 9_000);
    assert!(share_of_first_hundred(Skew::Uniform) < 400);
}

#[test]
fn silent_partitions_bring_nothing_and_time_jumps_when_all_are_silent() {
    let silences = vec![
        Silence { partition: 0, from_ms: 100, until_ms: 500 },
        Silence { partition: 1, from_ms: 200, until_ms: 400 },
        Silence { partition: 1, from_ms: 400, until_ms: 450 },
    ];
    let spec = Spec { rate: 1_000, partitions: 2, silences, lateness: Vec::new(), ..Spec::s1(600) };
    let start = spec.start.as_millis();
    let events: Vec<_> = Generator::new(spec, 5).unwrap().collect();
    assert_eq!(events.len(), 600);
    for event in &events {
        let at = event.time.as_millis() - start;
        assert!(!(200..450).contains(&at), "both are silent at {at}");
        assert!(event.partition == 1 || !(100..500).contains(&at));
    }
    assert!(events.iter().any(|event| event.partition == 0));
    assert_eq!(events[200].time.as_millis() - start, 450);
}

#[test]
fn malformed_records_come_in_every_kind_and_good_ones_parse() {
    let spec = Spec { malformed_share: 0.5, ..rich(200) };
    let events: Vec<_> = Generator::new(spec.clone(), 6).unwrap().collect();
    for defect in DEFECTS {
        assert!(events.iter().any(|event| event.defect == Some(defect)), "{defect:?}");
    }
    let lines = text(spec, 6, TextFormat::Jsonl);
    for (line, event) in lines.lines().zip(&events) {
        let parsed: std::result::Result<serde_json::Value, _> = serde_json::from_str(line);
        if event.defect.is_none() {
            let parsed = parsed.unwrap();
            assert_eq!(parsed["ts"].as_i64(), Some(event.time.as_millis()));
            assert_eq!(parsed["key"], format!("k{:06}", event.key));
            assert_eq!(parsed["value"].as_i64(), event.value);
        } else if event.defect == Some(Defect::Cut) {
            assert!(parsed.is_err());
        }
    }
}

#[test]
fn a_specification_that_cannot_be_is_refused() {
    for spec in [
        Spec { keys: 0, ..rich(1) },
        Spec { keys: u64::MAX, ..rich(1) },
        Spec { rate: 0, ..rich(1) },
        Spec { null_share: f64::NAN, ..rich(1) },
        Spec { skew: Skew::Zipf { exponent: f64::NAN }, ..rich(1) },
        Spec { lateness: vec![Lateness { share: 0.0, min_ms: 0, max_ms: 1 }], ..rich(1) },
        Spec { silences: vec![Silence { partition: 3, from_ms: 0, until_ms: 1 }], ..rich(1) },
    ] {
        assert!(Generator::new(spec, 1).is_err());
    }
}
