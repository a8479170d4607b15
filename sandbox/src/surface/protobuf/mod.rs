//! Built-in objects in the compact binary form (`application/vnd.kubernetes.protobuf`), which typed clients send and
//! `kubectl create` among them. Read only: answers are JSON, which such clients take too.
//!
//! Fields that a table does not name are left out, as JSON leaves out what is unknown.

mod wire;

use std::{collections::HashMap, sync::LazyLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::resource::split_api_version;
use wire::{Reader, Wire};

/// The media type of the form.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// How every body begins.
const MAGIC: &[u8] = b"k8s\0";

/// Objects within objects beyond this are refused.
const DEPTH: usize = 64;

/// Why a body cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProtobufError {
    /// It does not begin as it must.
    #[error("the body does not begin with the bytes \"k8s\\0\" of {MEDIA_TYPE}")]
    NotKubernetes,
    /// It ends within a field, or a field is not of the type that it should be.
    #[error("the body is broken")]
    Broken,
    /// Objects are nested too deeply.
    #[error("the body is nested more than {DEPTH} levels deep")]
    TooDeep,
    /// The kind is not known in this form.
    #[error("{kind} of {api_version} is not known in {MEDIA_TYPE}; send JSON")]
    UnknownKind {
        /// What it says it is.
        kind: String,
        /// In which version.
        api_version: String,
    },
}

/// A field of a type.
struct Field {
    name: &'static str,
    kind: Kind,
    /// It may be set to nothing: what is not set and what is 0 are told apart.
    optional: bool,
}

enum Kind {
    Text,
    Whole,
    Number,
    Truth,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    Duration,
    /// JSON within.
    Raw,
    /// A list of texts with a type of its own.
    Items,
    List(Box<Kind>),
    Map(Box<Kind>),
    /// Another type, by name.
    Of(&'static str),
    /// Another type, whose fields stand among these.
    Among(&'static str),
}

type Types = HashMap<&'static str, HashMap<u32, Field>>;

static TYPES: LazyLock<Types> = LazyLock::new(|| {
    let lines = include_str!("fields.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(' ').map(|(name, fields)| (name, parse_fields(fields))))
        .collect()
});

fn parse_fields(fields: &'static str) -> HashMap<u32, Field> {
    let field = |field: &'static str| {
        let at = field.find(['=', '^'])?;
        let (number, rest) = field.split_at(at);
        let number = number.parse().ok()?;
        if let Some(of) = rest.strip_prefix('^') {
            return Some((
                number,
                Field {
                    name: "",
                    kind: Kind::Among(of),
                    optional: false,
                },
            ));
        }
        let (name, kind) = rest.strip_prefix('=')?.split_once(':')?;
        let optional = kind.ends_with('?');
        Some((
            number,
            Field {
                name,
                kind: parse_kind(kind.trim_end_matches('?')),
                optional,
            },
        ))
    };
    fields.split(' ').filter_map(field).collect()
}

fn parse_kind(kind: &'static str) -> Kind {
    match kind {
        "s" => Kind::Text,
        "i" => Kind::Whole,
        "f" => Kind::Number,
        "b" => Kind::Truth,
        "y" => Kind::Bytes,
        "time" => Kind::Time,
        "microtime" => Kind::MicroTime,
        "quantity" => Kind::Quantity,
        "intstr" => Kind::IntOrString,
        "duration" => Kind::Duration,
        "raw" => Kind::Raw,
        "items" => Kind::Items,
        _ => match (kind.strip_prefix('*'), kind.strip_prefix('%')) {
            (Some(of), _) => Kind::List(Box::new(parse_kind(of))),
            (_, Some(of)) => Kind::Map(Box::new(parse_kind(of))),
            _ => Kind::Of(kind),
        },
    }
}

/// Reads an object.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtobufError::NotKubernetes)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut reader = Reader::new(envelope);
    while let Some((number, value)) = reader.field()? {
        match (number, value) {
            (1, Wire::Bytes(head)) => {
                let mut head = Reader::new(head);
                while let Some((number, value)) = head.field()? {
                    match number {
                        1 => api_version = value.text()?,
                        2 => kind = value.text()?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let Some(name) = type_name(&api_version, &kind) else {
        return Err(ProtobufError::UnknownKind { kind, api_version });
    };
    let mut object = Map::from_iter([("kind".into(), kind.into()), ("apiVersion".into(), api_version.into())]);
    message(name, raw, &mut object, 0)?;
    Ok(Value::Object(object))
}

/// A kind's type. Groups go by their first word.
fn type_name(api_version: &str, kind: &str) -> Option<&'static str> {
    let (group, version) = split_api_version(api_version);
    let group = match group.split('.').next().unwrap_or_default() {
        "" => "core",
        group => group,
    };
    let wanted = if kind == "DeleteOptions" {
        "meta.v1.DeleteOptions".to_owned()
    } else {
        format!("{group}.{version}.{kind}")
    };
    TYPES.get_key_value(wanted.as_str()).map(|(name, _)| *name)
}

fn message(name: &str, bytes: &[u8], into: &mut Map<String, Value>, depth: usize) -> Result<(), ProtobufError> {
    if depth > DEPTH {
        return Err(ProtobufError::TooDeep);
    }
    let Some(fields) = TYPES.get(name) else { return Ok(()) };
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.field()? {
        let Some(field) = fields.get(&number) else { continue };
        match &field.kind {
            Kind::Among(of) => message(of, value.bytes()?, into, depth + 1)?,
            Kind::List(of) => {
                let list = into.entry(field.name).or_insert_with(|| json!([]));
                if let (Some(list), Some(value)) = (list.as_array_mut(), single(of, value, depth)?) {
                    list.push(value);
                }
            }
            Kind::Map(of) => {
                let map = into.entry(field.name).or_insert_with(|| json!({}));
                if let Some(map) = map.as_object_mut() {
                    entry(of, value.bytes()?, map, depth)?;
                }
            }
            kind => {
                if let Some(value) = single(kind, value, depth)?
                    && (field.optional || !is_nothing(&value))
                {
                    into.insert(field.name.to_owned(), value);
                }
            }
        }
    }
    Ok(())
}

/// What JSON leaves out where a field cannot be set to nothing.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Bool(truth) => !truth,
        _ => false,
    }
}

fn entry(of: &Kind, bytes: &[u8], map: &mut Map<String, Value>, depth: usize) -> Result<(), ProtobufError> {
    let (mut key, mut found) = (String::new(), None);
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.field()? {
        match number {
            1 => key = value.text()?,
            2 => found = single(of, value, depth)?,
            _ => {}
        }
    }
    let nothing = || match of {
        Kind::Text | Kind::Bytes => Value::String(String::new()),
        _ => Value::Null,
    };
    map.insert(key, found.unwrap_or_else(nothing));
    Ok(())
}

fn single(kind: &Kind, value: Wire<'_>, depth: usize) -> Result<Option<Value>, ProtobufError> {
    Ok(Some(match kind {
        Kind::Text => value.text()?.into(),
        Kind::Whole => value.whole()?.into(),
        Kind::Truth => (value.whole()? != 0).into(),
        Kind::Number => json!(value.number()?),
        Kind::Bytes => STANDARD.encode(value.bytes()?).into(),
        Kind::Time | Kind::MicroTime => return time(value.bytes()?, matches!(kind, Kind::MicroTime)),
        Kind::Quantity => part(value.bytes()?, 1)?.map_or(Ok("0".into()), Wire::text)?.into(),
        Kind::IntOrString => int_or_string(value.bytes()?)?,
        Kind::Duration => part(value.bytes()?, 1)?.map_or(Ok(0), Wire::whole)?.into(),
        Kind::Raw => {
            let raw = part(value.bytes()?, 1)?.map_or(Ok(&b"null"[..]), Wire::bytes)?;
            serde_json::from_slice(raw).map_err(|_| ProtobufError::Broken)?
        }
        Kind::Items => {
            let mut items = Vec::new();
            let mut reader = Reader::new(value.bytes()?);
            while let Some((_, item)) = reader.field()? {
                items.push(item.text()?);
            }
            items.into()
        }
        Kind::Of(name) | Kind::Among(name) => {
            let mut map = Map::new();
            message(name, value.bytes()?, &mut map, depth + 1)?;
            Value::Object(map)
        }
        Kind::List(_) | Kind::Map(_) => return Ok(None),
    }))
}

/// The last field of a number in a small message.
fn part(bytes: &[u8], wanted: u32) -> Result<Option<Wire<'_>>, ProtobufError> {
    let mut found = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.field()? {
        if number == wanted {
            found = Some(value);
        }
    }
    Ok(found)
}

fn time(bytes: &[u8], micro: bool) -> Result<Option<Value>, ProtobufError> {
    let Some(seconds) = part(bytes, 1)?.map(Wire::whole).transpose()? else {
        return Ok(None);
    };
    let nanos = part(bytes, 2)?.map_or(Ok(0), Wire::whole)?;
    let nanos = i32::try_from(nanos).map_err(|_| ProtobufError::Broken)?;
    let time = Timestamp::new(seconds, nanos).map_err(|_| ProtobufError::Broken)?;
    let format = if micro {
        "%Y-%m-%dT%H:%M:%S.%6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    Ok(Some(time.strftime(format).to_string().into()))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let is_text = part(bytes, 1)?.map_or(Ok(0), Wire::whole)? == 1;
    Ok(if is_text {
        part(bytes, 3)?.map_or(Ok(String::new()), Wire::text)?.into()
    } else {
        part(bytes, 2)?.map_or(Ok(0), Wire::whole)?.into()
    })
}

#[cfg(test)]
mod tests;
