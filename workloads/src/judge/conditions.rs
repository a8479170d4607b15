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
