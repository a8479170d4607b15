//! What the objects show that run pods or steer how many there are, in the order of their columns.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    age::{duration, since},
    cells::{Cells, TEMPLATE, age, count, name},
    text::{NONE, at, containers, holds, labels, list, number, plain, selector, some_of, text, text_or},
};

pub(super) fn controller_revision(object: &Value, now: Timestamp) -> Cells {
    let owner = list(object, "metadata.ownerReferences")
        .iter()
        .find(|o| at(o, "controller") == Some(&true.into()));
    let owner = owner.map_or(NONE.to_owned(), |owner| {
        let (group, _) = crate::surface::split_api_version(text(owner, "apiVersion"));
        let kind = text(owner, "kind").to_lowercase();
        let kind = if group.is_empty() {
            kind
        } else {
            format!("{kind}.{group}")
        };
        format!("{kind}/{}", text(owner, "name"))
    });
    vec![
        name(object),
        owner.into(),
        number(object, "revision").into(),
        age(object, now),
    ]
}

pub(super) fn cron_job(object: &Value, now: Timestamp) -> Cells {
    let last = at(object, "status.lastScheduleTime").map_or(NONE.to_owned(), |time| since(Some(time), now));
    let suspend = at(object, "spec.suspend").map_or("<unset>".to_owned(), |s| {
        if s == &Value::Bool(true) {
            "True".into()
        } else {
            "False".into()
        }
    });
    let template = "spec.jobTemplate.spec.template.spec.containers";
    let [names, images] = containers(object, template);
    vec![
        name(object),
        text(object, "spec.schedule").into(),
        text_or(object, "spec.timeZone", NONE).into(),
        suspend.into(),
        count(object, "status.active").into(),
        last.into(),
        age(object, now),
        names,
        images,
        selector(object, "spec.jobTemplate.spec.selector").into(),
    ]
}

pub(super) fn daemon_set(object: &Value, now: Timestamp) -> Cells {
    let status = |field: &str| number(object, &format!("status.{field}")).into();
    let [names, images] = containers(object, TEMPLATE);
    vec![
        name(object),
        status("desiredNumberScheduled"),
        status("currentNumberScheduled"),
        status("numberReady"),
        status("updatedNumberScheduled"),
        status("numberAvailable"),
        labels(object, "spec.template.spec.nodeSelector").into(),
        age(object, now),
        names,
        images,
        selector(object, "spec.selector").into(),
    ]
}

pub(super) fn deployment(object: &Value, now: Timestamp) -> Cells {
    let ready = format!(
        "{}/{}",
        number(object, "status.readyReplicas"),
        number(object, "spec.replicas")
    );
    let [names, images] = containers(object, TEMPLATE);
    vec![
        name(object),
        ready.into(),
        number(object, "status.updatedReplicas").into(),
        number(object, "status.availableReplicas").into(),
        age(object, now),
        names,
        images,
        selector(object, "spec.selector").into(),
    ]
}

pub(super) fn job(object: &Value, now: Timestamp) -> Cells {
    let done = number(object, "status.succeeded");
    let completions = match (at(object, "spec.completions"), number(object, "spec.parallelism")) {
        (Some(wanted), _) => format!("{done}/{}", plain(wanted)),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        _ => format!("{done}/1"),
    };
    let time = |path: &str| text(object, path).parse::<Timestamp>().ok();
    let took = time("status.startTime").map(|start| duration(start, time("status.completionTime").unwrap_or(now)));
    let of = |kind: &str| holds(object, kind);
    let status = match () {
        () if of("Complete") => "Complete",
        () if of("Failed") => "Failed",
        () if at(object, "metadata.deletionTimestamp").is_some() => "Terminating",
        () if of("Suspended") => "Suspended",
        () if of("FailureTarget") => "FailureTarget",
        () if of("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    let [names, images] = containers(object, TEMPLATE);
    vec![
        name(object),
        status.into(),
        completions.into(),
        took.unwrap_or_default().into(),
        age(object, now),
        names,
        images,
        selector(object, "spec.selector").into(),
    ]
}

pub(super) fn replica_set(object: &Value, now: Timestamp) -> Cells {
    let [names, images] = containers(object, TEMPLATE);
    vec![
        name(object),
        number(object, "spec.replicas").into(),
        number(object, "status.replicas").into(),
        number(object, "status.readyReplicas").into(),
        age(object, now),
        names,
        images,
        selector(object, "spec.selector").into(),
    ]
}

/// The selector of a `ReplicationController` is a plain set of labels.
pub(super) fn replication_controller(object: &Value, now: Timestamp) -> Cells {
    let mut cells = replica_set(object, now);
    cells.pop();
    cells.push(labels(object, "spec.selector").into());
    cells
}

pub(super) fn stateful_set(object: &Value, now: Timestamp) -> Cells {
    let ready = format!(
        "{}/{}",
        number(object, "status.readyReplicas"),
        number(object, "spec.replicas")
    );
    let [names, images] = containers(object, TEMPLATE);
    vec![name(object), ready.into(), age(object, now), names, images]
}

pub(super) fn autoscaler(object: &Value, now: Timestamp) -> Cells {
    let reference = at(object, "spec.scaleTargetRef").unwrap_or(&Value::Null);
    let current = list(object, "status.currentMetrics");
    let metric = |(index, spec): (usize, &Value)| metric(spec, current.get(index).unwrap_or(&Value::Null));
    let metrics: Vec<_> = list(object, "spec.metrics").iter().enumerate().map(metric).collect();
    vec![
        name(object),
        format!("{}/{}", text(reference, "kind"), text(reference, "name")).into(),
        some_of(&metrics, 2, ", ").into(),
        at(object, "spec.minReplicas")
            .map_or("<unset>".to_owned(), plain)
            .into(),
        number(object, "spec.maxReplicas").into(),
        number(object, "status.currentReplicas").into(),
        age(object, now),
    ]
}

fn metric(spec: &Value, current: &Value) -> String {
    let (field, named) = match text(spec, "type") {
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        _ => return "<unknown type>".into(),
    };
    let (spec, current) = (
        at(spec, field).unwrap_or(&Value::Null),
        at(current, field).unwrap_or(&Value::Null),
    );
    let now = |value: &str| at(current, &format!("current.{value}")).map(plain);
    let unknown = || "<unknown>".to_owned();
    let percent = |n: String| format!("{n}%");
    let shown = match (
        at(spec, "target.averageValue").map(plain),
        at(spec, "target.value").map(plain),
    ) {
        (Some(wanted), _) if named || field == "pods" => {
            format!("{}/{wanted}", now("averageValue").unwrap_or_else(unknown))
        }
        (Some(wanted), _) => format!("{}/{wanted} (avg)", now("averageValue").unwrap_or_else(unknown)),
        (None, Some(wanted)) if !named => format!("{}/{wanted}", now("value").unwrap_or_else(unknown)),
        _ => {
            let wanted = at(spec, "target.averageUtilization").map_or("<auto>".into(), |n| percent(plain(n)));
            format!("{}/{wanted}", now("averageUtilization").map_or_else(unknown, percent))
        }
    };
    if named {
        format!("{}: {shown}", text(spec, "name"))
    } else {
        shown
    }
}

pub(super) fn disruption_budget(object: &Value, now: Timestamp) -> Cells {
    let of = |field: &str| at(object, field).map_or("N/A".to_owned(), plain).into();
    vec![
        name(object),
        of("spec.minAvailable"),
        of("spec.maxUnavailable"),
        number(object, "status.disruptionsAllowed").into(),
        age(object, now),
    ]
}
