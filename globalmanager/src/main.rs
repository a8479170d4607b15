//! `skerry-globalmanager`: see the library.

use clap::Parser;
use skerry_globalmanager::config::Flags;

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
