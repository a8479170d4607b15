//! `skerry-dist`: builds what is shipped.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use skerry_dist::{
    binaries::{self, Build},
    images, values,
};

/// Builds what is shipped of Skerry.
#[derive(Parser)]
#[command(name = "skerry-dist", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Makes the images as OCI archives, without a container engine: `<name>.tar` each
    Images {
        #[command(flatten)]
        build: Build,
        /// The folder for the archives
        #[arg(long, default_value = "target/images", value_name = "DIR")]
        to: PathBuf,
    },
    /// Builds what the images consist of: `bin/` with the static binaries, `etc/` with what they need of a system
    Build {
        #[command(flatten)]
        build: Build,
        /// The folder for both
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
    /// Writes the page about the chart's values from the comments of its values.yaml
    Values {
        /// The page
        #[arg(default_value = "docs/chart-values.md")]
        to: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    let root = skerry_dist::root();
    match Cli::parse().command {
        Command::Images { build, to } => {
            let content = root.join("target/images").join(build.arch.to_string());
            binaries::build(&root, &build, &content)?;
            let dockerfile = root.join("dist/Dockerfile");
            let dockerfile = fs::read_to_string(&dockerfile).with_context(|| dockerfile.display().to_string())?;
            for image in images::describe(&dockerfile)? {
                let file = image.assemble(&content, build.arch, &to)?;
                println!("{} {}", image.reference(), file.display());
            }
            Ok(())
        }
        Command::Build { build, to } => binaries::build(&root, &build, &to),
        Command::Values { to } => {
            let values = root.join("charts/skerry/values.yaml");
            let values = fs::read_to_string(&values).with_context(|| values.display().to_string())?;
            fs::write(&to, values::page(&values)?).with_context(|| to.display().to_string())
        }
    }
}
