//! Who owns an object's fields: what server-side apply leaves alone unless ownership is settled first.
//!
//! Changes `metadata.managedFields` and, where somebody's additions make an object invalid, takes these out. What is
//! applied afterwards is the caller's business.

use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Map, Value, json};
use skerry_crds::names;
use skerry_workloads::{Live, ObjectKind};

/// The field of a kind that is made by its resource alone, so that nothing in it may outlive what declared it.
fn exclusive(kind: ObjectKind) -> Option<&'static [&'static str]> {
    match kind {
        ObjectKind::DEPLOYMENT => Some(&["f:spec", "f:template"]),
        ObjectKind::AUTOSCALER => Some(&["f:spec"]),
        _ => None,
    }
}

/// Marks of ours that go when the field is taken over, whoever set them last.
const MARKS: [&str; 3] = ["f:metadata", "f:annotations", "f:skerry.io/adopted-inputs-hash"];

/// Whether `body` declares the field that belongs to the resource alone, while we own nothing of it yet: somebody else
/// made the object.
pub(crate) fn must_move(live: &Live, body: &Value) -> bool {
    let Some(field) = exclusive(live.kind) else {
        return false;
    };
    let declared = field
        .iter()
        .try_fold(body, |body, key| body.get(key.strip_prefix("f:")?));
    declared.is_some() && !live.owned_by(names::MANAGER, &format!("/{}", field.join("/")))
}

/// Makes us the owner of what others wrote there, by any means but server-side apply. What a later apply does not
/// declare is then removed; co-owned, it would stay for ever.
///
/// Nothing but owners changes, and the object must be as it was read: a write meanwhile is a conflict.
pub(crate) async fn move_to_us(api: &Api<DynamicObject>, kind: ObjectKind, name: &str) -> Result<(), kube::Error> {
    let Some(field) = exclusive(kind) else { return Ok(()) };
    let object = api.get(name).await?;
    let mut entries = owners(&object);
    if moved(&mut entries, &kind.api_version(), &[field, &MARKS]) {
        set_owners(api, name, &object, entries).await?;
    }
    Ok(())
}

/// Removes what somebody else added to the lists of an object and what makes it invalid together with our part (a second
/// port without a name, say). Server-side apply would keep it.
///
/// The fields must not stay owned by this request: what a later plan leaves out could then not be removed any more.
pub(crate) async fn overrule(api: &Api<DynamicObject>, name: &str, body: &Value) -> Result<(), kube::Error> {
    const MANAGER: &str = "skerry-overrule";
    let how = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let object = api.patch(name, &how, &Patch::Merge(body)).await?;
    let mut kept = owners(&object);
    kept.retain(|entry| entry.get("manager") != Some(&json!(MANAGER)));
    set_owners(api, name, &object, kept).await
}

fn owners(object: &DynamicObject) -> Vec<Value> {
    let entries = object.metadata.managed_fields.iter().flatten();
    entries.filter_map(|entry| serde_json::to_value(entry).ok()).collect()
}

async fn set_owners(
    api: &Api<DynamicObject>,
    name: &str,
    object: &DynamicObject,
    entries: Vec<Value>,
) -> Result<(), kube::Error> {
    let version = &object.metadata.resource_version;
    let metadata = json!({"metadata": {"managedFields": entries, "resourceVersion": version}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(metadata))
        .await
        .map(drop)
}

/// Moves the fields at these paths from everybody who did not apply them to us; says whether there were any.
fn moved(entries: &mut Vec<Value>, api_version: &str, paths: &[&[&str]]) -> bool {
    let mut ours = Map::new();
    for entry in entries.iter_mut().filter(|entry| is_plain_write(entry, api_version)) {
        let Some(fields) = entry.get_mut("fieldsV1").and_then(Value::as_object_mut) else {
            continue;
        };
        for path in paths {
            if let Some(taken) = take(fields, path) {
                merge(&mut ours, below(path, taken));
            }
        }
    }
    if ours.is_empty() {
        return false;
    }
    entries.retain(|entry| entry.get("fieldsV1") != Some(&json!({})));
    let applied = entries.iter_mut().find(|entry| {
        entry.get("manager") == Some(&json!(names::MANAGER)) && entry.get("operation") == Some(&json!("Apply"))
    });
    match applied
        .and_then(|entry| entry.get_mut("fieldsV1"))
        .and_then(Value::as_object_mut)
    {
        Some(fields) => merge(fields, ours),
        None => entries.push(
            json!({"manager": names::MANAGER, "operation": "Apply", "apiVersion": api_version,
            "fieldsType": "FieldsV1", "fieldsV1": ours}),
        ),
    }
    true
}

/// Creation, update or patch of the object itself, not of a subresource such as its scale.
fn is_plain_write(entry: &Value, api_version: &str) -> bool {
    let text = |key| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    text("operation") == "Update" && text("subresource").is_empty() && text("apiVersion") == api_version
}

/// Takes what is at `path` out of a set of fields. A parent that is left empty goes too: it would say that the parent
/// itself is owned.
fn take(fields: &mut Map<String, Value>, path: &[&str]) -> Option<Value> {
    let (first, rest) = path.split_first()?;
    if rest.is_empty() {
        return fields.shift_remove(*first);
    }
    let parent = fields.get_mut(*first)?.as_object_mut()?;
    let taken = take(parent, rest)?;
    if parent.is_empty() {
        fields.shift_remove(*first);
    }
    Some(taken)
}

/// The set of fields that is `fields` below `path`.
fn below(path: &[&str], fields: Value) -> Map<String, Value> {
    let wrap = |fields, key: &&str| Value::Object(Map::from_iter([((*key).to_owned(), fields)]));
    match path.iter().rev().fold(fields, wrap) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Adds the fields of `more` to `fields`. An empty set means the field itself, which is `"."` beside others.
fn merge(fields: &mut Map<String, Value>, more: Map<String, Value>) {
    for (key, more) in more {
        let Some(mine) = fields.get_mut(&key).and_then(Value::as_object_mut) else {
            fields.insert(key, more);
            continue;
        };
        let Value::Object(more) = more else { continue };
        if mine.is_empty() != more.is_empty() {
            mine.insert(".".to_owned(), json!({}));
        }
        merge(mine, more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, subresource: &str, fields: &Value) -> Value {
        let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields});
        if !subresource.is_empty() {
            entry["subresource"] = json!(subresource);
        }
        entry
    }

    const PATHS: [&[&str]; 2] = [&["f:spec", "f:template"], &MARKS];

    #[test]
    fn what_others_wrote_of_the_template_becomes_ours_and_nothing_else_does() {
        let key = r#"k:{"name":"SECRET_ACCESS_KEY"}"#;
        let mut entries = vec![
            entry(
                "skerry-globalmanager",
                "Apply",
                "",
                &json!({"f:metadata": {"f:annotations": {"f:a": {}}}}),
            ),
            entry(
                "sedna-gm",
                "Update",
                "",
                &json!({"f:spec": {"f:replicas": {}, "f:template": {"f:env": {key: {".": {}, "f:value": {}}}}}}),
            ),
            entry(
                "kubectl-set",
                "Update",
                "",
                &json!({"f:spec": {"f:template": {"f:env": {key: {}}}}}),
            ),
            entry(
                "kube-controller-manager",
                "Update",
                "status",
                &json!({"f:status": {"f:replicas": {}}}),
            ),
            entry(
                "kube-controller-manager",
                "Update",
                "scale",
                &json!({"f:spec": {"f:replicas": {}}}),
            ),
            entry(
                "another",
                "Apply",
                "",
                &json!({"f:spec": {"f:template": {"f:theirs": {}}}}),
            ),
        ];
        let before = entries.clone();
        assert!(moved(&mut entries, "apps/v1", &PATHS));
        assert_eq!(
            entries[0]["fieldsV1"],
            json!({"f:metadata": {"f:annotations": {"f:a": {}}},
                "f:spec": {"f:template": {"f:env": {key: {".": {}, "f:value": {}}}}}})
        );
        assert_eq!(entries[1]["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
        assert_eq!(entries[2..], before[3..], "kubectl's entry is empty and gone");
        assert!(
            !moved(&mut entries.clone(), "apps/v1", &PATHS),
            "a second time, there is nothing"
        );
    }

    #[test]
    fn a_first_entry_of_ours_is_made_and_the_mark_comes_along() {
        let fields = json!({"f:metadata": {"f:annotations": {"f:skerry.io/adopted-inputs-hash": {}}},
            "f:spec": {"f:template": {}}});
        let mut entries = vec![entry("kubectl-annotate", "Update", "", &fields)];
        assert!(moved(&mut entries, "apps/v1", &PATHS));
        let ours = entry("skerry-globalmanager", "Apply", "", &fields);
        assert_eq!(entries, [ours]);
    }

    #[test]
    fn a_field_that_one_owns_itself_and_another_below_is_owned_both_ways() {
        let mut fields = Map::from_iter([("f:a".to_owned(), json!({}))]);
        merge(&mut fields, Map::from_iter([("f:a".to_owned(), json!({"f:b": {}}))]));
        assert_eq!(Value::Object(fields), json!({"f:a": {".": {}, "f:b": {}}}));
    }

    #[test]
    fn only_what_a_resource_alone_declares_is_moved_and_only_once() {
        let live = |owned: Value| Live {
            kind: ObjectKind::DEPLOYMENT,
            object: json!({"metadata": {"managedFields": [{"manager": names::MANAGER, "fieldsV1": owned}]}}),
        };
        let whole = json!({"spec": {"template": {"spec": {}}}});
        let others = json!({"f:spec": {"f:replicas": {}}});
        let template = json!({"f:spec": {"f:template": {}}});
        assert!(must_move(&live(others.clone()), &whole));
        assert!(!must_move(&live(template), &whole));
        assert!(!must_move(&live(others), &json!({"metadata": {}})), "marks alone");
        let service = Live {
            kind: ObjectKind::SERVICE,
            ..live(json!({}))
        };
        assert!(!must_move(&service, &json!({"spec": {"ports": []}})));
    }
}
