//! The limits of a value of the right type: length, size, range, pattern, format.

use serde_json::Value;

use super::{node::Limits, number::float, path::Path, validate::Checker};
use crate::api::FieldError;

impl Checker<'_> {
    pub(super) fn check_limits(&mut self, limits: &Limits, value: &Value, path: &Path<'_>) {
        match value {
            Value::String(text) => self.check_string(limits, value, text, path),
            Value::Number(_) => self.check_number(limits, value, path),
            Value::Array(list) => {
                let size = list.len();
                if let Some(min) = limits.min_items.filter(|min| size < *min) {
                    self.invalid(path, size, &format!("should have at least {min} items"));
                }
                if let Some(max) = limits.max_items.filter(|max| size > *max) {
                    self.errors.push(FieldError::too_many(self.at(path), size, max));
                }
                if limits.unique_items
                    && list
                        .iter()
                        .enumerate()
                        .any(|(i, v)| list.iter().take(i).any(|w| v == w))
                {
                    self.invalid(path, "", "shouldn't contain duplicates");
                }
            }
            Value::Object(map) => {
                let size = map.len();
                if let Some(min) = limits.min_properties.filter(|min| size < *min) {
                    self.invalid(path, size, &format!("should have at least {min} properties"));
                }
                if let Some(max) = limits.max_properties.filter(|max| size > *max) {
                    self.errors.push(FieldError::too_many(self.at(path), size, max));
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn check_string(&mut self, limits: &Limits, value: &Value, text: &str, path: &Path<'_>) {
        let length = text.chars().count();
        if let Some(max) = limits.max_length.filter(|max| length > *max) {
            self.errors.push(FieldError::too_long(self.at(path), max));
        } else if let Some(min) = limits.min_length.filter(|min| length < *min) {
            self.invalid(path, value.clone(), &format!("should be at least {min} chars long"));
        } else if let Some(pattern) = &limits.pattern {
            match &pattern.regex {
                Ok(regex) if regex.is_match(text) => {}
                Ok(_) => self.invalid(path, value.clone(), &format!("should match '{}'", pattern.source)),
                Err(why) => {
                    let source = &pattern.source;
                    self.invalid(
                        path,
                        value.clone(),
                        &format!("should match '{source}, but pattern is invalid: {why}'"),
                    );
                }
            }
        }
        if let Some(format) = &limits.format
            && !super::format::holds(format, text)
        {
            let detail = format!("{path} in body must be of type {format}: {text:?}");
            self.errors
                .push(FieldError::type_invalid(self.at(path), value.clone(), detail));
        }
    }

    fn check_number(&mut self, limits: &Limits, value: &Value, path: &Path<'_>) {
        let Some(number) = value.as_f64() else { return };
        let exact = value.is_i64() || value.is_u64();
        let shown = |bound: f64| if exact { float(bound.trunc()) } else { float(bound) };
        if let Some(factor) = limits.multiple_of
            && (number / factor).fract() != 0.0
        {
            self.invalid(
                path,
                value.clone(),
                &format!("should be a multiple of {}", shown(factor)),
            );
        }
        if let Some(max) = limits.maximum
            && (number > max.value || (max.exclusive && number >= max.value))
        {
            let than = if max.exclusive {
                "less than"
            } else {
                "less than or equal to"
            };
            self.invalid(path, value.clone(), &format!("should be {than} {}", shown(max.value)));
        }
        if let Some(min) = limits.minimum
            && (number < min.value || (min.exclusive && number <= min.value))
        {
            let than = if min.exclusive {
                "greater than"
            } else {
                "greater than or equal to"
            };
            self.invalid(path, value.clone(), &format!("should be {than} {}", shown(min.value)));
        }
        self.matched += 1;
    }
}
