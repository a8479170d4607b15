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
    sections::{OPTIONAL, PLACES, SANDBOX, SECTIONS, Section},
};

/// The page.
const PAGE: &str = "docs/scenarios.md";

/// What the page says of a scenario that held.
const HOLDS: &str = "holds";
/// What it says of one without a result.
const NOT_RUN: &str = "not run";

/// The test that holds a program against the page. It is none of the scenarios: it is left out of the runs from which the
/// page is made.
pub const CHECK: &str = "the_page_of_scenarios_names_each_of_these";

impl Section {
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
    use crate::sections::HOSTS;

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
