//! What is shipped: the images, made without a container engine, and the page about the chart's values.
//!
//! | module | what it does |
//! |---|---|
//! | [`binaries`] | builds the static binaries, and the few files of a system that they need |
//! | [`images`] | reads from the Dockerfile what is in which image, and assembles them |
//! | [`oci`] | writes an image as an OCI archive, byte for byte the same each time |
//! | [`values`] | writes the page about the chart's values |

pub mod binaries;
pub mod images;
pub mod oci;
pub mod values;

use std::{
    env, fmt,
    path::{Path, PathBuf},
    process::Command,
};

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Bytes in hexadecimal, as digests are written.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// Cargo, at the root of the repository. What `cargo run` said of the program that calls this is not for the next one: build
/// scripts would run again for it.
pub fn cargo() -> Command {
    const OURS: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    for (name, _) in env::vars_os() {
        if OURS
            .iter()
            .any(|ours| name.as_encoded_bytes().starts_with(ours.as_bytes()))
        {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// What an image is made for, in the words of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Arch {
    /// `x86_64`.
    Amd64,
    /// `aarch64`.
    Arm64,
}

impl Arch {
    /// What this program runs on.
    pub const HERE: Self = if cfg!(target_arch = "aarch64") {
        Self::Arm64
    } else {
        Self::Amd64
    };

    /// Rust's target.
    pub fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-musl",
            Self::Arm64 => "aarch64-unknown-linux-musl",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        })
    }
}
