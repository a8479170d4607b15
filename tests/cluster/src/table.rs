//! The page of all scenarios: which there are, and where each of them held.
//!
//! The page is made of the results of runs alone: where one is missing, tells of a failure or is of other sources, there is
//! no page. A test of each program then sees to it that the page names what there is.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
};

use anyhow::{Context, bail, ensure};

use crate::{
    artifacts::{KUBERNETES, NEWEST},
    process::output,
    results::{self, Outcome, Results, Sources},
};

/// The page.
const PAGE: &str = "docs/scenarios.md";

/// Where scenarios run, as the page's columns are called.
pub const PLACES: [&str; 3] = [SANDBOX, "1.34", OPTIONAL];
/// The API server in memory.
pub const SANDBOX: &str = "sandbox";
/// The place whose column may say that something was not run.
const OPTIONAL: &str = "1.36";

/// What the page says of a scenario that held.
const HOLDS: &str = "holds";
/// What it says of one without a result.
const NOT_RUN: &str = "not run";

/// The test that holds a program against the page. It is none of the scenarios: it is left out of the runs from which the
/// page is made.
pub const CHECK: &str = "the_page_of_scenarios_names_each_of_these";

/// A program of scenarios: a section of the page.
pub struct Section {
    /// The test program, or the tour.
    pub program: &'static str,
    title: &'static str,
    about: &'static str,
    /// The place whose results stand in each column.
    columns: [Option<&'static str>; 3],
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
        found.with_context(|| format!("{program} has no section in {PAGE}"))
    }

    /// Whether it runs on the sandbox by itself.
    pub fn runs_on_the_sandbox(&self) -> bool {
        self.columns.contains(&Some(SANDBOX))
    }

    /// Its part of the page.
    fn written(&self, names: &[String], results: &Results) -> anyhow::Result<String> {
        let Self {
            program, title, about, ..
        } = self;
        let mut text = format!(
            "\n## {title}\n\n{about}\n\n| scenario | {} |\n|---|---|---|---|\n",
            PLACES.join(" | ")
        );
        for name in names {
            let cells = self.columns.iter().map(|column| self.cell(name, *column, results));
            let cells: Vec<_> = cells.collect::<Result<_, _>>().with_context(|| (*program).to_owned())?;
            // Writing to a text cannot fail.
            let _ = writeln!(text, "| {} | {} |", sentence(name), cells.join(" | "));
        }
        Ok(text)
    }

    fn cell(&self, name: &str, column: Option<&str>, results: &Results) -> anyhow::Result<&'static str> {
        let Some(place) = column.filter(|place| *place == SANDBOX || !self.sandbox_only.contains(&name)) else {
            return Ok("–");
        };
        match results.get(place).and_then(|known| known.get(name)) {
            Some(Outcome::Held) => Ok(HOLDS),
            Some(Outcome::Failed) => bail!("{name:?} did not hold on {place}"),
            Some(Outcome::Stale) => {
                bail!(
                    "{name:?} was last run on {place} with other sources: repeat {}",
                    self.command(place)
                )
            }
            None if place == OPTIONAL => Ok(NOT_RUN),
            None => bail!(
                "{name:?} has no result on {place}: there has to be {}",
                self.command(place)
            ),
        }
    }

    /// What runs all of it at a place.
    fn command(&self, place: &str) -> String {
        let which = match self.program {
            HOSTS => "--only hosts".to_owned(),
            "contract" => "--only contract".to_owned(),
            program => format!("--only scenarios --test {program}"),
        };
        let kubernetes = if place == OPTIONAL { " --kubernetes 1.36" } else { "" };
        format!("tests/cluster/run {which}{kubernetes}")
    }
}

/// Fails if a result from Kubernetes is missing, tells of a failure or is of other sources, so that nothing else needs to be
/// run.
pub fn suffices(names: impl Fn(&Section) -> anyhow::Result<Vec<String>>, sources: &Sources) -> anyhow::Result<()> {
    for section in &SECTIONS {
        let results = results::known(section, sources)?;
        let columns = section.columns.iter().filter(|column| **column != Some(SANDBOX));
        for (name, column) in names(section)?
            .iter()
            .flat_map(|name| columns.clone().map(move |column| (name, column)))
        {
            section
                .cell(name, *column, &results)
                .with_context(|| section.program.to_owned())?;
        }
    }
    Ok(())
}

/// Writes the page, with these scenarios in the sections.
pub fn write(names: impl Fn(&Section) -> anyhow::Result<Vec<String>>, sources: &Sources) -> anyhow::Result<()> {
    let mut page = format!(
        "# Scenarios\n\nWhat Skerry is held to, and where it held when this page was written: on the sandbox, and on Kubernetes \
         {KUBERNETES} and\n{NEWEST}. `tests/cluster/run` runs the scenarios, and `tests/cluster/run --table` writes this page from \
         their results\n([CONTRIBUTING.md](../CONTRIBUTING.md)). A dash stands where a scenario does not run, for\n\
         a reason that its section gives.\n"
    );
    for section in &SECTIONS {
        page += &section.written(&names(section)?, &results::known(section, sources)?)?;
    }
    fs::write(skerry_dist::root().join(PAGE), page).context(PAGE)
}

/// The scenarios of a test program.
pub fn listed(program: &Path) -> anyhow::Result<Vec<String>> {
    let list = output(Command::new(program).args(["--list", "--format=terse"]))?;
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.filter(|name| *name != CHECK).map(str::to_owned).collect())
}

/// Fails if the page does not name just the scenarios of the test program that asks.
pub fn names_all_of_this_program(program: &str) -> anyhow::Result<()> {
    names_all(program, &listed(&env::current_exe()?)?)
}

/// Fails if the page does not name just these scenarios of a program.
pub fn names_all(program: &str, names: &[String]) -> anyhow::Result<()> {
    let page = fs::read_to_string(skerry_dist::root().join(PAGE)).context(PAGE)?;
    agrees(&page, Section::of(program)?, names)
}

/// What the page says of each scenario of a section, in its columns.
fn rows<'a>(page: &'a str, section: &Section) -> anyhow::Result<BTreeMap<&'a str, Vec<&'a str>>> {
    let text = page
        .split("\n## ")
        .find(|text| text.lines().next() == Some(section.title));
    let text = text.with_context(|| format!("{PAGE} has no section {:?}", section.title))?;
    let cells = text
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    Ok(cells
        .filter(|(name, _)| *name != "scenario")
        .map(|(name, cells)| (name, cells.split(" | ").collect()))
        .collect())
}

fn agrees(page: &str, section: &Section, names: &[String]) -> anyhow::Result<()> {
    let on_page: BTreeSet<_> = rows(page, section)?.into_keys().map(str::to_owned).collect();
    let there: BTreeSet<_> = names.iter().map(|name| sentence(name)).collect();
    let missing: Vec<_> = there.difference(&on_page).collect();
    let gone: Vec<_> = on_page.difference(&there).collect();
    ensure!(
        missing.is_empty() && gone.is_empty(),
        "{PAGE} lacks {missing:?} and names {gone:?}, which are gone; tests/cluster/run --table writes it anew"
    );
    Ok(())
}

/// Where the page contradicts what a whole run of a program at a place has shown.
pub fn contradictions(program: &str, place: &str, sources: &Sources) -> anyhow::Result<Vec<String>> {
    let page = fs::read_to_string(skerry_dist::root().join(PAGE)).context(PAGE)?;
    let section = Section::of(program)?;
    let mut results = results::known(section, sources)?;
    contradicted(&page, section, place, &results.remove(place).unwrap_or_default())
}

fn contradicted(
    page: &str,
    section: &Section,
    place: &str,
    shown: &BTreeMap<String, Outcome>,
) -> anyhow::Result<Vec<String>> {
    let column = PLACES.iter().position(|known| *known == place);
    let column = column.with_context(|| format!("{PAGE} has no column {place}"))?;
    let said: BTreeMap<_, _> = rows(page, section)?
        .into_iter()
        .filter_map(|(name, cells)| Some((name, *cells.get(column)?)))
        .collect();
    let shown: BTreeMap<_, _> = shown.iter().map(|(name, outcome)| (sentence(name), *outcome)).collect();
    let ran = shown
        .iter()
        .filter_map(|(name, outcome)| match said.get(name.as_str()) {
            None => Some(format!("{PAGE} says nothing of {name:?}, which was run on {place}")),
            Some(said) if *outcome != Outcome::Held => Some(format!(
                "{PAGE} says {said:?} of {name:?}, which did not hold on {place}"
            )),
            // Of the optional place it may say so until it is written anew.
            Some(&NOT_RUN) if place != OPTIONAL => {
                Some(format!("{PAGE} says {NOT_RUN:?} of {name:?}, which held on {place}"))
            }
            Some(_) => None,
        });
    let others = said
        .iter()
        .filter(|(name, said)| **said == HOLDS && !shown.contains_key(**name));
    let others = others.map(|(name, _)| format!("{PAGE} says {HOLDS:?} of {name:?}, which was not run on {place}"));
    Ok(ran.chain(others).collect())
}

/// A test's path as people read it.
fn sentence(path: &str) -> String {
    path.replace("::", ": ").replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> &'static Section {
        Section::of("kubectl").unwrap()
    }

    fn names() -> Vec<String> {
        ["pods::are_made", "pods::logs_are_followed_and_no_shell_is_opened"]
            .map(str::to_owned)
            .to_vec()
    }

    fn held(on: &[&'static str]) -> Results {
        let all = || names().into_iter().map(|name| (name, Outcome::Held)).collect();
        on.iter().map(|place| (*place, all())).collect()
    }

    #[test]
    fn a_row_says_where_a_scenario_held_and_where_it_does_not_run() {
        let text = section().written(&names(), &held(&[SANDBOX, "1.34"])).unwrap();
        let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| pods")).collect();
        assert_eq!(
            rows,
            [
                "| pods: are made | holds | holds | not run |",
                "| pods: logs are followed and no shell is opened | holds | – | – |",
            ]
        );
    }

    #[test]
    fn there_is_no_page_without_results_or_with_a_failure() {
        let refused = |results: &Results| format!("{:#}", section().written(&names(), results).unwrap_err());
        assert_eq!(
            refused(&held(&[SANDBOX, "1.36"])),
            "kubectl: \"pods::are_made\" has no result on 1.34: there has to be tests/cluster/run --only scenarios --test \
             kubectl"
        );
        let with = |outcome| {
            let mut results = held(&PLACES);
            let newest = results.get_mut("1.36").unwrap();
            newest.insert("pods::are_made".to_owned(), outcome);
            refused(&results)
        };
        assert_eq!(
            with(Outcome::Failed),
            "kubectl: \"pods::are_made\" did not hold on 1.36"
        );
        assert_eq!(
            with(Outcome::Stale),
            "kubectl: \"pods::are_made\" was last run on 1.36 with other sources: repeat tests/cluster/run --only scenarios \
             --test kubectl --kubernetes 1.36"
        );
    }

    #[test]
    fn a_page_contradicts_a_run_that_failed_or_ran_other_scenarios() {
        let page = "# Scenarios\n".to_owned() + &section().written(&names(), &held(&[SANDBOX, "1.34"])).unwrap();
        // The last row is behind: nobody writes it as long as a result is missing elsewhere.
        let page = page + "| pods: wait | not run | not run | not run |\n";
        let told = |place, shown: &[(&str, Outcome)]| {
            let shown = shown
                .iter()
                .map(|(name, outcome)| ((*name).to_owned(), *outcome))
                .collect();
            contradicted(&page, section(), place, &shown).unwrap()
        };
        let made = "pods::are_made";
        assert_eq!(told("1.34", &[(made, Outcome::Held)]), [""; 0]);
        assert_eq!(told("1.36", &[(made, Outcome::Held)]), [""; 0]);
        assert_eq!(told("1.36", &[]), [""; 0]);
        assert_eq!(
            told("1.34", &[(made, Outcome::Failed)]),
            ["docs/scenarios.md says \"holds\" of \"pods: are made\", which did not hold on 1.34"]
        );
        assert_eq!(
            told("1.36", &[(made, Outcome::Failed)]),
            ["docs/scenarios.md says \"not run\" of \"pods: are made\", which did not hold on 1.36"]
        );
        assert_eq!(
            told("1.34", &[]),
            ["docs/scenarios.md says \"holds\" of \"pods: are made\", which was not run on 1.34"]
        );
        assert_eq!(
            told("1.34", &[(made, Outcome::Held), ("pods::go", Outcome::Held)]),
            ["docs/scenarios.md says nothing of \"pods: go\", which was run on 1.34"]
        );
        assert_eq!(
            told("1.34", &[(made, Outcome::Held), ("pods::wait", Outcome::Held)]),
            ["docs/scenarios.md says \"not run\" of \"pods: wait\", which held on 1.34"]
        );
        assert_eq!(told("1.36", &[("pods::wait", Outcome::Held)]), [""; 0]);
    }

    #[test]
    fn a_page_that_names_other_scenarios_is_out_of_date() {
        let page = "# Scenarios\n".to_owned() + &section().written(&names(), &held(&PLACES)).unwrap();
        agrees(&page, section(), &names()).unwrap();
        let told = |names: &[String]| agrees(&page, section(), names).unwrap_err().to_string();
        assert!(told(&names()[1..]).contains("names [\"pods: are made\"], which are gone"));
        let more = [names(), vec!["another".to_owned()]].concat();
        assert!(told(&more).contains("lacks [\"another\"]"));
        assert!(agrees(&page, Section::of(HOSTS).unwrap(), &[]).is_err());
    }
}
