//! What users have declared, to be found again as it was.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde_json::{Map, Value, json};

use super::{Tour, kubernetes::text};

/// Our kinds, and those of Sedna's that nobody looks after yet.
const KINDS: &str = "datasets,models,jointinferenceservices,federatedlearningjobs,incrementallearningjobs,\
                     lifelonglearningjobs,featureextractionservices,objectsearchservices,objecttrackingservices,reidjobs,\
                     videoanalyticsjobs,edgenodes";

/// The latter: nobody tells how such an object is, so what somebody told stays.
const LEFT_ALONE: [&str; 7] = [
    "IncrementalLearningJob",
    "LifelongLearningJob",
    "FeatureExtractionService",
    "ObjectSearchService",
    "ObjectTrackingService",
    "ReidJob",
    "VideoAnalyticsJob",
];

/// Every object by kind, namespace and name: its uid, generation and spec; its status, too, if the job has ended or is left
/// alone.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Declared(BTreeMap<String, Map<String, Value>>);

impl Declared {
    pub(super) fn of(objects: &[Value]) -> Self {
        let kept = |object: &Value| {
            let mut kept = Map::new();
            for (field, at) in [
                ("uid", "/metadata/uid"),
                ("generation", "/metadata/generation"),
                ("spec", "/spec"),
            ] {
                kept.insert(field.to_owned(), object.pointer(at).cloned().unwrap_or_default());
            }
            let [kind, namespace, name] = ["/kind", "/metadata/namespace", "/metadata/name"].map(|at| text(object, at));
            if LEFT_ALONE.contains(&kind) || ["Succeeded", "Failed"].contains(&text(object, "/status/phase")) {
                kept.insert("status".to_owned(), object["status"].clone());
            }
            (format!("{kind} {namespace}/{name}"), kept)
        };
        Self(objects.iter().map(kept).collect())
    }

    /// How many objects there are.
    pub(super) fn number(&self) -> usize {
        self.0.len()
    }

    /// Whoever edits an object so often, and then back to what it was, leaves nothing but this.
    pub fn edited(&mut self, object: &str, times: u64) {
        if let Some(generation) = self.0.get_mut(object).and_then(|kept| kept.get_mut("generation")) {
            *generation = json!(generation.as_u64().unwrap_or_default() + times);
        }
    }

    /// What is gone or another now.
    fn lost(&self, now: &Self) -> Vec<String> {
        let lost = self.0.iter().filter(|(object, kept)| now.0.get(*object) != Some(*kept));
        lost.map(|(object, kept)| match now.0.get(object) {
            None => format!("{object} is gone"),
            Some(now) => format!("{object} was {} and is {}", json!(kept), json!(now)),
        })
        .collect()
    }
}

impl Tour<'_> {
    /// All that is declared.
    pub(super) fn look_at_declared(&self) -> anyhow::Result<Declared> {
        Ok(Declared::of(&self.list(&[KINDS, "--all-namespaces"])?))
    }

    /// Fails if something of what was declared is gone, or is another.
    pub(super) fn nothing_is_lost(&self) -> anyhow::Result<()> {
        let lost = self.declared.lost(&self.look_at_declared()?);
        ensure!(lost.is_empty(), "{}", lost.join("\n"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{
        super::{definitions, kubernetes::array, migration, pages::MIGRATING},
        *,
    };

    /// What the manager does look after.
    const LOOKED_AFTER: [&str; 4] = ["Dataset", "Model", "JointInferenceService", "FederatedLearningJob"];

    fn job(name: &str, generation: u64, phase: &str, round: u64) -> Value {
        json!({
            "kind": "FederatedLearningJob",
            "metadata": {"name": name, "namespace": "default", "uid": "u", "generation": generation, "resourceVersion": "7"},
            "spec": {"a": 1},
            "status": {"phase": phase, "rounds": [round]},
        })
    }

    #[test]
    fn what_is_gone_or_another_is_lost() {
        let before = [job("done", 1, "Succeeded", 3), job("at-work", 2, "Running", 3)];
        let before = Declared::of(&before);
        let lost = |now: &[Value]| before.lost(&Declared::of(now)).len();
        let at_work = job("at-work", 2, "Running", 4);
        let another = job("another", 1, "Running", 1);
        assert_eq!(lost(&[job("done", 1, "Succeeded", 3), at_work.clone(), another]), 0);
        assert_eq!(lost(std::slice::from_ref(&at_work)), 1, "it is gone");
        assert_eq!(
            lost(&[job("done", 1, "Succeeded", 4), at_work.clone()]),
            1,
            "what it came to is another"
        );
        assert_eq!(lost(&[job("done", 2, "Succeeded", 3), at_work]), 1, "it was written");
    }

    #[test]
    fn what_nobody_looks_after_keeps_what_was_told_of_it() {
        let job = |active: u64| json!({"kind": "LifelongLearningJob", "metadata": {"name": "a"}, "status": {"active": active}});
        let before = Declared::of(&[job(1)]);
        assert!(before.lost(&Declared::of(&[job(1)])).is_empty());
        assert_eq!(before.lost(&Declared::of(&[job(2)])).len(), 1);
    }

    #[test]
    fn an_edit_that_was_taken_back_is_expected() {
        let mut before = Declared::of(&[job("a", 1, "Running", 1)]);
        let now = Declared::of(&[job("a", 3, "Running", 1)]);
        assert_eq!(before.lost(&now).len(), 1);
        before.edited("FederatedLearningJob default/a", 2);
        assert!(before.lost(&now).is_empty());
    }

    /// By what names `kubectl` knows a kind.
    fn names(definition: &Value) -> Vec<&str> {
        let short = array(definition, "/spec/names/shortNames").iter();
        let plural = text(definition, "/spec/names/plural");
        short.filter_map(Value::as_str).chain([plural]).collect()
    }

    #[test]
    fn each_kind_of_sedna_is_declared_kept_by_the_page_and_found_again() {
        let root = skerry_dist::root();
        let page = fs::read_to_string(root.join(MIGRATING)).unwrap();
        let command = page.lines().find(|line| line.contains("> sedna-objects.yaml")).unwrap();
        let kept: Vec<_> = command.split_whitespace().nth(3).unwrap().split(',').collect();
        let mut declared: Vec<Value> = serde_saphyr::from_multiple(migration::OBJECTS).unwrap();
        declared.retain(|object| text(object, "/apiVersion") == "sedna.io/v1alpha1");
        assert_eq!(declared.len(), migration::DECLARED);
        for sednas in definitions::in_short().unwrap() {
            let [kind, plural] = ["/kind", "/plural"].map(|name| text(&sednas, &format!("/spec/names{name}")));
            let ours = root.join(format!("charts/skerry/files/crds/sedna.io_{plural}.yaml"));
            let ours: Value = serde_saphyr::from_str(&fs::read_to_string(ours).unwrap()).unwrap();
            // Whoever follows the page has only the former, whoever looks afterwards only the latter.
            for known in [&sednas, &ours].map(names) {
                let found = kept.iter().filter(|name| known.contains(name));
                assert_eq!(found.count(), 1, "{kind} in {command}");
            }
            assert!(KINDS.split(',').any(|known| known == plural), "{plural}");
            assert!(declared.iter().any(|object| text(object, "/kind") == kind), "{kind}");
            assert!(LOOKED_AFTER.contains(&kind) != LEFT_ALONE.contains(&kind), "{kind}");
        }
        assert_eq!(kept.len(), definitions::COUNT);
    }
}
