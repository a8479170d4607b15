//! The options of a request: list, watch, write and delete options, from the query and, for deletions, the body.

use serde_json::Value;

use super::{
    field_error::FieldError,
    request::Verb,
    selector::{FieldSelector, LabelSelector},
    status::{ApiError, GroupResource},
};

/// How a `resourceVersion` of a list is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevisionMatch {
    /// That state and no other.
    Exact,
    /// That state or a later one.
    NotOlderThan,
}

/// What to do with fields that a schema does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and say so in `Warning` headers.
    Warn,
    /// Refuse the request.
    Strict,
}

/// What becomes of dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The garbage collector deletes them afterwards.
    Background,
    /// The object waits for them.
    Foreground,
    /// They lose their owner and stay.
    Orphan,
}

/// The query of a request, read once.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Absent, `false` and `0` are false.
    pub(super) fn flag(&self, key: &str) -> bool {
        let found = self.0.iter().find(|(name, _)| name == key);
        found.is_some_and(|(_, value)| !matches!(value.to_lowercase().as_str(), "false" | "0"))
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let number = text.parse();
        number
            .map(Some)
            .map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
    }

    /// `kind` is that of the options, which errors name.
    pub(super) fn dry_run(&self, kind: &str) -> Result<bool, ApiError> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => Err(invalid_option(
                kind,
                FieldError::not_supported("dryRun", Value::from(vec![other]), &["All"]),
            )),
        }
    }
}

fn invalid_option(kind: &str, error: FieldError) -> ApiError {
    invalid_options(kind, &[error])
}

fn invalid_options(kind: &str, errors: &[FieldError]) -> ApiError {
    let kind = GroupResource {
        group: "meta.k8s.io".into(),
        resource: kind.into(),
    };
    ApiError::invalid(&kind, "", errors)
}

/// Options of get, list, watch and deletecollection.
#[derive(Clone, Debug, Default)]
pub(super) struct ListOptions {
    pub(super) labels: LabelSelector,
    pub(super) fields: FieldSelector,
    pub(super) limit: Option<usize>,
    pub(super) token: Option<String>,
    /// `None` if unset; 0 means "any state will do".
    pub(super) revision: Option<u64>,
    pub(super) matching: Option<RevisionMatch>,
    pub(super) bookmarks: bool,
    pub(super) timeout_seconds: Option<u64>,
    pub(super) initial_events: Option<bool>,
}

impl ListOptions {
    pub(super) fn parse(query: &Query, verb: Verb) -> Result<Self, ApiError> {
        let refused = |error| invalid_option("ListOptions", error);
        let labels =
            LabelSelector::parse(query.get("labelSelector").unwrap_or_default()).map_err(ApiError::bad_request)?;
        let fields =
            FieldSelector::parse(query.get("fieldSelector").unwrap_or_default()).map_err(ApiError::bad_request)?;
        let revision = match query.get("resourceVersion") {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| {
                let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
                let error = FieldError::invalid("resourceVersion", text, why);
                if verb == Verb::List {
                    return ApiError::bad_request(format!("invalid resource version: {error}"));
                }
                ApiError::unknown(error.to_string())
            })?),
        };
        let matching = match query.get("resourceVersionMatch") {
            None => None,
            Some("Exact") => Some(RevisionMatch::Exact),
            Some("NotOlderThan") => Some(RevisionMatch::NotOlderThan),
            Some(other) => {
                let supported = ["Exact", "NotOlderThan", ""];
                return Err(refused(FieldError::not_supported(
                    "resourceVersionMatch",
                    other,
                    &supported,
                )));
            }
        };
        let initial_events = query
            .get("sendInitialEvents")
            .map(|text| text != "false" && text != "0");
        let options = Self {
            labels,
            fields,
            limit: query
                .number("limit")?
                .and_then(|limit| usize::try_from(limit).ok())
                .filter(|limit| *limit > 0),
            token: query.get("continue").map(str::to_owned),
            revision,
            matching,
            bookmarks: query.flag("allowWatchBookmarks"),
            timeout_seconds: query
                .number("timeoutSeconds")?
                .and_then(|seconds| u64::try_from(seconds).ok()),
            initial_events,
        };
        if verb != Verb::Get {
            options.check(verb == Verb::Watch)?;
        }
        Ok(options)
    }

    /// Combinations that make no sense.
    fn check(&self, watching: bool) -> Result<(), ApiError> {
        let forbidden = |field: &str, why: &str| Err(invalid_option("ListOptions", FieldError::forbidden(field, why)));
        let field = "resourceVersionMatch";
        if watching {
            if self.initial_events.is_some() && self.matching != Some(RevisionMatch::NotOlderThan) {
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                let mut errors = vec![FieldError::forbidden(field, why)];
                if self.matching == Some(RevisionMatch::Exact) {
                    errors.push(FieldError::not_supported(field, "Exact", &["NotOlderThan"]));
                }
                return Err(invalid_options("ListOptions", &errors));
            }
            if self.initial_events.is_none() && self.matching.is_some() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                return forbidden(field, why);
            }
            return Ok(());
        }
        if self.initial_events.is_some() {
            return forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        if self.matching.is_some() && self.revision.is_none() {
            return forbidden(
                field,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            );
        }
        if self.matching.is_some() && self.token.is_some() {
            return forbidden(field, "resourceVersionMatch is forbidden when continue is provided");
        }
        if self.matching == Some(RevisionMatch::Exact) && self.revision == Some(0) {
            return forbidden(
                field,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
        Ok(())
    }
}

/// The longest name of a field manager.
const MANAGER_LIMIT: usize = 128;

/// Options of create, update and patch.
#[derive(Clone, Debug)]
pub(super) struct WriteOptions {
    pub(super) dry_run: bool,
    pub(super) manager: String,
    pub(super) force: Option<bool>,
    pub(super) validation: FieldValidation,
    /// Fields that the body has twice.
    pub(super) duplicates: Vec<String>,
}

impl WriteOptions {
    /// `apply`: the patch is a server-side apply.
    pub(super) fn parse(query: &Query, user_agent: &str, verb: Verb, apply: bool) -> Result<Self, ApiError> {
        let kind = match verb {
            Verb::Create => "CreateOptions",
            Verb::Patch => "PatchOptions",
            _ => "UpdateOptions",
        };
        let named = query.get("fieldManager");
        let default = match user_agent.split('/').next() {
            None | Some("") => "unknown",
            Some(prefix) => prefix,
        };
        let validation = match query.get("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                let error = FieldError::not_supported("fieldValidation", other, &supported);
                return Err(invalid_option(kind, error));
            }
        };
        let force = query.get("force").map(|text| text == "true" || text == "1");
        let refused = |error| Err(invalid_option(kind, error));
        if apply && named.is_none() {
            return refused(FieldError::required("fieldManager", "is required for apply patch"));
        }
        if verb == Verb::Patch && !apply && force.is_some() {
            return refused(FieldError::forbidden(
                "force",
                "may not be specified for non-apply patch",
            ));
        }
        if named.is_some_and(|named| named.len() > MANAGER_LIMIT) {
            return refused(FieldError::too_long("fieldManager", MANAGER_LIMIT));
        }
        let unprintable = |(_, letter): &(usize, char)| letter.is_control();
        if let Some((at, letter)) = named.and_then(|named| named.char_indices().find(unprintable)) {
            let why = format!("invalid character U+{:04X} (at position {at})", u32::from(letter));
            return refused(FieldError::invalid("fieldManager", named.unwrap_or_default(), why));
        }
        let manager = named.unwrap_or(default).to_owned();
        Ok(Self {
            dry_run: query.dry_run(kind)?,
            manager,
            force,
            validation,
            duplicates: Vec::new(),
        })
    }
}

/// Options of a deletion.
#[derive(Clone, Debug, Default)]
pub(super) struct DeleteOptions {
    pub(super) dry_run: bool,
    pub(super) grace_seconds: Option<i64>,
    pub(super) propagation: Option<Propagation>,
    pub(super) uid: Option<String>,
    pub(super) revision: Option<String>,
}

impl DeleteOptions {
    /// The body counts if there is one, otherwise the query.
    pub(super) fn parse(query: &Query, body: Option<&Value>) -> Result<Self, ApiError> {
        let mut options = Self {
            dry_run: query.dry_run("DeleteOptions")?,
            ..Self::default()
        };
        let mut policy = query.get("propagationPolicy").map(str::to_owned);
        let mut orphan = query.get("orphanDependents").map(|text| text == "true");
        options.grace_seconds = query.number("gracePeriodSeconds")?;
        if let Some(body) = body {
            let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
            let preconditions = body.get("preconditions");
            options.uid = text(preconditions.and_then(|p| p.get("uid")));
            options.revision = text(preconditions.and_then(|p| p.get("resourceVersion")));
            options.grace_seconds = body
                .get("gracePeriodSeconds")
                .and_then(Value::as_i64)
                .or(options.grace_seconds);
            policy = text(body.get("propagationPolicy")).or(policy);
            orphan = body.get("orphanDependents").and_then(Value::as_bool).or(orphan);
            if let Some(stages) = body
                .get("dryRun")
                .and_then(Value::as_array)
                .filter(|stages| !stages.is_empty())
            {
                if stages.iter().any(|stage| stage != "All") {
                    let error = FieldError::not_supported("dryRun", Value::from(stages.clone()), &["All"]);
                    return Err(invalid_option("DeleteOptions", error));
                }
                options.dry_run = true;
            }
        }
        if let (Some(policy), Some(_)) = (&policy, orphan) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            let error = FieldError::invalid("propagationPolicy", policy.as_str(), why);
            return Err(invalid_option("DeleteOptions", error));
        }
        options.propagation = match (policy.as_deref(), orphan) {
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (None | Some(""), None) => None,
            (Some(other), _) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                let error = FieldError::not_supported("propagationPolicy", other, &supported);
                return Err(invalid_option("DeleteOptions", error));
            }
        };
        Ok(options)
    }
}
