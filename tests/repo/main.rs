//! Tests of the repository itself: layers, doors of outside libraries, sources of data, links in the documentation.
//!
//! They read files and know nothing of what the code does.

mod data;
mod docs;
mod layers;
mod source;
