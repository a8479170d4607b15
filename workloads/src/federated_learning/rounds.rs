//! The rounds that trainers report: one entry a round, whatever the order and number in which reports come.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use skerry_crds::{
    conditions::{Condition, TRAINING},
    sedna::v1alpha1::{Metric, Round, RoundWorker},
};

use crate::judge::conditions::{Words, condition as without_times};

/// How many rounds are kept.
pub(crate) const KEPT: usize = 100;
/// How many of them are told as conditions.
pub(crate) const TOLD: usize = 20;

/// `rounds` with what one trainer reported of round `number`.
///
/// A trainer that was made anew counts from 1 again: what it reported of later rounds before it began this one is of
/// another run, and goes. A round that nobody reported any more goes too, and the oldest, down to [`KEPT`].
pub(crate) fn merge(rounds: &[Round], number: i64, worker: &RoundWorker, now: Timestamp) -> Vec<Round> {
    let began_before = |known: &RoundWorker| match (&known.start_time, &worker.start_time) {
        (Some(known), Some(new)) => known < new,
        _ => false,
    };
    let mut merged: BTreeMap<i64, Round> = rounds.iter().map(|round| (round.round, round.clone())).collect();
    for (later, round) in merged.range_mut(number..) {
        let replaced = |known: &RoundWorker| *later == number || began_before(known);
        round
            .workers
            .retain(|known| known.name != worker.name || !replaced(known));
    }
    let round = merged.entry(number).or_insert_with(|| Round {
        round: number,
        ..Round::default()
    });
    round.workers.push(worker.clone());
    round.workers.sort_by(|a, b| a.name.cmp(&b.name));
    merged.retain(|_, round| !round.workers.is_empty());
    let mut merged: Vec<_> = merged.into_values().map(summed_up).collect();
    merged.drain(..merged.len().saturating_sub(KEPT));
    for round in &mut merged {
        let before = rounds.iter().find(|before| before.round == round.round);
        let same = before.filter(|before| before.workers == round.workers);
        round.update_time = match same {
            Some(before) => before.update_time.clone(),
            None => Some(Time(now)),
        };
    }
    merged
}

/// The round with what follows from its trainers' reports.
fn summed_up(round: Round) -> Round {
    Round {
        // Each trainer reports the samples of all.
        samples: round.workers.iter().filter_map(|worker| worker.samples).max(),
        metrics: joint(&round.workers),
        ..round
    }
}

/// The joint model's figures: what all trainers agree on as it is, numbers that differ as their mean; of anything else
/// the first one counts.
fn joint(workers: &[RoundWorker]) -> Vec<Metric> {
    let mut by_key: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for metric in workers.iter().flat_map(|worker| &worker.metrics) {
        by_key.entry(&metric.key).or_default().push(&metric.value);
    }
    let figure = |(key, values): (&str, Vec<&str>)| {
        let first = *values.first()?;
        let agree = values.iter().all(|value| *value == first);
        let value = if agree { None } else { mean(&values) };
        Some(Metric {
            key: key.to_owned(),
            value: value.unwrap_or_else(|| first.to_owned()),
        })
    };
    by_key.into_iter().filter_map(figure).collect()
}

/// To six decimals, where all values are numbers.
fn mean(values: &[&str]) -> Option<String> {
    let numbers: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok()).collect();
    let numbers = numbers.filter(|numbers| numbers.iter().all(|number| number.is_finite()))?;
    let count = f64::from(u32::try_from(numbers.len()).ok()?);
    let mean = numbers.iter().sum::<f64>() / count;
    Some(((mean * 1e6).round() / 1e6).to_string())
}

/// The round as Sedna tells it.
pub(crate) fn condition(round: &Round) -> Condition {
    let at = round
        .update_time
        .as_ref()
        .map(|time| time.0.to_string())
        .unwrap_or_default();
    let words = Words::new("DoTraining", format!("Round {} reaches at {at}", round.round));
    Condition {
        last_probe_time: round.update_time.clone(),
        last_heartbeat_time: round.update_time.clone(),
        ..without_times(TRAINING, true, words)
    }
}
