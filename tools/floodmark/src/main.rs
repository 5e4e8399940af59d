//! The `floodmark` command.
fn main() {}
