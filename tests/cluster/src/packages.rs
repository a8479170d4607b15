//! What a node needs of Debian: the container runtime, its network plugins, and iptables.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, bail};

/// Each package, and a file by which one sees that it is there.
const PACKAGES: [(&str, &str); 5] = [
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("containernetworking-plugins", "/usr/lib/cni/bridge"),
    ("iptables", "iptables"),
    ("iproute2", "tc"),
];

/// Installs what is missing.
pub fn install() -> anyhow::Result<()> {
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
