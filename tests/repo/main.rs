//! Tests of the repository itself: layers, doors of outside libraries, sources of data, links in the documentation,
//! the table of hazards, the reference of the pipeline file, the comparison with other stores.
//!
//! They read files and know nothing of what the code does.

mod comparison;
mod data;
mod docs;
mod hazards;
mod layers;
mod pipeline_file;
mod source;
