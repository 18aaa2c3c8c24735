//! Reads the sources and checks the rules of ARCHITECTURE.md.
