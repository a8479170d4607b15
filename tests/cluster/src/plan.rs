//! Which tiers a run has, and which are left out of it, and why.
//!
//! What whoever runs it did not ask for is not left out: it was not asked for. The last lines tell the rest.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use skerry_cluster::abilities::Abilities;

/// Which Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Version {
    #[value(name = "1.34")]
    WithNodes,
    #[value(name = "1.36")]
    Newest,
}

impl Version {
    pub fn name(self) -> &'static str {
        match self {
            Self::WithNodes => "1.34",
            Self::Newest => "1.36",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tier {
    /// The scenarios, on control planes with stand-in nodes.
    Scenarios,
    /// The chart and the examples, on two hosts with real nodes.
    Hosts,
    /// The manager's bench.
    Scale,
    /// The edge link's bench; not part of a whole run.
    Edge,
    /// The sandbox beside an API server on its own: the same requests to both.
    Contract,
}

/// The test programs that run on control planes: the first one by itself, the others one after the other beside it.
pub const SCENARIOS: [&str; 4] = ["operator", "real", "kubectl", "admission"];

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Whether scenarios are named by parts of their names.
    pub filtered: bool,
    pub only: Option<Tier>,
    /// The one program of scenarios.
    pub test: Option<&'a str>,
    pub kubernetes: Version,
}

impl Asked<'_> {
    /// Whether nothing is left out.
    pub fn is_everything(&self) -> bool {
        !self.is_named() && self.only.is_none()
    }

    /// Whether scenarios are named: by a filter or by their program.
    fn is_named(&self) -> bool {
        self.filtered || self.test.is_some()
    }
}

/// A bench, and how large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// The manager's, so little that it tells only whether it works.
    Shortened,
    /// The manager's.
    Scale,
    /// The edge link's.
    Edge,
}

/// What runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tiers {
    pub scenarios: Vec<&'static str>,
    pub hosts: bool,
    pub contract: bool,
    pub bench: Option<Measured>,
}

/// What was asked for and does not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    what: String,
    why: String,
    /// Whether another machine could run it. Of another Kubernetes nobody asks that.
    pub by_the_machine: bool,
}

impl Skipped {
    /// What this machine cannot run.
    fn by_the_machine(what: &str, why: &str) -> Self {
        Self {
            what: what.to_owned(),
            why: why.to_owned(),
            by_the_machine: true,
        }
    }

    /// What is not run with this Kubernetes.
    fn by_the_version(what: &str, why: &str) -> Self {
        Self {
            by_the_machine: false,
            ..Self::by_the_machine(what, why)
        }
    }

    /// The hosts, which turned out not to run here.
    pub fn hosts(why: &str) -> Self {
        Self::by_the_machine(HOSTS, why)
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, why, .. } = self;
        write!(f, "skipped: {what}: {why}")
    }
}

const HOSTS: &str = "the two hosts (containers, the chart on real nodes, cuts and power failures), and whether the manager has \
                     a use for all of its rights";
const CONTRACT: &str = "the contract of the sandbox";
const BENCH: &str = "the manager's bench";

/// What runs of what was asked for, on a machine with these abilities, and what does not.
pub fn plan(abilities: &Abilities, asked: &Asked<'_>) -> (Tiers, Vec<Skipped>) {
    let wants = |tier| asked.only.is_none_or(|only| only == tier);
    let mut skipped = vec![];
    let kept_from = match abilities {
        Abilities::Nothing(why) => return (Tiers::default(), vec![Skipped::by_the_machine("everything", why)]),
        Abilities::ControlPlanes(why) => Some(why),
        Abilities::Hosts => None,
    };
    let mut hosts = wants(Tier::Hosts) && (!asked.is_named() || asked.only.is_some());
    let mut contract = asked.is_everything() || asked.only == Some(Tier::Contract);
    let mut bench = match asked.only {
        Some(Tier::Scale) => Some(Measured::Scale),
        Some(Tier::Edge) => Some(Measured::Edge),
        None if asked.is_everything() => Some(Measured::Shortened),
        _ => None,
    };
    if hosts && asked.kubernetes == Version::Newest {
        let why = "its kubelet asks for containerd 2 and the second version of cgroups";
        skipped.push(Skipped::by_the_version(HOSTS, why));
        hosts = false;
    }
    if hosts && let Some(why) = kept_from {
        skipped.push(Skipped::hosts(why));
        hosts = false;
    }
    // Whoever asks for these two by name gets them.
    if asked.is_everything() && asked.kubernetes == Version::Newest {
        skipped.push(Skipped::by_the_version(CONTRACT, "it is made after 1.34"));
        skipped.push(Skipped::by_the_version(BENCH, "with 1.34 it tells as much"));
        contract = false;
        bench = None;
    }
    let programs = SCENARIOS.into_iter();
    let programs = programs.filter(|name| wants(Tier::Scenarios) && asked.test.is_none_or(|test| test == *name));
    let tiers = Tiers {
        scenarios: programs.collect(),
        hosts,
        contract,
        bench,
    };
    (tiers, skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Asked<'static> = Asked {
        filtered: false,
        only: None,
        test: None,
        kubernetes: Version::WithNodes,
    };

    fn only(tier: Tier) -> Asked<'static> {
        Asked {
            only: Some(tier),
            ..WHOLE
        }
    }

    fn newest(asked: Asked<'static>) -> Asked<'static> {
        Asked {
            kubernetes: Version::Newest,
            ..asked
        }
    }

    /// The names of the tiers that run, and those of what is left out.
    fn told(abilities: &Abilities, asked: &Asked<'_>) -> (String, Vec<&'static str>) {
        let (tiers, skipped) = plan(abilities, asked);
        let Tiers {
            scenarios,
            hosts,
            contract,
            bench,
        } = tiers;
        let mut runs: Vec<_> = scenarios.into_iter().map(str::to_owned).collect();
        runs.extend(hosts.then(|| "hosts".to_owned()));
        runs.extend(contract.then(|| "contract".to_owned()));
        runs.extend(bench.map(|bench| format!("{bench:?}")));
        let short = |skipped: &Skipped| {
            let names = [
                ("everything", "everything"),
                (HOSTS, "hosts"),
                (CONTRACT, "contract"),
                (BENCH, "bench"),
            ];
            names.into_iter().find(|(what, _)| *what == skipped.what).unwrap().1
        };
        (runs.join(" "), skipped.iter().map(short).collect())
    }

    #[test]
    fn what_was_asked_for_runs_or_is_named_as_left_out() {
        let all = "operator real kubectl admission";
        let filtered = Asked {
            filtered: true,
            ..WHOLE
        };
        let program = Asked {
            test: Some("real"),
            ..WHOLE
        };
        let filtered_hosts = Asked {
            filtered: true,
            ..only(Tier::Hosts)
        };
        // What was asked for; what runs where hosts do, and is left out there; what runs where they do not, and is left out.
        for (asked, hosts, without, planes, missing) in [
            (
                WHOLE,
                "operator real kubectl admission hosts contract Shortened",
                &[][..],
                "operator real kubectl admission contract Shortened",
                &["hosts"][..],
            ),
            (filtered, all, &[], all, &[]),
            (program, "real", &[], "real", &[]),
            (only(Tier::Scenarios), all, &[], all, &[]),
            (only(Tier::Hosts), "hosts", &[], "", &["hosts"]),
            (filtered_hosts, "hosts", &[], "", &["hosts"]),
            (only(Tier::Contract), "contract", &[], "contract", &[]),
            (only(Tier::Scale), "Scale", &[], "Scale", &[]),
            (only(Tier::Edge), "Edge", &[], "Edge", &[]),
            (
                newest(WHOLE),
                all,
                &["hosts", "contract", "bench"],
                all,
                &["hosts", "contract", "bench"],
            ),
            (newest(filtered), all, &[], all, &[]),
            (newest(program), "real", &[], "real", &[]),
            (newest(only(Tier::Scenarios)), all, &[], all, &[]),
            (newest(only(Tier::Hosts)), "", &["hosts"], "", &["hosts"]),
            (newest(only(Tier::Contract)), "contract", &[], "contract", &[]),
            (newest(only(Tier::Scale)), "Scale", &[], "Scale", &[]),
        ] {
            let weak = Abilities::ControlPlanes("no cgroups".to_owned());
            let none = Abilities::Nothing("no Go".to_owned());
            assert_eq!(
                told(&Abilities::Hosts, &asked),
                (hosts.to_owned(), without.to_vec()),
                "{asked:?}"
            );
            assert_eq!(told(&weak, &asked), (planes.to_owned(), missing.to_vec()), "{asked:?}");
            assert_eq!(told(&none, &asked), (String::new(), vec!["everything"]), "{asked:?}");
        }
    }

    #[test]
    fn what_is_left_out_says_why_and_whether_another_machine_would_run_it() {
        let told = |abilities: &Abilities, asked| {
            let (_, skipped) = plan(abilities, &asked);
            skipped
                .iter()
                .map(|skipped| (skipped.to_string(), skipped.by_the_machine))
                .collect::<Vec<_>>()
        };
        let none = Abilities::Nothing("no Go".to_owned());
        assert_eq!(told(&none, WHOLE), [("skipped: everything: no Go".to_owned(), true)]);
        let weak = Abilities::ControlPlanes("no cgroups".to_owned());
        assert_eq!(told(&weak, WHOLE), [(format!("skipped: {HOSTS}: no cgroups"), true)]);
        let newest = told(&Abilities::Hosts, newest(WHOLE));
        assert_eq!(newest.len(), 3, "{newest:?}");
        assert!(
            newest
                .iter()
                .all(|(line, by_the_machine)| line.matches(": ").count() >= 2 && !by_the_machine),
            "{newest:?}"
        );
    }
}
