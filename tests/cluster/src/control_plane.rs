//! A control plane: etcd, the API server, the controller manager and the scheduler, each a process of its own that can
//! be killed and started again.

use std::{
    collections::BTreeSet,
    fs,
    io::BufReader,
    net::Ipv4Addr,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context;
use serde_json::{Deserializer, Value, json};

use crate::{
    pki::{Pair, Pki, TOKENS},
    process::{Process, output, until, until_it_works},
    rights::{self, Right},
    site::{ADMIN, Access, Patience, Site},
};

/// How long the API server may take to be ready, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The range of the Services' addresses, one that RFC 2544 keeps for benchmarks, and its first address: the API server's own.
const SERVICES: &str = "198.18.0.0/16";
const FIRST_SERVICE: &str = "198.18.0.1";

/// A control plane that runs.
pub struct ControlPlane {
    site: Site,
    pki: Pki,
    serving: Pair,
    etcd: Process,
    api_server: Process,
    others: Vec<Process>,
}

impl ControlPlane {
    /// Starts one, and waits until the API server is ready and the garbage collector works.
    pub fn start(site: Site) -> anyhow::Result<Self> {
        let mut started = Self::start_alone(site)?;
        if let Some(known) = started.site.known.clone() {
            started.kubectl(&["apply", "--server-side", "-f", &known.display().to_string()])?;
        }
        started.others = vec![started.controllers()?, started.scheduler()?];
        started.wait_for_collector()?;
        Ok(started)
    }

    /// The garbage collector begins when it knows all kinds; on a busy machine that takes longer than scenarios wait.
    fn wait_for_collector(&mut self) -> anyhow::Result<()> {
        const ORPHAN: &str = "left-behind";
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"});
        let orphan = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": ORPHAN, "namespace": "default", "ownerReferences": [owner]},
        });
        let file = self.site.folder.join("left-behind.json");
        fs::write(&file, orphan.to_string())?;
        let file = file.display().to_string();
        // The namespace comes soon after the API server.
        until_it_works(PATIENCE, || self.kubectl(&["create", "-f", &file])).context("waiting for a namespace")?;
        let orphan = format!("configmap/{ORPHAN}");
        let limit = format!("--timeout={}s", PATIENCE.as_secs());
        self.kubectl(&["wait", "--for=delete", &orphan, &limit])
            .context("waiting for the garbage collector")
            .map(drop)
    }

    /// The same without controllers and scheduler: nobody but its clients writes.
    pub fn start_alone(site: Site) -> anyhow::Result<Self> {
        let pki = Pki::new(&site.folder)?;
        let names = [
            site.address.to_string(),
            Ipv4Addr::LOCALHOST.to_string(),
            FIRST_SERVICE.to_owned(),
            "kubernetes.default.svc".to_owned(),
        ];
        let serving = pki.server("api-server", &names)?;
        pki.kubeconfig_by_token(&site.server(), ADMIN, "system:masters")?;
        if let Some(manager) = site.manager() {
            pki.kubeconfig_by_token(&site.server(), &manager, "system:serviceaccounts")?;
        }
        let etcd = start_etcd(&site)?;
        let api_server = start_api_server(&site, &pki, &serving)?;
        let mut started = Self {
            site,
            pki,
            serving,
            etcd,
            api_server,
            others: Vec::new(),
        };
        started.wait()?;
        Ok(started)
    }

    /// How tests reach it.
    pub fn access(&self) -> Access {
        self.site.access()
    }

    /// Fails, with the last words, if a process of it has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        self.etcd.check()?;
        self.api_server.check()?;
        self.others.iter_mut().try_for_each(Process::check)
    }

    /// The address of the API server.
    pub fn server(&self) -> String {
        self.site.server()
    }

    /// Its certificates.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// The rights that the manager has made use of so far.
    pub fn rights_used(&self) -> anyhow::Result<BTreeSet<Right>> {
        rights::used(&self.site.folder)
    }

    /// The output of `kubectl` as the administrator, with the processors of the site: whoever waits for a control plane
    /// does not take them from it.
    pub fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        output(&mut self.kubectl_command(arguments))
    }

    fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.site.processors.command(&self.site.kubernetes.kubectl);
        command.arg("--kubeconfig").arg(self.access().admin).args(arguments);
        command
    }

    /// Looks at each state of an object of this kind and name until there is something to see in one.
    pub fn watch<T>(
        &self,
        [kind, name]: &[&str; 2],
        limit: Duration,
        mut seen: impl FnMut(&Value) -> Option<T>,
    ) -> anyhow::Result<T> {
        let limit = format!("--request-timeout={}s", limit.as_secs());
        // As a list of one. Of a single object that is named, kubectl prints what it gets and leaves out the first state that it
        // watches: what changes in between would never be seen.
        let named = format!("--field-selector=metadata.name={name}");
        let mut command = self.kubectl_command(&["get", kind, &named, "--watch", "--output=json", &limit]);
        let mut kubectl = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let told = kubectl.stdout.take().context("the output is piped")?;
        let states = Deserializer::from_reader(BufReader::new(told)).into_iter::<Value>();
        let found = states.map_while(Result::ok).find_map(|state| seen(&state));
        // It goes on for as long as nobody ends it, unless it has ended.
        let _ = kubectl.kill();
        let ended = kubectl.wait()?;
        found.with_context(|| format!("{command:?} tells of nothing like it: {ended}"))
    }

    /// Kills the API server as SIGKILL does.
    pub fn kill_api_server(&mut self) -> anyhow::Result<()> {
        self.api_server.kill().map(drop)
    }

    /// Asks the API server to end: it ends the watches that it serves.
    pub fn stop_api_server(&mut self) -> anyhow::Result<()> {
        self.api_server.stop().map(drop)
    }

    /// Stops etcd, on which all else rests.
    pub fn stop_etcd(&mut self) -> anyhow::Result<()> {
        self.etcd.stop().map(drop)
    }

    /// Starts again, with what it had, whichever of the two has ended, and waits until all is ready. Where neither has, nothing
    /// is asked: each scenario begins with this.
    pub fn restore(&mut self) -> anyhow::Result<()> {
        let (etcd, api_server) = (self.etcd.ended()?, self.api_server.ended()?);
        if etcd.is_some() {
            self.etcd = start_etcd(&self.site)?;
        }
        if api_server.is_some() {
            self.api_server = start_api_server(&self.site, &self.pki, &self.serving)?;
        }
        if etcd.or(api_server).is_some() {
            self.wait()?;
        }
        Ok(())
    }

    /// The process id of the API server.
    pub fn pid_of_api_server(&self) -> u32 {
        self.api_server.pid()
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        until(PATIENCE, || {
            self.etcd.check()?;
            self.api_server.check()?;
            if !self.site.is_listened_to()? {
                return Ok(None);
            }
            Ok(self.kubectl(&["get", "--raw", "/readyz"]).ok())
        })
        .context("waiting for the API server")
        .map(drop)
    }

    fn controllers(&self) -> anyhow::Result<Process> {
        let mut command = self.component("kube-controller-manager");
        command
            .arg(format!("--service-account-private-key-file={}", self.file("sa.key")))
            .arg(format!("--root-ca-file={}", self.file("ca.crt")))
            .arg(format!("--cluster-signing-cert-file={}", self.file("ca.crt")))
            .arg(format!("--cluster-signing-key-file={}", self.file("ca.key")))
            .arg("--secure-port=0")
            .arg(controllers(self.site.without))
            .args(patience_with_nodes(self.site.patience));
        // Where dozens of control planes are, as one user: as an account each they are dozens of connections.
        let as_accounts = self.site.patience != Patience::Hardly;
        command.arg(format!("--use-service-account-credentials={as_accounts}"));
        Process::start("kube-controller-manager", &self.site.folder, command)
    }

    fn scheduler(&self) -> anyhow::Result<Process> {
        let mut command = self.component("kube-scheduler");
        command.arg("--secure-port=0");
        Process::start("kube-scheduler", &self.site.folder, command)
    }

    fn component(&self, name: &str) -> Command {
        let mut command = self.site.command(&self.site.kubernetes.components);
        command
            .arg(name)
            // As for a large cluster: nobody here should wait for the controllers' own limits.
            .args(["--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000"]);
        let admin = self.access().admin;
        for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
            command.arg(format!("--{flag}={}", admin.display()));
        }
        command
    }

    fn file(&self, name: &str) -> String {
        self.pki.file(name).display().to_string()
    }
}

/// How long the controllers wait for a sign of life of a node.
fn patience_with_nodes(patience: Patience) -> &'static [&'static str] {
    match patience {
        Patience::Usual => &[],
        Patience::WithHosts => &["--node-monitor-grace-period=12s", "--node-monitor-period=1s"],
        Patience::Hardly => &["--node-monitor-grace-period=10s", "--node-monitor-period=1s"],
    }
}

/// The flag that says which controllers run.
fn controllers(without: &[&str]) -> String {
    let without = without.iter().map(|name| format!("-{name}"));
    let all: Vec<_> = std::iter::once("*".to_owned()).chain(without).collect();
    format!("--controllers={}", all.join(","))
}

fn start_etcd(site: &Site) -> anyhow::Result<Process> {
    let mut command = site.command(&site.kubernetes.components);
    command
        .arg("etcd")
        .arg(format!("--data-dir={}", site.folder.join("etcd").display()))
        .arg(format!("--listen-client=127.0.0.1:{}", site.port + 1))
        .arg(format!("--listen-peer=127.0.0.1:{}", site.port + 2));
    Process::start("etcd", &site.folder, command)
}

fn start_api_server(site: &Site, pki: &Pki, serving: &Pair) -> anyhow::Result<Process> {
    let file = |name: &str| pki.file(name).display().to_string();
    let kubelets = pki.client("api-server-to-kubelets", &["system:masters"])?;
    let mut command = site.command(&site.kubernetes.components);
    command
        .arg("kube-apiserver")
        .arg(format!("--etcd-servers={}", site.access().etcd))
        .arg(format!("--secure-port={}", site.port))
        .arg("--bind-address=0.0.0.0")
        .arg(format!("--advertise-address={}", site.address))
        .arg(format!("--tls-cert-file={}", serving.certificate.display()))
        .arg(format!("--tls-private-key-file={}", serving.key.display()))
        .arg(format!("--client-ca-file={}", file("ca.crt")))
        .arg(format!("--token-auth-file={}", file(TOKENS)))
        .arg(format!("--service-account-key-file={}", file("sa.pub")))
        .arg(format!("--service-account-signing-key-file={}", file("sa.key")))
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(format!("--service-cluster-ip-range={SERVICES}"))
        .arg(format!(
            "--kubelet-client-certificate={}",
            kubelets.certificate.display()
        ))
        .arg(format!("--kubelet-client-key={}", kubelets.key.display()))
        .arg("--kubelet-preferred-address-types=InternalIP")
        .args(["--authorization-mode=Node,RBAC", "--allow-privileged=true"]);
    if let Some(manager) = site.manager() {
        command.args(rights::recording(&site.folder, &manager)?);
    }
    if site.strict {
        command.arg("--enable-admission-plugins=OwnerReferencesPermissionEnforcement");
    }
    if site.patience == Patience::Hardly {
        command.args([
            "--default-not-ready-toleration-seconds=3",
            "--default-unreachable-toleration-seconds=3",
        ]);
    }
    Process::start("kube-apiserver", &site.folder, command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_controllers_run_but_those_that_are_named() {
        assert_eq!(controllers(&[]), "--controllers=*");
        assert_eq!(controllers(&["one", "two"]), "--controllers=*,-one,-two");
    }
}
