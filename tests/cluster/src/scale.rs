//! The manager's bench on a control plane of its own.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::{
    control_plane::{ControlPlane, Site},
    enclosure::FOLDER,
    programs::{built, command_line},
};

/// How large the bench's first load is, and what is measured.
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
pub struct Scale {
    /// The bench's first load: services.
    #[arg(long, default_value_t = 1000)]
    services: u32,
    /// And jobs.
    #[arg(long, default_value_t = 200)]
    jobs: u32,
    /// The program whose bench is run, in place of a release built for it.
    #[arg(long, value_name = "FILE")]
    skerry: Option<PathBuf>,
}

impl Scale {
    /// Builds the program that is measured, unless it is given.
    pub fn gather(mut self) -> anyhow::Result<Self> {
        self.skerry = match &self.skerry {
            Some(given) => Some(given.canonicalize().with_context(|| given.display().to_string())?),
            None => built(
                skerry_dist::cargo().args(["build", "--release", "--workspace", "--bin=skerry"]),
                &["skerry"],
            )?
            .pop(),
        };
        Ok(self)
    }

    /// So little, with the program that tests use, that it tells whether the bench works, and nothing of speed.
    pub fn shortened(self) -> anyhow::Result<Self> {
        Ok(Self {
            services: 20,
            jobs: 5,
            skerry: Some(command_line()?),
        })
    }

    /// Runs `skerry bench control-plane`, whose figures go to the caller's output.
    pub fn measure(&self, kubernetes: &Path) -> anyhow::Result<()> {
        let skerry = self.skerry.as_ref().context("nothing was built")?;
        let mut plane = ControlPlane::start(Site {
            kubernetes: kubernetes.to_owned(),
            folder: Path::new(FOLDER).join("scale"),
            address: Ipv4Addr::LOCALHOST,
            port: 10_950,
            netns: None,
            known: None,
            hasty: false,
            manager_in: None,
        })?;
        let status = Command::new(skerry)
            .args(["bench", "control-plane", "--kubeconfig"])
            .arg(plane.access().admin)
            .arg(format!("--services={}", self.services))
            .arg(format!("--jobs={}", self.jobs))
            .status()
            .with_context(|| format!("starting {}", skerry.display()))?;
        plane.check()?;
        if !status.success() {
            bail!("the bench ended with {status}");
        }
        Ok(())
    }
}
