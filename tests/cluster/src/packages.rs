//! What is installed where it is missing: of Debian, what a node needs (the container runtime, its network plugins, and
//! iptables) and the C compiler for images; of Rust, their target.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, bail};
use skerry_dist::{Arch, binaries};

/// Each package, and a file by which one sees that it is there.
const PACKAGES: [(&str, &str); 6] = [
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("containernetworking-plugins", "/usr/lib/cni/bridge"),
    ("iptables", "iptables"),
    ("iproute2", "tc"),
    ("musl-tools", "musl-gcc"),
];

/// Installs what is missing.
pub fn install() -> anyhow::Result<()> {
    install_packages()?;
    install_target(Arch::HERE.target())
}

fn install_target(target: &str) -> anyhow::Result<()> {
    if binaries::has_target(target) {
        return Ok(());
    }
    eprintln!("installing Rust's target {target}");
    let status = Command::new("rustup")
        .args(["target", "add", target])
        .stdout(Stdio::null())
        .status()
        .context("starting rustup")?;
    if !status.success() {
        bail!("rustup target add {target}: {status}; images are built for it");
    }
    Ok(())
}

fn install_packages() -> anyhow::Result<()> {
    let missing: Vec<_> = PACKAGES
        .into_iter()
        .filter(|(_, file)| !is_there(file))
        .map(|(package, _)| package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("installing {}", missing.join(", "));
    for arguments in [&["update"][..], &["install", "--yes", "--no-install-recommends"]] {
        let packages = if arguments.len() > 1 { &missing[..] } else { &[] };
        let status = Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(arguments)
            .args(packages)
            .stdout(Stdio::null())
            .status()
            .context("starting apt-get")?;
        if !status.success() {
            bail!(
                "apt-get {}: {status}; the packages {} are needed",
                arguments.join(" "),
                missing.join(", ")
            );
        }
    }
    Ok(())
}

fn is_there(file: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    // Not everybody has the folders of programs for administrators in the path.
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    Path::new(file).is_absolute() && Path::new(file).exists()
        || folders.into_iter().any(|folder| folder.join(file).is_file())
}
