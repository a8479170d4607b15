//! Conditions from findings: `Ready`, `Progressing`, `Degraded`, then the legacy state that Sedna's clients read.
//!
//! A time changes only with what it stamps, so that the same observation twice gives the same bytes.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use skerry_crds::conditions::{Condition, DEGRADED, FALSE, PROGRESSING, READY, TRUE, find};

use crate::{Applied, Finding, Impact, render::owner::Owner};

/// Reason and message of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// CamelCase word.
    pub(crate) reason: &'static str,
    /// One sentence.
    pub(crate) message: String,
}

impl Words {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// How a resource is doing, before it is put into conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// What keeps it from being as declared, of plan, objects and API server together.
    pub(crate) findings: Vec<Finding>,
    /// It does what it is for; the words say how, or why not where no finding does.
    pub(crate) available: Result<Words, Words>,
    /// Nothing is under way; the words say what is, where no finding does.
    pub(crate) settled: Result<Words, Words>,
}

impl Verdict {
    /// The words of all findings of at least this impact, the gravest first.
    pub(crate) fn worst(&self, least: Impact) -> Option<Words> {
        let mut found: Vec<_> = self.findings.iter().filter(|finding| finding.impact >= least).collect();
        found.sort_by_key(|finding| std::cmp::Reverse(finding.impact));
        told(&found)
    }

    fn waiting(&self) -> Option<Words> {
        told(
            &self
                .findings
                .iter()
                .filter(|finding| finding.impact == Impact::Waiting)
                .collect::<Vec<_>>(),
        )
    }
}

/// The first one's reason and the messages, each once.
fn told(findings: &[&Finding]) -> Option<Words> {
    const TOLD: usize = 5;
    let reason = findings.first()?.reason;
    let mut messages: Vec<&str> = Vec::new();
    for finding in findings {
        if !messages.contains(&finding.message.as_str()) {
            messages.push(&finding.message);
        }
    }
    let more = messages.len().saturating_sub(TOLD);
    messages.truncate(TOLD);
    let more = if more > 0 {
        format!("; and {more} more")
    } else {
        String::new()
    };
    let message = messages.join("; ") + &more;
    Some(Words { reason, message })
}

/// What the API server would not take.
pub(crate) fn failures(applied: &Applied) -> impl Iterator<Item = Finding> {
    applied.failures.iter().map(|failure| {
        let (impact, reason) = match failure.reason.as_str() {
            "AwaitingDeletion" => (Impact::Waiting, "AwaitingDeletion"),
            "NameTaken" => (Impact::Blocked, "NameTaken"),
            "Invalid" => (Impact::Blocked, "ChildInvalid"),
            "Forbidden" => (Impact::Blocked, "ChildForbidden"),
            _ => (Impact::Blocked, "ChildRefused"),
        };
        Finding {
            impact,
            reason,
            message: failure.message.clone(),
        }
    })
}

/// The resource is frozen by its user.
pub(crate) fn paused() -> Finding {
    Finding {
        impact: Impact::Waiting,
        reason: PAUSED,
        message: "the annotation skerry.io/paused is \"true\": children and nodes are left as they are".to_owned(),
    }
}

const PAUSED: &str = "Paused";

/// The standard conditions.
pub(crate) fn standard(owner: &Owner, previous: &[Condition], verdict: &Verdict, now: Timestamp) -> Vec<Condition> {
    let blocked = verdict.worst(Impact::Blocked);
    let paused = verdict.findings.iter().find(|finding| finding.reason == PAUSED);
    let ready = match (&verdict.available, &blocked) {
        (Ok(words), None) => (true, words.clone()),
        (_, Some(words)) => (false, words.clone()),
        (Err(words), None) => (false, verdict.waiting().unwrap_or_else(|| words.clone())),
    };
    let progressing = if let Some(Finding { reason, message, .. }) = paused {
        (false, Words::new(reason, message))
    } else if let Some(words) = verdict.waiting() {
        (true, words)
    } else {
        match (&verdict.settled, blocked) {
            (Ok(words), None) => (false, words.clone()),
            (_, Some(words)) => (false, words),
            (Err(words), None) => (true, words.clone()),
        }
    };
    let degraded = match verdict.worst(Impact::Degraded) {
        Some(words) => (true, words),
        None => (
            false,
            Words::new("AsDeclared", "nothing keeps it from being as declared"),
        ),
    };
    [(READY, ready), (PROGRESSING, progressing), (DEGRADED, degraded)]
        .into_iter()
        .map(|(type_, (holds, words))| {
            let mut condition = condition(type_, holds, words);
            condition.observed_generation = Some(owner.generation);
            stamp(condition, previous, now)
        })
        .collect()
}

/// A condition without times.
pub(crate) fn condition(type_: &str, holds: bool, words: Words) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: if holds { TRUE } else { FALSE }.to_owned(),
        reason: Some(words.reason.to_owned()),
        message: Some(words.message).filter(|message| !message.is_empty()),
        ..Condition::default()
    }
}

/// Since when the condition's status is what it is: as before, where it was the same.
pub(crate) fn stamp(mut condition: Condition, previous: &[Condition], now: Timestamp) -> Condition {
    let before = find(previous, &condition.type_).filter(|before| before.status == condition.status);
    condition.last_transition_time = before
        .and_then(|before| before.last_transition_time.clone())
        .or(Some(Time(now)));
    condition
}

/// When the condition was last news: as before, where it says the same.
pub(crate) fn said_at(
    condition: &Condition,
    previous: &[Condition],
    time: fn(&Condition) -> Option<&Time>,
    now: Timestamp,
) -> Time {
    let same = |before: &&Condition| {
        (&before.status, &before.reason, &before.message) == (&condition.status, &condition.reason, &condition.message)
    };
    let before = find(previous, &condition.type_).filter(same);
    before.and_then(time).cloned().unwrap_or(Time(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Failure, ObjectKind};
    use proptest::prelude::*;
    use rstest::rstest;

    fn owner() -> Owner {
        Owner {
            kind: ObjectKind::MODEL,
            namespace: "ns".to_owned(),
            name: "m".to_owned(),
            uid: "u".to_owned(),
            generation: 3,
        }
    }

    fn finding(impact: Impact, reason: &'static str) -> Finding {
        Finding {
            impact,
            reason,
            message: format!("because of {reason}"),
        }
    }

    fn verdict(findings: Vec<Finding>, available: bool, settled: bool) -> Verdict {
        let words = |good: bool, yes, no| {
            if good {
                Ok(Words::new(yes, ""))
            } else {
                Err(Words::new(no, ""))
            }
        };
        Verdict {
            findings,
            available: words(available, "Up", "Down"),
            settled: words(settled, "Settled", "Rolling"),
        }
    }

    fn told(verdict: &Verdict) -> [String; 3] {
        let conditions = standard(&owner(), &[], verdict, Timestamp::UNIX_EPOCH);
        let told: Vec<_> = conditions
            .iter()
            .map(|condition| {
                format!(
                    "{}={} {}",
                    condition.type_,
                    condition.status,
                    condition.reason.as_ref().unwrap()
                )
            })
            .collect();
        told.try_into().unwrap()
    }

    #[rstest]
    #[case(verdict(vec![], true, true), ["Ready=True Up", "Progressing=False Settled", "Degraded=False AsDeclared"])]
    #[case(verdict(vec![], true, false), ["Ready=True Up", "Progressing=True Rolling", "Degraded=False AsDeclared"])]
    #[case(verdict(vec![], false, false), ["Ready=False Down", "Progressing=True Rolling", "Degraded=False AsDeclared"])]
    #[case(
        verdict(vec![finding(Impact::Waiting, "W")], false, false),
        ["Ready=False W", "Progressing=True W", "Degraded=False AsDeclared"]
    )]
    #[case(
        verdict(vec![finding(Impact::Degraded, "D")], true, true),
        ["Ready=True Up", "Progressing=False Settled", "Degraded=True D"]
    )]
    #[case(
        verdict(vec![finding(Impact::Degraded, "D"), finding(Impact::Blocked, "B")], true, false),
        ["Ready=False B", "Progressing=False B", "Degraded=True B"]
    )]
    #[case(
        verdict(vec![finding(Impact::Blocked, "B"), finding(Impact::Waiting, "W")], false, false),
        ["Ready=False B", "Progressing=True W", "Degraded=True B"]
    )]
    #[case(verdict(vec![paused()], true, false), ["Ready=True Up", "Progressing=False Paused", "Degraded=False AsDeclared"])]
    fn findings_become_conditions(#[case] verdict: Verdict, #[case] expected: [&str; 3]) {
        assert_eq!(told(&verdict), expected);
    }

    #[test]
    fn the_gravest_comes_first_each_message_once_and_not_too_many() {
        let mut findings: Vec<_> = (0..7)
            .map(|n| Finding {
                message: format!("m{n}"),
                ..finding(Impact::Degraded, "D")
            })
            .collect();
        findings.extend([finding(Impact::Blocked, "B"), finding(Impact::Blocked, "B")]);
        let words = verdict(findings, true, true).worst(Impact::Degraded).unwrap();
        assert_eq!(
            (words.reason, words.message.as_str()),
            ("B", "because of B; m0; m1; m2; m3; and 3 more")
        );
    }

    #[rstest]
    #[case("NameTaken", Impact::Blocked, "NameTaken")]
    #[case("Forbidden", Impact::Blocked, "ChildForbidden")]
    #[case("AwaitingDeletion", Impact::Waiting, "AwaitingDeletion")]
    #[case("Teapot", Impact::Blocked, "ChildRefused")]
    fn what_the_api_server_would_not_take_is_a_finding(
        #[case] reason: &str,
        #[case] impact: Impact,
        #[case] told: &str,
    ) {
        let failure = Failure {
            kind: ObjectKind::POD,
            name: "p".to_owned(),
            reason: reason.to_owned(),
            message: "the message".to_owned(),
        };
        let applied = Applied {
            failures: vec![failure],
            ..Applied::default()
        };
        let found = failures(&applied).next().unwrap();
        assert_eq!(
            (found.impact, found.reason, found.message.as_str()),
            (impact, told, "the message")
        );
    }

    proptest! {
        #[test]
        fn a_time_changes_with_what_it_stamps_and_only_then(states in prop::collection::vec((any::<bool>(), any::<bool>()), 1..20)) {
            let mut before: Vec<Condition> = vec![];
            for (second, (available, settled)) in states.into_iter().enumerate() {
                let now = Timestamp::from_second(i64::try_from(second).unwrap()).unwrap();
                let verdict = verdict(vec![], available, settled);
                let after = standard(&owner(), &before, &verdict, now);
                for condition in &after {
                    let earlier = find(&before, &condition.type_);
                    let same = earlier.is_some_and(|earlier| earlier.status == condition.status);
                    let time = condition.last_transition_time.clone();
                    prop_assert_eq!(time == Some(Time(now)), !same);
                }
                prop_assert_eq!(&standard(&owner(), &after, &verdict, Timestamp::MAX), &after, "twice is once");
                before = after;
            }
        }
    }
}
