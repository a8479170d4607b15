//! How many pods a Deployment may have too many or too few during a rollout.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// What Kubernetes takes for `maxSurge` and `maxUnavailable` where the spec names none.
const DEFAULT: &str = "25%";

pub(crate) fn rolling(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("Recreate")
}

pub(crate) fn replicas(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// How many pods may exist beyond `replicas`.
pub(crate) fn max_surge(deployment: &Deployment) -> i32 {
    if rolling(deployment) {
        fenceposts(deployment).0
    } else {
        0
    }
}

/// How many of `replicas` may be unavailable.
pub(crate) fn max_unavailable(deployment: &Deployment) -> i32 {
    let replicas = replicas(deployment);
    if !rolling(deployment) || replicas == 0 {
        return 0;
    }
    fenceposts(deployment).1.min(replicas)
}

/// Surge is rounded up, unavailability down; where both come out as zero, one pod may be unavailable, or nothing could
/// ever move.
fn fenceposts(deployment: &Deployment) -> (i32, i32) {
    let rolling = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.strategy.as_ref()?.rolling_update.as_ref());
    let replicas = replicas(deployment);
    let surge = scaled(rolling.and_then(|rolling| rolling.max_surge.as_ref()), replicas, true);
    let unavailable = scaled(
        rolling.and_then(|rolling| rolling.max_unavailable.as_ref()),
        replicas,
        false,
    );
    if surge == 0 && unavailable == 0 {
        (0, 1)
    } else {
        (surge, unavailable)
    }
}

fn scaled(value: Option<&IntOrString>, of: i32, up: bool) -> i32 {
    let percent = match value {
        Some(IntOrString::Int(value)) => return *value,
        Some(IntOrString::String(percent)) => percent.as_str(),
        None => DEFAULT,
    };
    // The API server lets only whole percentages through.
    let percent: i64 = percent.trim_end_matches('%').parse().unwrap_or_default();
    let hundredths = percent * i64::from(of);
    let whole = if up { (hundredths + 99) / 100 } else { hundredths / 100 };
    i32::try_from(whole).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn deployment(replicas: i32, surge: &Value, unavailable: &Value) -> Deployment {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        serde_json::from_value(
            json!({"spec": {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "selector": {}, "template": {}}}),
        )
        .unwrap()
    }

    #[test]
    fn surge_is_rounded_up_and_unavailability_down() {
        for (replicas, surge, unavailable, expected) in [
            (10, json!("25%"), json!("25%"), (3, 2)),
            (1, json!("25%"), json!("25%"), (1, 0)),
            (4, json!(0), json!("10%"), (0, 1)),
            (3, json!(2), json!(1), (2, 1)),
            (2, json!(0), json!(5), (0, 2)),
            (0, json!("50%"), json!(1), (0, 0)),
            (10, Value::Null, Value::Null, (3, 2)),
        ] {
            let deployment = deployment(replicas, &surge, &unavailable);
            assert_eq!(
                (max_surge(&deployment), max_unavailable(&deployment)),
                expected,
                "{replicas} {surge} {unavailable}"
            );
        }
    }
}
