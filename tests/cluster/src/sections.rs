//! The sections of the page of scenarios: which programs there are, and where each of them runs.

use anyhow::Context;

/// Where scenarios run, as the page's columns are called.
pub const PLACES: [&str; 3] = [SANDBOX, "1.34", OPTIONAL];
/// The API server in memory.
pub const SANDBOX: &str = "sandbox";
/// The place whose column may say that something was not run.
pub(crate) const OPTIONAL: &str = "1.36";

/// A program of scenarios: a section of the page.
pub struct Section {
    /// The test program, or the tour.
    pub program: &'static str,
    /// What the section is called.
    pub(crate) title: &'static str,
    /// What is said of it before its scenarios.
    pub(crate) about: &'static str,
    /// The place whose results stand in each column.
    pub(crate) columns: [Option<&'static str>; 3],
    /// Scenarios that are for the sandbox alone.
    pub sandbox_only: &'static [&'static str],
    /// What the names of those contain that take longest: they begin with the first.
    pub longest: &'static [&'static str],
    /// The folders in which its scenarios are written.
    pub sources: &'static [&'static str],
}

/// All of them.
pub const SECTIONS: [Section; 6] = [
    Section {
        program: "operator",
        title: "What the manager does",
        about: "The manager's engine between an API server and stand-in nodes. `cargo test` runs these on the sandbox, where \
                an hour passes at\nonce. On Kubernetes no more than 8 s pass of the time that a scenario lets pass, but for \
                a few that need all of it, and the\nmanager puts less off: it tries again after a second at most, not after \
                minutes, replaces a lost pod after one second, not\nten, and writes a status ten times a second, not once.",
        columns: [Some(SANDBOX), Some("1.34"), Some("1.36")],
        sandbox_only: &[],
        longest: &[
            "writes::",
            // What fails is tried again after a while. With others beside them nobody waits for that alone.
            "every_second_write_may_fail",
            "any_mixture_of_faults",
            // Kubernetes collects the pods of a node that is gone once a minute.
            "a_pod_on_a_lost_node_is_replaced_once",
            "a_worker_that_the_scheduler_places_is_told",
        ],
        sources: &["tests/src", "tests/tests/operator", "tests/tests/manifests"],
    },
    Section {
        program: "real",
        title: "What only a real control plane can show",
        about: "They are about parts of Kubernetes that the sandbox does without: its autoscaler, evictions, an API server \
                and an etcd that go down, roles.",
        columns: [None, Some("1.34"), Some("1.36")],
        sandbox_only: &[],
        longest: &[],
        sources: &["tests/src", "tests/tests/real", "tests/tests/manifests"],
    },
    Section {
        program: "kubectl",
        title: "What users type",
        about: "An unmodified `kubectl`. `cargo test` runs these on the sandbox. Pods on a control plane's stand-in nodes \
                have no logs: on\nreal nodes, the scenarios of a killed container and of an image that does not exist \
                follow a worker's log, read the one from\nbefore its restart, and ask for that of a pod that waits. Only \
                the sandbox's nodes have no shells.",
        columns: [Some(SANDBOX), Some("1.34"), Some("1.36")],
        sandbox_only: &["pods::logs_are_followed_and_no_shell_is_opened"],
        longest: &[],
        sources: &["tests/src", "tests/tests/kubectl"],
    },
    Section {
        program: "admission",
        title: "What is taken and what is refused",
        about: "Manifests of all kinds, good ones and each with one mistake, sent as `kubectl` sends them. `cargo test` runs \
                these on the sandbox.",
        columns: [Some(SANDBOX), Some("1.34"), Some("1.36")],
        sandbox_only: &[],
        longest: &[],
        sources: &["tests/src", "tests/tests/admission", "crds/tests/manifests"],
    },
    Section {
        program: "contract",
        title: "What the sandbox answers as Kubernetes does",
        about: "The same requests go to both, and their answers are compared: what holds, holds for both. The sandbox is made \
                after 1.34; 1.36 words some refusals otherwise, and is not asked.",
        columns: [Some("1.34"), Some("1.34"), None],
        sandbox_only: &[],
        longest: &[],
        sources: &["tests/src", "tests/tests/contract"],
    },
    Section {
        program: HOSTS,
        title: "What only real nodes can show",
        about: "Tours of hosts with kubelets and containers, which the sandbox has none of: two hosts meet troubles, and two \
                others beside them begin with the upgrade. Kubelets of 1.36 ask for more than some machines have.",
        columns: [None, Some("1.34"), None],
        sandbox_only: &[],
        longest: &[],
        sources: &["tests/cluster/src/real", "tests/tests/manifests"],
    },
];

/// The tour of the hosts.
pub const HOSTS: &str = "hosts";

impl Section {
    /// The section of a program.
    pub fn of(program: &str) -> anyhow::Result<&'static Self> {
        let found = SECTIONS.iter().find(|section| section.program == program);
        found.with_context(|| format!("{program} has no section in the page of scenarios"))
    }

    /// Whether it runs on the sandbox by itself.
    pub fn runs_on_the_sandbox(&self) -> bool {
        self.columns.contains(&Some(SANDBOX))
    }

    /// What runs all of it at a place.
    pub(crate) fn command(&self, place: &str) -> String {
        let which = match self.program {
            HOSTS => "--only hosts".to_owned(),
            "contract" => "--only contract".to_owned(),
            program => format!("--only scenarios --test {program}"),
        };
        let kubernetes = if place == OPTIONAL { " --kubernetes 1.36" } else { "" };
        format!("tests/cluster/run {which}{kubernetes}")
    }
}
