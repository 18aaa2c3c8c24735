//! Gives an output to a command: its path as `$NAME_PATH`, and its text as `$NAME` if it is small.
//!
//! A large value never goes through the environment only: a program that starts another one may have
//! no room for it.

use std::collections::BTreeMap;

use super::mail::StepError;
use super::services::Services;
use super::work::{self, Helper};
use crate::output::Output;
use crate::spec::OutputFormat;

/// The most bytes of a variable: half of what Linux takes, as in the journal's records.
const MOST_BYTES: usize = 64 * 1024;

/// An output that a command is given.
#[derive(Clone, Debug)]
pub(super) struct Given {
    /// Name of the variable with the text.
    pub(super) name: &'static str,
    pub(super) output: Output,
    /// The form in which the output is accepted.
    pub(super) form: OutputFormat,
}

impl Given {
    /// Returns the variables, and writes the file that they name: a stored result, which is named by
    /// its content and written once.
    ///
    /// # Errors
    /// Returns an error if the output cannot be read back or the file cannot be written.
    pub(super) async fn variables(
        self,
        services: &Services,
    ) -> Result<BTreeMap<String, String>, StepError> {
        let Self { name, output, form } = self;
        let text = form.body(&services.whole_text(&output).await?).to_owned();
        let store = services.store.clone();
        let stored = work::blocking(Helper::Given, move || {
            let stored = store.store(&text)?;
            let folder = std::path::absolute(store.results_dir())?;
            Ok::<_, std::io::Error>((folder.join(&stored.hash), text))
        });
        let crashed = |reason: String| StepError::Crashed(format!("${name}_PATH: {reason}"));
        let stored = stored.await.map_err(|error| crashed(error.to_string()))?;
        let (path, text) = stored.map_err(|error| crashed(error.to_string()))?;
        let path = path.to_string_lossy().into_owned();
        let mut variables = BTreeMap::from([(format!("{name}_PATH"), path)]);
        // No variable can hold a zero byte.
        if text.len() <= MOST_BYTES && !text.contains('\0') {
            variables.insert(name.to_owned(), text);
        }
        Ok(variables)
    }
}
