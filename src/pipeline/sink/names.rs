//! Names of the files of an output directory, written and read back. It touches no disk.

/// Folder of files that are not published; hidden, so that `part-*` and plain listings pass it by.
pub(in crate::pipeline) const STAGING: &str = ".staging";
/// Who owns the directory and how far it was published, inside [`STAGING`].
pub(super) const OWNER: &str = "OWNER";
/// Locked while a process uses the directory, inside [`STAGING`].
pub(super) const LOCK: &str = "LOCK";

/// Extensions that parts and staged files may have.
const EXTENSIONS: [&str; 4] = ["jsonl", "csv", "parquet", "copy"];

/// Name of the part of `epoch`. Ten digits sort as numbers do for more epochs than a task will live to see.
pub(in crate::pipeline) fn part(epoch: u64, extension: &str) -> String {
    format!("part-{epoch:010}.{extension}")
}

/// The epoch of a part, or `None` when this is not the name of one.
pub(in crate::pipeline) fn part_epoch(name: &str) -> Option<u64> {
    let (digits, extension) = name.strip_prefix("part-")?.split_once('.')?;
    let epoch = digits.parse().ok()?;
    (EXTENSIONS.contains(&extension) && part(epoch, extension) == name).then_some(epoch)
}

/// Folder for parts that a run sets aside.
pub(super) fn set_aside(lineage: [u8; 16], generation: u64) -> String {
    format!(".set-aside-{}-{generation}", prefix(lineage))
}

/// The name of a file in [`STAGING`]: whose it is, and of which epoch; the epoch is absent while it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StagingName {
    pub(super) lineage_prefix: String,
    pub(super) generation: u64,
    pub(super) epoch: Option<u64>,
    pub(super) extension: String,
}

impl StagingName {
    pub(super) fn new(lineage: [u8; 16], generation: u64, epoch: Option<u64>, extension: &str) -> Self {
        Self { lineage_prefix: prefix(lineage), generation, epoch, extension: extension.to_owned() }
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        let (stem, extension) = name.split_once('.')?;
        let mut fields = stem.split('-');
        let parsed = Self {
            lineage_prefix: fields.next()?.to_owned(),
            generation: fields.next()?.parse().ok()?,
            epoch: match fields.next()? {
                "open" => None,
                digits => Some(digits.parse().ok()?),
            },
            extension: extension.to_owned(),
        };
        // Only what `to_string` would write: no signs, no leading zeros, no path separators, nothing left over.
        let plain = parsed.lineage_prefix.len() == 8
            && parsed.lineage_prefix.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            && EXTENSIONS.contains(&extension)
            && parsed.to_string() == name;
        plain.then_some(parsed)
    }

    pub(super) fn is_of(&self, lineage: [u8; 16]) -> bool {
        self.lineage_prefix == prefix(lineage)
    }
}

impl std::fmt::Display for StagingName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { lineage_prefix, generation, epoch, extension } = self;
        match epoch {
            Some(epoch) => write!(f, "{lineage_prefix}-{generation}-{epoch}.{extension}"),
            None => write!(f, "{lineage_prefix}-{generation}-open.{extension}"),
        }
    }
}

fn prefix(lineage: [u8; 16]) -> String {
    lineage.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_as_they_were_written() {
        let lineage = [0xab; 16];
        for epoch in [None, Some(0), Some(7), Some(u64::MAX)] {
            let name = StagingName::new(lineage, 3, epoch, "csv");
            assert_eq!(StagingName::parse(&name.to_string()), Some(name.clone()));
            assert!(name.is_of(lineage) && !name.is_of([0xac; 16]));
        }
        assert_eq!(StagingName::new(lineage, 3, Some(12), "jsonl").to_string(), "abababab-3-12.jsonl");
        for epoch in [0, 1, 9_999_999_999, 10_000_000_000, u64::MAX] {
            assert_eq!(part_epoch(&part(epoch, "jsonl")), Some(epoch));
        }
        assert_eq!(part(7, "jsonl"), "part-0000000007.jsonl");
    }

    #[test]
    fn names_that_were_never_written_are_not_understood() {
        for name in
            ["part-7.jsonl", "part-00000000007.csv", "part-0000000007.txt", "part-+000000007.csv", "x"]
        {
            assert_eq!(part_epoch(name), None, "{name}");
        }
        for name in [
            "../abababab-3-1.jsonl",
            "abababab-3-1.jsonl/x",
            "abababab-03-1.jsonl",
            "abababab-3-1-2.jsonl",
            "ABABABAB-3-1.jsonl",
            "abababab-3.jsonl",
            "abababab-3-1.sh",
            "OWNER",
            "",
        ] {
            assert_eq!(StagingName::parse(name), None, "{name}");
        }
    }
}
