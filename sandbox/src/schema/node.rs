//! A structural schema as a tree: what [`super::parse`] makes of JSON and what all other modules walk.
//!
//! Data and look-ups only; what a node means for a value is decided by the modules that walk.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use serde_json::Value;

use super::{builtin, cel::Rules, pattern::Pattern};

#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent words of the schema language"
)]
/// One node of a schema: what is known about one field, element or map value.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    pub(crate) types: Vec<Type>,
    pub(crate) nullable: bool,
    pub(crate) preserve_unknown: bool,
    /// `apiVersion`, `kind` and `metadata` are known here; true at the root of every resource.
    pub(crate) embedded_resource: bool,
    /// Sorted by name, so that faults come in a stable order.
    pub(crate) properties: BTreeMap<String, Arc<Schema>>,
    pub(crate) additional: Option<Additional>,
    pub(crate) items: Option<Arc<Schema>>,
    pub(crate) required: Vec<String>,
    pub(crate) default: Option<Value>,
    pub(crate) list: ListKind,
    /// An object that is replaced as a whole.
    pub(crate) atomic: bool,
    pub(crate) patch: PatchStrategy,
    pub(crate) limits: Option<Arc<Limits>>,
    pub(crate) rules: Option<Arc<Rules>>,
    /// There is a CEL rule here or below.
    pub(crate) any_rules: bool,
    /// The built-in type that this is, such as `core.v1.PodSpec`.
    pub(crate) type_path: Option<Arc<str>>,
    /// The format of a number: `int32` or `int64`.
    pub(crate) width: Option<Arc<str>>,
}

/// A JSON type that a schema can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    String,
}

impl Type {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        [
            Self::Array,
            Self::Boolean,
            Self::Integer,
            Self::Number,
            Self::Object,
            Self::String,
        ]
        .into_iter()
        .find(|t| t.as_str() == name)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Object => "object",
            Self::String => "string",
        }
    }
}

/// What holds for the fields that `properties` does not name.
#[derive(Clone, Debug)]
pub(crate) enum Additional {
    /// Anything.
    Any,
    /// Nothing else may be there.
    None,
    /// They have this schema.
    Of(Arc<Schema>),
}

/// How a list is merged by server-side apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListKind {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// Of scalars, each of which is there once.
    Set,
    /// Of objects, told apart by the values of these fields.
    Map(Vec<String>),
}

/// How strategic merge patch treats a field of a built-in type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// The list is merged element by element.
    pub merge: bool,
    /// The object is replaced as a whole.
    pub replace: bool,
    /// Keys absent from `$retainKeys` are dropped.
    pub retain_keys: bool,
    /// The field that tells the elements of a merged list apart; without one they are scalars.
    pub merge_key: Option<String>,
}

/// Validations of the value itself, as opposed to its shape.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) maximum: Option<Bound>,
    pub(crate) minimum: Option<Bound>,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<usize>,
    pub(crate) min_length: Option<usize>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) format: Option<String>,
    pub(crate) max_items: Option<usize>,
    pub(crate) min_items: Option<usize>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<usize>,
    pub(crate) min_properties: Option<usize>,
    pub(crate) one_of_values: Option<Vec<Value>>,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Box<Schema>>,
}

/// A limit of a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) value: f64,
    pub(crate) exclusive: bool,
}

static STRING: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    Arc::new(Schema {
        types: vec![Type::String],
        ..Schema::default()
    })
});

impl Schema {
    /// The schema of a field or of a map's value; `None` where the field is unknown or anything goes.
    /// In a resource, `metadata` is the API server's own type whatever the resource says of it.
    pub fn field(&self, name: &str) -> Option<&Arc<Schema>> {
        if self.embedded_resource {
            match name {
                "metadata" => return Some(builtin::object_meta()),
                "apiVersion" | "kind" => return Some(&STRING),
                _ => {}
            }
        }
        self.properties.get(name).or(match &self.additional {
            Some(Additional::Of(schema)) => Some(schema),
            _ => None,
        })
    }

    /// The schema of a list's elements.
    pub fn items(&self) -> Option<&Arc<Schema>> {
        self.items.as_ref()
    }

    /// How a list with this schema is merged by server-side apply.
    pub fn list_kind(&self) -> &ListKind {
        &self.list
    }

    /// True for an object that server-side apply replaces as a whole.
    pub fn is_atomic(&self) -> bool {
        self.atomic
    }

    /// How strategic merge patch treats a field with this schema.
    pub fn patch_strategy(&self) -> &PatchStrategy {
        &self.patch
    }

    /// What a key field of an element of this list counts as where it is absent, such as `TCP` for a port's `protocol`.
    pub fn key_default(&self, key: &str) -> Option<&Value> {
        self.items.as_ref()?.properties.get(key)?.default.as_ref()
    }

    /// The built-in type that this is, such as `PodSpec`; `None` for other schemas and for types without a name.
    pub fn type_name(&self) -> Option<&str> {
        self.type_path()?.rsplit('.').next()
    }

    /// The same with its group and version, such as `core.v1.PodSpec`.
    pub fn type_path(&self) -> Option<&str> {
        self.type_path.as_deref()
    }

    /// True for an object whose keys are data, as opposed to fields.
    pub fn is_map(&self) -> bool {
        self.properties.is_empty() && matches!(self.additional, Some(Additional::Any | Additional::Of(_)))
    }

    /// True if an object must have the field.
    pub fn requires(&self, field: &str) -> bool {
        self.required.iter().any(|required| required == field)
    }

    /// True for a value that may be written as a number or as text.
    pub fn is_int_or_string(&self) -> bool {
        self.types == [Type::Integer, Type::String]
    }

    /// True for text that stands for bytes, in base64.
    pub fn is_bytes(&self) -> bool {
        self.format() == Some("byte")
    }

    /// True for text that stands for something else, as a time does: it has a format, and is not bytes.
    pub fn is_formatted_text(&self) -> bool {
        self.types == [Type::String] && self.format().is_some_and(|format| !matches!(format, "" | "byte"))
    }

    fn format(&self) -> Option<&str> {
        self.limits.as_ref()?.format.as_deref()
    }

    /// True if the value has one of the types that the schema allows. A schema that names none allows all.
    pub fn allows_type(&self, value: &Value) -> bool {
        self.types.is_empty()
            || self.types.iter().any(|t| match t {
                Type::Array => value.is_array(),
                Type::Boolean => value.is_boolean(),
                Type::Integer => value.is_i64() || value.is_u64(),
                Type::Number => value.is_number(),
                Type::Object => value.is_object(),
                Type::String => value.is_string(),
            })
    }

    /// The type in the words of the API server's language, as its messages name it.
    pub fn go_type(&self) -> String {
        if let Some(name) = self.type_name() {
            return format!("v1.{name}");
        }
        match self.types.as_slice() {
            [Type::Array] => {
                let items = self
                    .items
                    .as_ref()
                    .map_or("interface {}".into(), |items| items.go_type());
                format!("[]{items}")
            }
            [Type::Boolean] => "bool".into(),
            [Type::Integer] => self.width.as_deref().unwrap_or("int64").to_owned(),
            [Type::Number] => "float64".into(),
            [Type::String] => "string".into(),
            [Type::Object] => match &self.additional {
                Some(Additional::Of(values)) => format!("map[string]{}", values.go_type()),
                _ => "map[string]interface {}".into(),
            },
            _ => "interface {}".into(),
        }
    }

    /// The value that defaulting sets.
    pub fn default_value(&self) -> Option<&Value> {
        self.default.as_ref()
    }

    /// The schema at a path of field names; an element of any list is `*`.
    pub fn at(&self, path: &[&str]) -> Option<&Schema> {
        let mut node = self;
        for segment in path {
            node = if *segment == "*" && node.items.is_some() {
                node.items()?
            } else {
                node.field(segment)?
            };
        }
        Some(node)
    }
}
