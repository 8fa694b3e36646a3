//! The configuration, typed twice: as written (TOML, every field optional) and as run (complete, checked).

mod run;

pub use run::*;
