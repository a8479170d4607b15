//! What several reports on one resource come to, as the least number of writes.
//!
//! Decides that each report is computed from the state that the ones before it leave, whether they were written or not; of
//! two changes of one status the later one counts, since each names the reported fields whole. A Model's status goes
//! before the resource's own: only what the resource says shows that a report was written before, and such a one is
//! accepted without another look. That a report was heard is written also where it changes nothing else: what stands there
//! may be another's by the time that it comes again out of an old store.

use jiff::Timestamp;
use serde_json::{Map, Value};
use skerry_workloads::{REPORTED_UP_TO, StatusChange};

use super::{NodeReport, ResourceKey, Taken, driver::Driver, heard::Heard};

/// What the reports come to.
#[derive(Debug, PartialEq)]
pub(super) struct Folded {
    /// Of each report, why it is not part of it.
    pub(super) without: Vec<Option<Taken>>,
    /// At most one change of each status, in the order in which they are to be written.
    pub(super) changes: Vec<StatusChange>,
}

/// Folds the reports into the resource as it is.
pub(super) fn fold(
    driver: &dyn Driver,
    key: &ResourceKey,
    resource: Value,
    reports: &[NodeReport],
    now: Timestamp,
) -> Folded {
    let before = Heard::of(&resource);
    let (mut heard, mut own) = (before.clone(), Own::of(&resource, driver.reported()));
    // It may be mended, so its reports are kept.
    let unparsable = |error: serde_json::Error| Taken::Later(format!("the resource does not parse: {error}"));
    let mut resource = driver.open(resource).map_err(unparsable);
    let mut without = Vec::with_capacity(reports.len());
    let mut others: Vec<StatusChange> = Vec::new();
    for said in reports {
        let NodeReport { id, report, .. } = said;
        if heard.has(said) {
            // One that is there twice is written when the first of them is.
            without.push(before.has(said).then_some(Taken::Accepted));
            continue;
        }
        let told = match &resource {
            Ok(resource) => resource
                .report(report, now)
                .map_err(|refusal| Taken::Refused(refusal.to_string())),
            Err(later) => Err(later.clone()),
        };
        let changes = match told {
            Ok(changes) => changes,
            Err(taken) => {
                without.push(Some(taken));
                continue;
            }
        };
        without.push(None);
        for change in changes {
            if change.kind == key.kind && change.name == key.name {
                resource = resource.and_then(|mut resource| {
                    resource.put(&change.status).map_err(unparsable)?;
                    Ok(resource)
                });
                own.put(change.status);
            } else {
                others.retain(|other| (other.kind, &other.name) != (change.kind, &change.name));
                others.push(change);
            }
        }
        if let Some(id) = id {
            heard.add(&report.node, id);
            own.changed = true;
        }
    }
    others.extend(own.change(key, &heard));
    Folded {
        without,
        changes: others,
    }
}

/// What is reported of the resource itself, but for who was heard.
struct Own {
    status: Map<String, Value>,
    /// Whether it is other than it was, at any time.
    changed: bool,
}

impl Own {
    fn of(resource: &Value, reported: &[&str]) -> Self {
        let status = resource.get("status").and_then(Value::as_object);
        let reported = status
            .into_iter()
            .flatten()
            .filter(|(field, _)| *field != REPORTED_UP_TO && reported.contains(&field.as_str()));
        Self {
            status: reported.map(|(field, value)| (field.clone(), value.clone())).collect(),
            changed: false,
        }
    }

    /// This is reported in the place of what was.
    fn put(&mut self, status: Map<String, Value>) {
        self.changed |= self.status != status;
        self.status = status;
    }

    /// The change that it comes to.
    fn change(self, key: &ResourceKey, heard: &Heard) -> Option<StatusChange> {
        let Self { mut status, changed } = self;
        heard.tell(&mut status);
        changed.then(|| StatusChange {
            kind: key.kind,
            name: key.name.clone(),
            status,
        })
    }
}

#[cfg(test)]
mod tests;
