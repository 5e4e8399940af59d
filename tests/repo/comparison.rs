//! The comparison with other stores (benches/compare) stays out of the product's build, and measures the same RocksDB.

use crate::source::{read, root};

/// The line of a manifest that says which version of a crate it takes, and with what.
fn dependency(manifest: &str, name: &str) -> String {
    let text = read(&root().join(manifest));
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(" = ")));
    line.unwrap_or_else(|| panic!("{manifest} does not name {name}")).to_owned()
}

#[test]
fn what_is_only_compared_with_is_no_dependency_of_the_product() {
    let manifest = read(&root().join("Cargo.toml"));
    assert!(
        manifest.contains("exclude = [\"benches/compare\"]"),
        "benches/compare is a workspace of its own"
    );
    let lock = read(&root().join("Cargo.lock"));
    for name in ["fjall", "redb", "rusqlite"] {
        assert!(!lock.contains(&format!("name = \"{name}\"\n")), "{name} is in Cargo.lock");
        dependency("benches/compare/Cargo.toml", name);
    }
}

#[test]
fn the_comparison_has_the_versions_of_the_product() {
    for name in ["rocksdb", "arrow-array"] {
        let (ours, theirs) = (dependency("Cargo.toml", name), dependency("benches/compare/Cargo.toml", name));
        assert_eq!(ours, theirs, "left: Cargo.toml; right: benches/compare/Cargo.toml");
    }
}
