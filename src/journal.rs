//! The port to the journal: the ordered, durable events of a run.
