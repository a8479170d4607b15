//! `skerry-globalmanager`: see the library.

use clap::Parser;
use skerry_globalmanager::config::Flags;

/// The manager makes and drops trees of JSON without an end: with this an edit takes it a third less processor time than with
/// glibc's allocator, and that of musl, which images have, is slower still where threads share it.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The global manager of Skerry: makes the cluster match AI workloads, and keeps edge nodes told of their part.
#[derive(Parser)]
#[command(name = "skerry-globalmanager", version)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider was installed twice"))?;
    skerry_globalmanager::main(cli.flags).await
}
