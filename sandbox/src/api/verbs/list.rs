//! Get and list, with selectors, paging and reads of past revisions.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::api::{
    Past,
    options::{ListOptions, RevisionMatch},
    resource::Resource,
    selector::FieldSelector,
    state::{Call, Reply, State},
    status::ApiError,
    store::{Expired, Key},
};

/// What clients are told whose pages outlive the history.
const TOKEN_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.";

/// What clients are told who ask for a state that is no longer known.
const LIST_EXPIRED: &str = "The resourceVersion for the provided list is too old.";

impl State {
    pub(in crate::api) fn get(&self, call: &Call<'_>, revision: Option<u64>) -> Result<Reply, ApiError> {
        self.check_revision(revision)?;
        self.existing(call).map(Reply::ok)
    }

    /// The object as it was in an earlier state, as a lagging cache would give it.
    pub(in crate::api) fn get_stale(&self, call: &Call<'_>, past: Past) -> Result<Reply, ApiError> {
        let objects = self
            .store
            .list_at(call.table(), self.revision_of(past, call))
            .map_err(|e| ApiError::expired(e.to_string()))?;
        let found = objects.get(&call.key()).cloned();
        found.map(Reply::ok).ok_or_else(|| call.not_found(&call.request.name))
    }

    pub(in crate::api) fn list(&self, call: &Call<'_>, options: &ListOptions) -> Result<Reply, ApiError> {
        let options = &ListOptions {
            fields: fields_of(call.resource, options.fields.clone())?,
            ..options.clone()
        };
        let revision = options.revision.unwrap_or(0);
        if let Some(token) = &options.token {
            let (revision, start) = decode_token(token)?;
            return self
                .list_page(call, options, revision, Some(&start))
                .map_err(|_| ApiError::expired(TOKEN_EXPIRED));
        }
        self.check_revision(options.revision)?;
        if options.matching == Some(RevisionMatch::Exact) {
            return self
                .list_page(call, options, revision, None)
                .map_err(|_| ApiError::expired(LIST_EXPIRED));
        }
        // From a cache that has any state there are no pages; a page of a certain state is of exactly that one.
        let (options, revision) = match (options.matching, options.revision) {
            (None | Some(RevisionMatch::NotOlderThan), Some(0)) => (
                &ListOptions {
                    limit: None,
                    ..options.clone()
                },
                self.store.revision(),
            ),
            (None, Some(asked)) if options.limit.is_some() => (options, asked),
            _ => (options, self.store.revision()),
        };
        let page = self.list_page(call, options, revision, None);
        page.map_err(|e| ApiError::expired(e.to_string()))
    }

    /// The collection as it was so many revisions ago.
    pub(in crate::api) fn list_stale(
        &self,
        call: &Call<'_>,
        options: &ListOptions,
        past: Past,
    ) -> Result<Reply, ApiError> {
        self.list_page(call, options, self.revision_of(past, call), None)
            .map_err(|e| ApiError::expired(e.to_string()))
    }

    /// The revision of an earlier state, as far back as history is kept.
    fn revision_of(&self, past: Past, call: &Call<'_>) -> u64 {
        past.revision(self.store.revision())
            .max(self.store.oldest(call.table()))
    }

    fn check_revision(&self, revision: Option<u64>) -> Result<(), ApiError> {
        match revision {
            Some(asked) if asked > self.store.revision() => {
                Err(ApiError::too_large_revision(asked, self.store.revision()))
            }
            _ => Ok(()),
        }
    }

    fn list_page(
        &self,
        call: &Call<'_>,
        options: &ListOptions,
        revision: u64,
        after: Option<&Key>,
    ) -> Result<Reply, Expired> {
        let namespace = Some(call.request.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let past = if self.store.changed(call.table()) > revision {
            Some(self.store.list_at(call.table(), revision)?)
        } else {
            None
        };
        let mut found: Box<dyn Iterator<Item = _>> = match &past {
            None => Box::new(self.store.list(call.table(), namespace, after)),
            Some(past) => Box::new(
                past.iter()
                    .filter(move |(key, _)| namespace.is_none_or(|namespace| key.namespace == namespace))
                    .filter(move |(key, _)| after.is_none_or(|after| *key > after)),
            ),
        };
        let mut items = Vec::new();
        let mut last = None;
        let limit = options.limit.unwrap_or(usize::MAX);
        for (key, object) in found.by_ref() {
            if !options.labels.matches(&object.value) || !options.fields.matches(&object.value) {
                continue;
            }
            items.push(object.clone());
            last = Some(key);
            if items.len() == limit {
                break;
            }
        }
        let rest = if items.len() == limit { found.count() } else { 0 };
        let token = last.filter(|_| rest > 0).map(|key| encode_token(revision, key));
        // With a selector the server cannot know how many of the rest fit.
        let selected = !options.labels.is_empty() || !options.fields.is_empty();
        let remaining = (rest > 0 && !selected).then_some(rest);
        Ok(Reply::List {
            items,
            revision,
            token,
            remaining,
        })
    }
}

/// Fields that can be selected by, beside name and namespace.
fn selectable(kind: &str) -> &'static [&'static str] {
    match kind {
        "Pod" => &[
            "spec.hostNetwork",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.nominatedNodeName",
            "status.phase",
            "status.podIP",
        ],
        "Event" => &[
            "involvedObject.apiVersion",
            "involvedObject.fieldPath",
            "involvedObject.kind",
            "involvedObject.name",
            "involvedObject.namespace",
            "involvedObject.resourceVersion",
            "involvedObject.uid",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        "Namespace" => &["status.phase"],
        "Node" => &["spec.unschedulable"],
        "Secret" => &["type"],
        "Service" => &["spec.clusterIP", "spec.type"],
        "ReplicaSet" => &["status.replicas"],
        "Job" => &["status.successful"],
        _ => &[],
    }
}

/// A field selector in the names of the stored version. One by fields that cannot be selected by is refused.
pub(in crate::api) fn fields_of(resource: &Resource, fields: FieldSelector) -> Result<FieldSelector, ApiError> {
    let fields = match resource.names.group.as_str() {
        "events.k8s.io" => fields.renamed(|path| match path.strip_prefix("regarding.") {
            Some(field) => format!("involvedObject.{field}"),
            None => path.replace("reportingController", "reportingComponent"),
        }),
        _ => fields,
    };
    let more: Vec<String> = match &resource.definition {
        Some(definition) => {
            let listed = definition
                .get("selectableFields")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let paths = listed.filter_map(|field| field.get("jsonPath")?.as_str());
            paths.map(|path| path.trim_start_matches('.').to_owned()).collect()
        }
        None => selectable(&resource.names.kind)
            .iter()
            .map(|path| (*path).to_owned())
            .collect(),
    };
    let known = |path: &str| matches!(path, "metadata.name" | "metadata.namespace") || more.iter().any(|m| m == path);
    let Some(unknown) = fields.paths().find(|path| !known(path)) else {
        return Ok(fields);
    };
    Err(ApiError::bad_request(if more.is_empty() && !resource.custom {
        format!("{unknown:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else {
        format!("field label not supported: {unknown}")
    }))
}

fn encode_token(revision: u64, key: &Key) -> String {
    let start = format!("{}/{}", key.namespace, key.name);
    let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start});
    URL_SAFE_NO_PAD.encode(token.to_string())
}

fn decode_token(token: &str) -> Result<(u64, Key), ApiError> {
    let read = || {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let token: Value = serde_json::from_slice(&bytes).ok()?;
        let (namespace, name) = token.get("start")?.as_str()?.split_once('/')?;
        Some((token.get("rv")?.as_u64()?, Key::new(namespace, name)))
    };
    read().ok_or_else(|| {
        ApiError::bad_request("invalid continue token: continue key is not valid: illegal base64 data at input byte 0")
    })
}
