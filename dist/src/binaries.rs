//! Builds the static binaries, and the few files of a system that they need.
//!
//! Decides how C is compiled for another machine, or for this one where it has no `musl-gcc`: by clang, with Debian's
//! headers of musl for that machine (`musl-dev:arm64`); Rust brings the rest of musl and a linker.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use base64::Engine as _;

use crate::Arch;

/// What is shipped and has to be fast.
const FAST: Set<'static> = Set {
    // The whole workspace, for the sake of its features: with the same ones, `cargo run --release` and this share what they build.
    packages: "--workspace",
    binaries: &["skerry-globalmanager", "skerry-storage-initializer", "skerry-worker"],
    profile: "release",
};

/// What is shipped and has to be small: it is on every node, and does no more than wait there most of the time.
const SMALL: Set<'static> = Set {
    packages: "--package=skerry-localcontroller",
    binaries: &[LOCAL_CONTROLLER],
    profile: "node",
};

const LOCAL_CONTROLLER: &str = "skerry-localcontroller";

/// Binaries that are built in one go.
#[derive(Clone, Copy)]
struct Set<'a> {
    packages: &'a str,
    binaries: &'a [&'a str],
    /// Cargo's.
    profile: &'a str,
}

/// What compiles C for musl.
#[derive(Clone, Copy)]
enum Compiler {
    /// For this machine alone.
    MuslGcc,
    /// For any, but it links nothing, so what has to be linked while it is built is left out: jemalloc.
    Clang,
}

/// How to build.
#[derive(clap::Args, Clone, Debug)]
pub struct Build {
    /// For which machine
    #[arg(long, value_enum, default_value_t = Arch::HERE)]
    pub arch: Arch,
    /// Cargo's profile for all of them, instead of the one that is meant for the release of each
    #[arg(long)]
    pub profile: Option<String>,
}

/// Puts `bin/` and `etc/` into `to`.
pub fn build(root: &Path, how: &Build, to: &Path) -> anyhow::Result<()> {
    let bin = to.join("bin");
    fs::create_dir_all(&bin)?;
    let target = how.arch.target();
    let compiler = if how.arch == Arch::HERE && runs("musl-gcc") {
        Compiler::MuslGcc
    } else {
        Compiler::Clang
    };
    for set in [FAST, SMALL] {
        let set = match &how.profile {
            None => set,
            // With one profile, all share what they build.
            Some(profile) => Set {
                packages: FAST.packages,
                profile,
                ..set
            },
        };
        let from = set.build(root, Some((target, compiler)))?;
        for binary in set.binaries {
            let built = from.join(binary);
            fs::copy(&built, bin.join(binary)).with_context(|| built.display().to_string())?;
        }
    }
    system(to)
}

/// A local controller that was built.
#[derive(Debug)]
pub struct LocalController {
    /// Where it is.
    pub binary: PathBuf,
    /// Whether it is the one that is shipped. Else it has this machine's own C library, since musl is not there.
    pub shipped: bool,
}

/// Builds the local controller alone for this machine, as it is shipped where that can be done.
pub fn local_controller(root: &Path) -> anyhow::Result<LocalController> {
    let target = Arch::HERE.target();
    let shipped = runs("musl-gcc") && has_target(target);
    let folder = SMALL.build(root, shipped.then_some((target, Compiler::MuslGcc)))?;
    Ok(LocalController {
        binary: folder.join(LOCAL_CONTROLLER),
        shipped,
    })
}

impl Set<'_> {
    /// Builds them for a target, or else as cargo does on this machine; the folder that they are in.
    fn build(&self, root: &Path, target: Option<(&str, Compiler)>) -> anyhow::Result<PathBuf> {
        let (target, compiler) = target.unzip();
        let mut cargo = crate::cargo();
        cargo
            .current_dir(root)
            .args(["build", "--locked", self.packages, "--profile", self.profile])
            .args(target.into_iter().flat_map(|target| ["--target", target]));
        if let (Some(target), Some(Compiler::Clang)) = (target, compiler) {
            cargo.arg("--no-default-features").envs(cross(target));
        }
        for binary in self.binaries {
            cargo.args(["--bin", binary]);
        }
        if !cargo.status().context("cargo cannot be started")?.success() {
            let hint = target.map(|target| {
                format!(
                    " for {target}; is the target there (`rustup target add {target}`), and are either musl-tools or, for \
                     another machine, clang, llvm and its musl-dev installed?"
                )
            });
            bail!(
                "{} cannot be built{}",
                self.binaries.join(", "),
                hint.unwrap_or_default()
            );
        }
        let mut built = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        built.extend(target);
        built.push(if self.profile == "dev" { "debug" } else { self.profile });
        Ok(built)
    }
}

/// Whether Rust can build for this target.
pub fn has_target(target: &str) -> bool {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let libraries = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", target])
        .output();
    libraries.is_ok_and(|printed| Path::new(String::from_utf8_lossy(&printed.stdout).trim()).is_dir())
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
