//! What a model is sent: compaction, presets, measures, validity, and the verbs that explain a view.

// By these names the generator of conversations, a file of the library, finds the library.
pub(crate) use callsheet::context::{Edit, view};

mod apply_and_replay;
mod benchmarks;
mod capabilities;
mod compaction;
mod endless;
mod explain;
mod measure;
mod presets;
mod recall;
mod recordings;
mod relief;
mod strategies;
mod validity;
mod views;
