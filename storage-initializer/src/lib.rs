//! Fetches models and datasets into a pod before its worker starts.
//!
//! The init container's program, with the arguments, the environment and the rules of Sedna's: pairs of a source and a
//! folder; S3, HTTP and what is mounted; archives unpacked; `@` before a folder for an index of what to fetch. What it
//! adds: it goes on after a broken connection where that broke, checks lengths, and never leaves half a
//! file in place.
//!
//! Decides nothing about which worker gets what: the manager has put that into the arguments.

mod archive;
mod args;
mod download;
mod error;
mod fetch;
mod http;
mod local;
mod s3;
mod settings;
mod source;

pub use archive::{Kind as Archive, unpack};
pub use download::Patience;
pub use error::FetchError;
pub use fetch::fetch_all;
pub use settings::{S3, Settings};

/// Fetches what the arguments (without the program's name) ask for, with this process's environment.
pub async fn run(args: Vec<String>) -> anyhow::Result<()> {
    Ok(fetch_all(&args, Settings::from_env()).await?)
}
