//! Builds the static binaries, and the few files of a system that they need.
//!
//! Decides how C is compiled for another machine, or for this one where it has no `musl-gcc`: by clang, with Debian's
//! headers of musl for that machine (`musl-dev:arm64`); Rust brings the rest of musl and a linker.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use base64::Engine as _;

use crate::Arch;

/// The binaries that are shipped.
const SHIPPED: [&str; 4] = [
    "skerry-globalmanager",
    "skerry-localcontroller",
    "skerry-storage-initializer",
    "skerry-worker",
];

/// How to build.
#[derive(clap::Args, Clone, Debug)]
pub struct Build {
    /// For which machine
    #[arg(long, value_enum, default_value_t = Arch::HERE)]
    pub arch: Arch,
    /// Cargo's profile
    #[arg(long, default_value = "release")]
    pub profile: String,
}

/// Puts `bin/` and `etc/` into `to`.
pub fn build(root: &Path, how: &Build, to: &Path) -> anyhow::Result<()> {
    let target = how.arch.target();
    let mut cargo = crate::cargo();
    // The whole workspace, for the sake of its features: with the same ones, `cargo run --release` and this share what they build.
    cargo
        .current_dir(root)
        .args(["build", "--locked", "--workspace", "--target", target]);
    cargo.args(["--profile", &how.profile]);
    for binary in SHIPPED {
        cargo.args(["--bin", binary]);
    }
    if how.arch != Arch::HERE || !runs("musl-gcc") {
        cargo.envs(cross(target));
    }
    if !cargo.status().context("cargo cannot be started")?.success() {
        bail!(
            "the binaries for {target} cannot be built; is the target there (`rustup target add {target}`), and are \
               either musl-tools or, for another machine, clang, llvm and its musl-dev installed?"
        );
    }
    let folder = if how.profile == "dev" { "debug" } else { &how.profile };
    let built = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let built = built.join(target).join(folder);
    let bin = to.join("bin");
    fs::create_dir_all(&bin)?;
    for binary in SHIPPED {
        fs::copy(built.join(binary), bin.join(binary)).with_context(|| built.join(binary).display().to_string())?;
    }
    system(to)
}

fn runs(program: &str) -> bool {
    let mut command = Command::new(program);
    let quiet = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// What tells the `cc` crate and cargo how to compile and link for `target`.
fn cross(target: &str) -> [(String, String); 4] {
    let triple = target.replace("-unknown", "");
    let (lower, upper) = (target.replace('-', "_"), target.replace('-', "_").to_uppercase());
    let flags = format!("--target={triple} -nostdlibinc -isystem /usr/include/{triple}");
    [
        (format!("CC_{lower}"), "clang".to_owned()),
        (format!("CFLAGS_{lower}"), flags),
        (format!("AR_{lower}"), "llvm-ar".to_owned()),
        (format!("CARGO_TARGET_{upper}_LINKER"), "rust-lld".to_owned()),
    ]
}

/// The user that the images run as, and the authorities that HTTPS trusts.
fn system(to: &Path) -> anyhow::Result<()> {
    let certificates = to.join("etc/ssl/certs");
    fs::create_dir_all(&certificates)?;
    fs::write(
        to.join("etc/passwd"),
        "root:x:0:0:root:/:/sbin/nologin\nskerry:x:65532:65532:skerry:/:/sbin/nologin\n",
    )?;
    fs::write(to.join("etc/group"), "root:x:0:\nskerry:x:65532:\n")?;
    fs::write(certificates.join("ca-certificates.crt"), authorities())?;
    Ok(())
}

/// Mozilla's certificate authorities as PEM.
fn authorities() -> String {
    let mut pem = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        let text = base64::engine::general_purpose::STANDARD.encode(certificate);
        pem += "-----BEGIN CERTIFICATE-----\n";
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(64));
            (pem, rest) = (pem + line + "\n", after);
        }
        pem += "-----END CERTIFICATE-----\n";
    }
    pem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_has_a_user_and_authorities() {
        let to = tempfile::tempdir().unwrap();
        system(to.path()).unwrap();
        let pem = fs::read_to_string(to.path().join("etc/ssl/certs/ca-certificates.crt")).unwrap();
        let (begins, ends) = (pem.matches("-----BEGIN").count(), pem.matches("-----END").count());
        assert_eq!((begins, ends), (webpki_root_certs::TLS_SERVER_ROOT_CERTS.len(), begins));
        assert!(pem.lines().all(|line| line.len() <= 64) && begins > 50);
    }
}
