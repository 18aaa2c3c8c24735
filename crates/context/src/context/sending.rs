//! The last check before a request is sent: a view that breaks a rule of the protocol is repaired.
//!
//! Pure. Stands above the layers, whose edits it checks.

mod plain;
pub mod repair;
pub mod thinking;
pub mod validity;
