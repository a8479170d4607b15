//! Filling in of the defaults that a schema states.

use serde_json::Value;

use super::node::{Additional, Schema};

impl Schema {
    /// Sets the default of every field that is absent, or `null` where it may not be. A default within an object that
    /// is itself absent is not set, unless that object has a default too.
    pub fn default_fields(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (name, schema) in &self.properties {
                    if let Some(default) = &schema.default
                        && map.get(name).is_none_or(|v| v.is_null() && !schema.nullable)
                    {
                        map.insert(name.clone(), default.clone());
                    }
                }
                for (name, value) in map.iter_mut() {
                    if let Some(schema) = self.properties.get(name) {
                        schema.default_fields(value);
                    } else if let Some(Additional::Of(schema)) = &self.additional {
                        schema.default_element(value);
                    }
                }
            }
            Value::Array(list) => {
                if let Some(items) = &self.items {
                    for element in list {
                        items.default_element(element);
                    }
                }
            }
            _ => {}
        }
    }

    fn default_element(&self, value: &mut Value) {
        if value.is_null() && !self.nullable {
            *value = self.default.clone().unwrap_or_default();
        }
        self.default_fields(value);
    }
}
