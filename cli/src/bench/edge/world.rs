//! What a measurement works with: an API server, a namespace in it, a manager and the nodes, each in a process of its own.

use std::path::{Path, PathBuf};

use k8s_openapi::{
    api::coordination::v1::Lease, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, api::DeleteParams, runtime::wait::delete::delete_and_finalize};
use serde_json::{Map, Value};
use skerry_globalmanager::run::LEASE;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::{
    super::{
        figures,
        manager::{Manager, Setup},
        place::{Plane, install_missing, refused},
        say,
    },
    api_server, authority,
    declared::{Declared, Kind},
    fleet::{Fleet, Target},
};
use crate::{failure::Failure, process::Process};

/// The world of one measurement.
pub(super) struct World {
    plane: Plane,
    prepared: Prepared,
    folder: TempDir,
    /// Another namespace, and the kubeconfig of its manager, once there was need of one.
    another: OnceCell<(String, PathBuf)>,
    /// An API server of one's own.
    server: Option<Process>,
}

/// How many managers there are at most, each of a namespace of its own.
const MANAGERS: u32 = 2;

/// What was made on the control plane.
struct Prepared {
    namespace: String,
    /// The manager's.
    kubeconfig: PathBuf,
    /// The folder of the authority.
    authority: PathBuf,
    /// What the API server calls its version; the sandbox's is called that.
    version: String,
}

async fn prepare(plane: &Plane, sandbox: bool, folder: &Path) -> Result<Prepared, Failure> {
    let namespace = plane.namespace(1).await?;
    Ok(Prepared {
        kubeconfig: plane.kubeconfig(&namespace, folder)?,
        authority: authority::make(&plane.client, &namespace, folder).await?,
        version: if sandbox {
            "the sandbox's".to_owned()
        } else {
            plane.version().await?
        },
        namespace,
    })
}

/// How nodes connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Plain,
    Tls,
}

impl Link {
    /// Both, the cheaper one first.
    pub(super) const ALL: [Self; 2] = [Self::Plain, Self::Tls];

    /// How figures are told apart.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tls => "tls",
        }
    }
}

impl World {
    /// Starts one on this control plane, or on an API server of its own.
    pub(super) async fn start(borrowed: Option<&Path>) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().map_err(|error| Failure::new(error, "see whether the disk is full"))?;
        let (server, file) = if let Some(file) = borrowed {
            (None, file.to_owned())
        } else {
            let (server, file) = api_server::start(folder.path()).await?;
            (Some(server), file)
        };
        let plane = Plane::join(&file, "--kubeconfig").await?;
        let prepared = match prepare(&plane, server.is_some(), folder.path()).await {
            Ok(prepared) => prepared,
            Err(failure) => {
                plane.leave(MANAGERS).await?;
                return Err(failure);
            }
        };
        Ok(Self {
            plane,
            prepared,
            folder,
            another: OnceCell::new(),
            server,
        })
    }

    /// The namespace that everything is in.
    pub(super) fn namespace(&self) -> &str {
        &self.prepared.namespace
    }

    /// What a manager is started with.
    pub(super) fn setup(&self, link: Link) -> Result<Setup, Failure> {
        let Prepared {
            kubeconfig, namespace, ..
        } = &self.prepared;
        let setup = Setup::new(kubeconfig, namespace, self.folder())?;
        match link {
            Link::Plain => Ok(setup),
            Link::Tls => setup.with_tls(),
        }
    }

    /// Where nodes connect to a manager of this setup.
    pub(super) fn target(&self, setup: &Setup) -> Target {
        Target {
            manager: setup.tls.unwrap_or(setup.plain),
            authority: setup.tls.is_some().then(|| self.prepared.authority.clone()),
        }
    }

    /// A manager, and where nodes connect to it.
    pub(super) async fn manager(&self, link: Link) -> Result<(Manager, Target), Failure> {
        let setup = self.setup(link)?;
        Ok((Manager::start(&setup).await?, self.target(&setup)))
    }

    /// A file with a join token for a node.
    pub(super) async fn invite(&self, node: &str) -> Result<PathBuf, Failure> {
        authority::invite(&self.plane.client, self.namespace(), node, self.folder()).await
    }

    /// A process for nodes.
    pub(super) fn fleet(&self) -> Result<Fleet, Failure> {
        Fleet::start(self.folder())
    }

    /// Resources for nodes, not declared yet.
    pub(super) fn load(&self, kind: Kind, count: u32, nodes: u32) -> Declared<'_> {
        Declared::new(&self.plane, self.namespace(), kind, count, nodes)
    }

    /// What a manager of another, empty cluster is started with, in the place of this one. To nodes, a manager that looks
    /// after one namespace speaks for that one, as others do for their cluster: so another namespace is another cluster.
    pub(super) async fn another(&self, setup: &Setup) -> Result<Setup, Failure> {
        let make = async || {
            let namespace = self.plane.namespace(2).await?;
            let folder = self.folder().join("another");
            std::fs::create_dir_all(&folder).map_err(|error| Failure::new(error, "see whether the disk is full"))?;
            let kubeconfig = self.plane.kubeconfig(&namespace, &folder)?;
            Ok::<_, Failure>((namespace, kubeconfig))
        };
        let (namespace, kubeconfig) = self.another.get_or_try_init(make).await?;
        Ok(setup.instead(kubeconfig, namespace))
    }

    /// Deletes the definition of a kind, with all resources of it, and makes it again.
    pub(super) async fn make_kind_again(&self, kind: Kind) -> Result<(), Failure> {
        let client = self.plane.client.clone();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let kind = kind.object_kind();
        let name = format!("{}.{}", kind.plural, kind.group);
        delete_and_finalize(definitions, &name, &DeleteParams::background())
            .await
            .map_err(|error| Failure::new(format!("{name} is not gone: {error}"), "see its status"))?;
        install_missing(&client).await
    }

    /// Deletes the manager's Lease.
    pub(super) async fn delete_lease(&self) -> Result<(), Failure> {
        let leases: Api<Lease> = Api::namespaced(self.plane.client.clone(), self.namespace());
        let deleted = leases.delete(LEASE, &DeleteParams::default()).await;
        deleted.map(drop).map_err(refused)
    }

    /// Where the parts write.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The circumstances of a measurement.
    pub(super) fn conditions<'a>(&self, own: impl IntoIterator<Item = (&'a str, Value)>) -> Map<String, Value> {
        figures::conditions(own, &self.prepared.version)
    }

    /// Leaves nothing behind, but for what the parts wrote where something failed.
    pub(super) async fn end(self, failed: bool) -> Result<(), Failure> {
        let Self {
            plane,
            prepared: _,
            folder,
            another: _,
            server,
        } = self;
        if failed {
            say(&format!("what the parts wrote is kept in {}", folder.keep().display()));
        }
        match server {
            // All that was made is in its memory.
            Some(server) => {
                server.kill().await;
                Ok(())
            }
            None => plane.leave(MANAGERS).await,
        }
    }
}
