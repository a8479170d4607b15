//! Ownership of replicas, carried between an object and its Scale.
//!
//! A Scale has owners of its own kind: those of the object's replicas. What becomes of them through a write to the Scale
//! is carried back, without the times.

use serde_json::Value;

use super::{
    managers::{Managers, Owned},
    path::Step,
    set::FieldSet,
};
use crate::api::object::{meta_value, set_meta};

/// What a Scale is owned as.
const SCALE: &str = "autoscaling/v1";

fn replicas() -> FieldSet {
    FieldSet::of(&[&["spec", "replicas"]])
}

fn field(path: &str) -> FieldSet {
    let steps: Vec<Step> = path
        .split('.')
        .filter(|step| !step.is_empty())
        .map(Step::field)
        .collect();
    let mut set = FieldSet::default();
    set.insert(&steps);
    set
}

fn owners(object: &Value) -> Managers {
    Managers::decode(meta_value(object, "managedFields")).unwrap_or_default()
}

/// Gives a Scale the owners of its object's replicas, which are at `path`.
pub(in crate::api) fn to_scale(object: &Value, path: &str, scale: &mut Value) {
    let path = field(path);
    let mut managers = owners(object);
    managers
        .0
        .retain(|_, owned| !owned.fields.intersection(&path).is_empty());
    for owned in managers.0.values_mut() {
        owned.fields = replicas();
        SCALE.clone_into(&mut owned.version);
    }
    set_meta(scale, "managedFields", managers.encode());
}

/// Gives an object the owners of its replicas that its Scale has come to have.
pub(in crate::api) fn to_object(scale: &Value, path: &str, version: &str, object: &mut Value) {
    let path = field(path);
    let before = owners(object);
    let mut of_scale = owners(scale);
    let mut managers = Managers::default();
    for (owner, owned) in &before.0 {
        let mut owned = owned.clone();
        if !owned.fields.intersection(&path).is_empty() && of_scale.0.remove(owner).is_none() {
            owned.fields = owned.fields.difference(&path);
        }
        managers.0.insert(owner.clone(), owned);
    }
    for (owner, owned) in of_scale.0 {
        if !owned.fields.intersection(&replicas()).is_empty() {
            let time = before.0.get(&owner).and_then(|owned| owned.time);
            managers.0.insert(
                owner,
                Owned {
                    fields: path.clone(),
                    version: version.to_owned(),
                    time,
                },
            );
        }
    }
    managers.tidy();
    set_meta(object, "managedFields", managers.encode());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(manager: &str, operation: &str, version: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": version, "fieldsType": "FieldsV1",
            "fieldsV1": fields, "time": "2025-01-01T00:00:00Z"})
    }

    #[test]
    fn who_takes_replicas_through_the_scale_takes_them_from_the_object() {
        let both = json!({"f:spec": {"f:paused": {}, "f:replicas": {}}});
        let mut object = json!({"metadata": {"managedFields": [entry("a", "Apply", "apps/v1", &both)]}});
        let mut scale = json!({"metadata": {}});
        to_scale(&object, ".spec.replicas", &mut scale);
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        assert_eq!(
            scale["metadata"]["managedFields"],
            json!([entry("a", "Apply", "autoscaling/v1", &replicas)])
        );

        let taken = entry("b", "Update", "autoscaling/v1", &replicas);
        scale["metadata"]["managedFields"] = json!([taken]);
        to_object(&scale, ".spec.replicas", "apps/v1", &mut object);
        let fields = &object["metadata"]["managedFields"];
        assert_eq!(fields[0]["fieldsV1"], json!({"f:spec": {"f:paused": {}}}));
        assert_eq!(
            (&fields[1]["manager"], &fields[1]["apiVersion"]),
            (&json!("b"), &json!("apps/v1"))
        );
        assert_eq!(fields[1].get("time"), None);
    }
}
