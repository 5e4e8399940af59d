//! Fuzz target of the pipeline file: any text is refused with a reason and a remedy, or makes a pipeline.

use std::path::Path;

use super::assemble;
use super::config::{OutputTarget, PipelineConfig};
use super::source::check_columns;
use crate::error::ErrorKind;

/// The text of a pipeline file, as far as it is text.
pub(crate) fn pipeline_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let config = match PipelineConfig::from_str(text, Path::new("fuzz/pipeline.toml")) {
        Ok(config) => config,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.remedy().is_some(), "a refusal without a remedy: {error}");
            assert!(
                error.to_string().starts_with("fuzz/pipeline.toml:"),
                "a refusal without a place: {error}"
            );
            return;
        }
    };
    let (plans, operators) = assemble::operators(&config);
    assert_eq!((plans.len(), operators.len()), (config.sources.len(), config.windows.len()));
    let columns = check_columns(&config.sources, &plans);
    assert!(columns.is_ok() || columns.is_err_and(|error| error.remedy().is_some()));
    for window in &config.windows {
        let spec = assemble::results(window);
        assert_eq!(spec.aggregates.len(), spec.types.len());
        if window.output.target == OutputTarget::Files {
            let _ = spec.look();
        }
    }
    for join in &config.joins {
        let spec = assemble::joined(join);
        assert_eq!(spec.left.len() + spec.right.len(), spec.types.len());
    }
    if let Err(error) = assemble::store(&config, operators).check_only() {
        panic!("the file is accepted and the store refuses it: {error}");
    }
}
