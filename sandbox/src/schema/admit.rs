//! All that a custom resource's schema asks of an object, in the order in which the API server asks it.

use serde_json::Value;

use super::{cel, embedded, lists, node::Schema, path::Path, validate::Checker};
use crate::api::{FieldError, FieldErrorKind};

impl Schema {
    /// Why a custom resource is refused: types and limits, uniqueness in lists, then the CEL rules. With `old`, what it
    /// did not change is let be, and rules about the change are run. Its `metadata` is not looked at.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut checker = Checker::new("");
        checker.check(self, object, old, &Path::Root);
        let mut errors = checker.errors;
        embedded::check(self, object, &Path::Root, &mut errors);
        errors.append(&mut self.unique(object, old));
        self.rules(object, old, &mut errors);
        errors
    }

    /// The same for an update of the status: only the status is held to its types and limits.
    pub fn validate_status(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut checker = Checker::new("status");
        if let (Some(schema), Some(status)) = (self.properties.get("status"), object.get("status")) {
            checker.check(schema, status, old.get("status"), &Path::Root);
        }
        let mut errors = checker.errors;
        embedded::check(self, object, &Path::Root, &mut errors);
        errors.append(&mut self.unique(object, Some(old)));
        self.rules(object, Some(old), &mut errors);
        errors
    }

    /// An object that broke uniqueness before may go on doing so.
    fn unique(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let find = |value: &Value| {
            let mut errors = Vec::new();
            lists::duplicates(self, value, &Path::Root, &mut errors);
            errors
        };
        if old.is_some_and(|old| !find(old).is_empty()) {
            Vec::new()
        } else {
            find(object)
        }
    }

    /// Rules may rely on types, so they are not run on what lacks them.
    fn rules(&self, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let blocks = |error: &FieldError| {
            matches!(
                error.kind,
                FieldErrorKind::NotSupported
                    | FieldErrorKind::Required
                    | FieldErrorKind::TooLong
                    | FieldErrorKind::TooMany
                    | FieldErrorKind::TypeInvalid
            )
        };
        if !self.any_rules {
            return;
        }
        if errors.iter().any(blocks) {
            let why = "some validation rules were not checked because the object was invalid; \
                       correct the existing errors to complete validation";
            errors.push(FieldError::invalid("", Value::Null, why));
        } else {
            cel::check(self, object, old, &Path::Root, false, errors);
        }
    }
}
