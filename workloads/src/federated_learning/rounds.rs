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
/// A trainer that began anew takes back what it reported of this round and later ones; a round that nobody reported any
/// more goes. Then the oldest go, down to [`KEPT`].
pub(crate) fn merge(rounds: &[Round], number: i64, worker: &RoundWorker, now: Timestamp) -> Vec<Round> {
    let mut merged: BTreeMap<i64, Round> = rounds.iter().map(|round| (round.round, round.clone())).collect();
    for round in merged.range_mut(number..).map(|(_, round)| round) {
        round
            .workers
            .retain(|known| known.name != worker.name || known.start_time == worker.start_time);
    }
    merged.retain(|_, round| !round.workers.is_empty());
    let round = merged.entry(number).or_insert_with(|| Round {
        round: number,
        ..Round::default()
    });
    round.workers.retain(|known| known.name != worker.name);
    round.workers.push(worker.clone());
    round.workers.sort_by(|a, b| a.name.cmp(&b.name));
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
    let samples: Option<i64> = round
        .workers
        .iter()
        .filter_map(|worker| worker.samples)
        .reduce(i64::saturating_add);
    Round {
        samples,
        metrics: joint(&round.workers),
        ..round
    }
}

/// The joint model's figures: what all trainers agree on as it is, numbers that differ as their mean, weighted by the
/// samples behind them; of anything else the first one counts.
fn joint(workers: &[RoundWorker]) -> Vec<Metric> {
    let mut by_key: BTreeMap<&str, Vec<(&str, Option<i64>)>> = BTreeMap::new();
    for worker in workers {
        for metric in &worker.metrics {
            by_key
                .entry(&metric.key)
                .or_default()
                .push((&metric.value, worker.samples));
        }
    }
    let figure = |(key, values): (&str, Vec<(&str, Option<i64>)>)| {
        let (first, _) = values.first()?;
        let agree = values.iter().all(|(value, _)| value == first);
        let value = if agree { None } else { mean(&values) };
        Some(Metric {
            key: key.to_owned(),
            value: value.unwrap_or_else(|| (*first).to_owned()),
        })
    };
    by_key.into_iter().filter_map(figure).collect()
}

/// To six decimals, where all values are numbers.
#[expect(clippy::cast_precision_loss, reason = "sample counts are far below 2^52")]
fn mean(values: &[(&str, Option<i64>)]) -> Option<String> {
    let weighted = values
        .iter()
        .all(|(_, samples)| samples.is_some_and(|samples| samples > 0));
    let mut sum = 0.0;
    let mut weights = 0.0;
    for (value, samples) in values {
        let weight = samples.filter(|_| weighted).map_or(1.0, |samples| samples as f64);
        sum += value.parse::<f64>().ok().filter(|value| value.is_finite())? * weight;
        weights += weight;
    }
    Some(((sum / weights * 1e6).round() / 1e6).to_string())
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
