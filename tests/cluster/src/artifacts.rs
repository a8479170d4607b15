//! The programs that a cluster consists of, built once and kept by version outside of `target/`.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::process::output;

/// The Kubernetes with nodes.
pub const KUBERNETES: &str = "1.34.4";
/// The newest one, whose control plane alone is tested: its kubelets ask for more than some machines have.
pub const NEWEST: &str = "1.36.3";
/// As in the module that it is linked in.
const COREDNS_VERSION: &str = "1.14.6";
const HELM: &str = "helm.sh/helm/v3/cmd/helm@v3.21.4";
/// The operator of Prometheus, and where in its module the definition of its `ServiceMonitors` is.
const PROMETHEUS_OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator@v0.85.0";
const SERVICE_MONITORS: &str = "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml";

/// For Go's linker: no tables for debuggers.
const SMALL: &str = "-s -w";

/// The programs of a Kubernetes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kubernetes {
    /// All components, in one: of the control plane and, where it has nodes, of these.
    pub components: PathBuf,
    /// kubectl.
    pub kubectl: PathBuf,
}

/// A program that is linked in a Go module of ours.
struct Linked {
    name: &'static str,
    /// The module's folder.
    module: &'static str,
    /// Its folder in there.
    package: &'static str,
    /// What of it is ours.
    sources: &'static [&'static str],
}

const COMPONENTS: Linked = Linked {
    name: "kubernetes",
    module: "kubernetes",
    package: ".",
    sources: &["main.go", "etcd.go", "node.go"],
};

const KUBECTL: Linked = Linked {
    name: "kubectl",
    module: "kubernetes",
    package: "./kubectl",
    sources: &["kubectl/main.go"],
};

const PAUSE: Linked = Linked {
    name: "pause",
    module: "kubernetes",
    package: "./pause",
    sources: &["pause/main.go"],
};

/// Its module asks for what Helm is built of, so that they have most packages in common.
const COREDNS: Linked = Linked {
    name: "coredns",
    module: "coredns",
    package: ".",
    sources: &["main.go"],
};

/// Where programs are built from, and where they are kept.
#[derive(Clone, Debug)]
pub struct Workshop {
    /// The folder of our Go modules.
    modules: PathBuf,
    /// One folder a version.
    store: PathBuf,
}

impl Workshop {
    /// `SKERRY_CLUSTER_CACHE`, or else the user's cache folder, keeps what is built.
    pub fn new(modules: PathBuf) -> anyhow::Result<Self> {
        let named = |variable: &str| env::var_os(variable).map(PathBuf::from);
        let store = named("SKERRY_CLUSTER_CACHE")
            .or_else(|| Some(named("XDG_CACHE_HOME")?.join("skerry")))
            .or_else(|| Some(named("HOME")?.join(".cache/skerry")))
            .context("neither SKERRY_CLUSTER_CACHE nor HOME says where to keep what is built")?;
        Ok(Self { modules, store })
    }

    /// Kubernetes with its kubelet.
    pub fn kubernetes(&self) -> anyhow::Result<Kubernetes> {
        self.both(KUBERNETES, "go.mod", &["-tags", "node"])
    }

    /// The newest control plane.
    pub fn newest(&self) -> anyhow::Result<Kubernetes> {
        self.both(NEWEST, "go.1.36.mod", &["-modfile=go.1.36.mod"])
    }

    /// The program of the container that holds a pod's namespaces.
    pub fn pause(&self) -> anyhow::Result<PathBuf> {
        self.link(&PAUSE, "1", "go.mod", &[], SMALL)
    }

    /// The cluster's name server.
    pub fn coredns(&self) -> anyhow::Result<PathBuf> {
        self.link(&COREDNS, COREDNS_VERSION, "go.mod", &[], SMALL)
    }

    /// Helm.
    pub fn helm(&self) -> anyhow::Result<PathBuf> {
        self.install("helm", HELM)
    }

    /// The definition of `ServiceMonitors`, as the operator of Prometheus has it.
    pub fn service_monitors(&self) -> anyhow::Result<PathBuf> {
        let inputs = [PROMETHEUS_OPERATOR, SERVICE_MONITORS].map(str::to_owned);
        self.keep("service-monitors.yaml", version(PROMETHEUS_OPERATOR), &inputs, |path| {
            let mut download = Command::new("go");
            download
                .args(["mod", "download", "-json", PROMETHEUS_OPERATOR])
                .envs(go());
            let module: Downloaded = serde_json::from_str(&output(&mut download)?)?;
            fs::copy(module.dir.join(SERVICE_MONITORS), path)?;
            Ok(String::new())
        })
    }

    /// Builds all that a run on two hosts consists of; Helm first, which others wait for.
    pub fn prepare(&self) -> anyhow::Result<()> {
        self.helm()?;
        self.kubernetes()?;
        self.coredns()?;
        self.service_monitors()?;
        self.pause().map(drop)
    }

    fn both(&self, version: &str, modfile: &str, flags: &[&str]) -> anyhow::Result<Kubernetes> {
        let (major, minor) = version.split_once('.').context("a version has a dot")?;
        let minor = minor.split('.').next().unwrap_or(minor);
        let of = "k8s.io/component-base/version";
        let stamp = format!(
            "{SMALL} -X {of}.gitVersion=v{version} -X {of}.gitMajor={major} -X {of}.gitMinor={minor} -X {of}.gitTreeState=clean"
        );
        Ok(Kubernetes {
            components: self.link(&COMPONENTS, version, modfile, flags, &stamp)?,
            kubectl: self.link(&KUBECTL, version, modfile, flags, &stamp)?,
        })
    }

    fn link(
        &self,
        what: &Linked,
        version: &str,
        modfile: &str,
        flags: &[&str],
        to_linker: &str,
    ) -> anyhow::Result<PathBuf> {
        let module = self.modules.join(what.module);
        let mut inputs = vec![version.to_owned(), flags.join(" ")];
        for file in what.sources.iter().chain([&modfile]) {
            let path = module.join(file);
            inputs.push(fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?);
        }
        self.keep(what.name, version, &inputs, |path| {
            output(
                Command::new("go")
                    .current_dir(&module)
                    .args(["build", "-trimpath", "-ldflags", to_linker, "-o"])
                    .arg(path)
                    .args(flags)
                    .arg(what.package)
                    .envs(go()),
            )
        })
    }

    fn install(&self, name: &str, package: &str) -> anyhow::Result<PathBuf> {
        self.keep(name, version(package), &[package.to_owned()], |path| {
            let folder = path.parent().context("a program is in a folder")?;
            let said = output(
                Command::new("go")
                    .args(["install", "-trimpath", "-ldflags", SMALL, package])
                    .env("GOBIN", folder)
                    .envs(go()),
            )?;
            fs::rename(folder.join(name), path)?;
            Ok(said)
        })
    }

    /// What is kept under this name, made by `make` if there is none of exactly these inputs.
    fn keep(
        &self,
        name: &str,
        version: &str,
        inputs: &[String],
        make: impl FnOnce(&Path) -> anyhow::Result<String>,
    ) -> anyhow::Result<PathBuf> {
        let digest = Sha256::digest(inputs.join("\n"));
        let mut key = skerry_dist::hex(&digest);
        key.truncate(12);
        let folder = self.store.join(format!("{name}-{version}-{key}"));
        let program = folder.join(name);
        if program.is_file() {
            return Ok(program);
        }
        fs::create_dir_all(&folder)?;
        // Another process may be at it: then this one waits, and finds it made.
        let lock = File::create(folder.join("lock"))?;
        lock.lock()?;
        if program.is_file() {
            return Ok(program);
        }
        let begun = Instant::now();
        eprintln!("building {name} {version} (once; it is kept in {})", folder.display());
        // Never half a program under the name that is looked for.
        let half = folder.join(format!("{name}.{}", std::process::id()));
        make(&half).with_context(|| format!("building {name} {version}"))?;
        fs::rename(&half, &program)?;
        eprintln!("built {name} {version} in {} s", begun.elapsed().as_secs());
        Ok(program)
    }
}

/// What Go says of a module that it has fetched.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Downloaded {
    dir: PathBuf,
}

/// The version in the address of a package.
fn version(package: &str) -> &str {
    package.rsplit('@').next().unwrap_or_default().trim_start_matches('v')
}

/// Static programs, whatever the machine's settings for Go are. A compiler runs for seconds, and cleans little that it needs to:
/// letting its memory grow to five times what is in use, in place of twice, builds Helm in 165 s in place of 203. The largest
/// compiler of all had 0.8 GB then, and the linker of Kubernetes 2.4 GB: from 2 GiB on, what is needed no more is cleaned sooner.
fn go() -> BTreeMap<&'static str, &'static str> {
    [
        ("CGO_ENABLED", "0"),
        ("GOFLAGS", ""),
        ("GOWORK", "off"),
        ("GOGC", "400"),
        ("GOMEMLIMIT", "2GiB"),
    ]
    .into()
}
