//! See the package description in `Cargo.toml`.
