//! What two servers cannot have in common is replaced by symbols: uids, revisions, times, what was drawn at random. The
//! symbols keep what can be relied on: which are the same, and of revisions which is later.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use jiff::{SignedDuration, Timestamp};
use regex::{Captures, Regex};
use serde_json::{Map, Value};

use crate::{answer::Answer, server::FIRST_REVISION};

static UID: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").expect("it is an expression")
});
static TIME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").expect("it is an expression"));
/// Node ports as tables show them.
static NODE_PORT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(\d:)(3[0-2]\d\d\d)(/)").expect("it is an expression"));
/// Where a message tells a revision of the server.
static NEWEST: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(too old resource version: \d+|Too large resource version: \d+),? ?(\(\d+\)|current: \d+)")
        .expect("it is an expression")
});
/// A number on its own; the year of a time is none, nor that of a standard.
static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)|RFC \d+|\b\d+\b").expect("it is an expression")
});
/// Addresses of Services of either server.
static ADDRESS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b(127\.96|198\.18)\.\d+\.\d+\b").expect("it is an expression"));

/// The answers of a case with symbols.
#[derive(Default)]
pub struct Normal {
    uids: BTreeMap<String, String>,
    names: BTreeMap<String, String>,
    addresses: BTreeMap<String, String>,
    ports: BTreeMap<u64, String>,
    revisions: BTreeMap<u64, String>,
}

impl Normal {
    /// The trees of the answers.
    pub fn of(answers: &[Answer]) -> Vec<Value> {
        let mut normal = Self::default();
        let trees: Vec<Value> = answers.iter().map(Answer::tree).collect();
        let mut revisions = BTreeSet::new();
        for tree in &trees {
            gather(tree, &mut revisions);
        }
        for (rank, revision) in (1..).zip(revisions) {
            normal.revisions.insert(revision, format!("revision-{rank}"));
        }
        trees.into_iter().map(|tree| normal.value(tree)).collect()
    }

    fn value(&mut self, value: Value) -> Value {
        match value {
            Value::Object(fields) => self.object(fields),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::String(text) => Value::String(self.text(&text)),
            other => other,
        }
    }

    fn object(&mut self, mut fields: Map<String, Value>) -> Value {
        // Of a collection, a server's newest revision at that time: others may have written.
        if is_collection(&fields)
            && let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut)
        {
            for (field, symbol) in [("resourceVersion", "revision-now"), ("continue", "token")] {
                if let Some(value) = metadata.get_mut(field).filter(|value| *value != "" && *value != "0") {
                    *value = symbol.into();
                }
            }
        }
        if let (Some(prefix), Some(name)) = (text(&fields, "generateName"), text(&fields, "name"))
            && let Some(drawn) = name.strip_prefix(prefix)
        {
            let symbol = format!("{prefix}<{} drawn>", drawn.len());
            let number = self.names.len();
            self.names
                .entry(name.to_owned())
                .or_insert_with(|| format!("{symbol}{number}"));
        }
        // A name that was refused is still told.
        if let (Some(name), Some(prefix)) = (text(&fields, "name"), fields.get("causes").and_then(refused_prefix))
            && let Some(drawn) = name.strip_prefix(&prefix)
        {
            self.names
                .insert(name.to_owned(), format!("{prefix}<{} drawn>", drawn.len()));
        }
        if let Some(Value::Array(managers)) = fields.get_mut("managedFields") {
            // They are in the order of their times, which have whole seconds.
            managers.sort_by_key(|manager| {
                ["operation", "manager", "subresource", "apiVersion"].map(|field| manager[field].to_string())
            });
        }
        match text(&fields, "kind") {
            Some("Table") => ageless(&mut fields),
            Some("APIResourceList") => named(&mut fields),
            Some("APIGroupDiscoveryList") => by_names(&mut fields, &DISCOVERED),
            _ => {}
        }
        let mut names: Vec<_> = fields.keys().cloned().collect();
        names.sort();
        let mut out = Map::new();
        for name in names {
            let value = fields.remove(&name).unwrap_or_default();
            let value = match (name.as_str(), &value) {
                ("resourceVersion", Value::String(revision)) => match revision.parse() {
                    Ok(revision) => self.revisions.get(&revision).cloned().map_or(value, Value::String),
                    Err(_) => value,
                },
                ("nodePort" | "healthCheckNodePort", Value::Number(number))
                    if number.as_u64().is_some_and(|n| n >= 30000) =>
                {
                    let next = self.ports.len();
                    let port = number.as_u64().unwrap_or_default();
                    self.ports
                        .entry(port)
                        .or_insert_with(|| format!("port-{next}"))
                        .clone()
                        .into()
                }
                _ => self.value(value),
            };
            out.insert(self.text(&name), value);
        }
        // Once what was drawn at random is replaced.
        if text(&out, "kind") == Some("Status") {
            unordered(&mut out);
        }
        Value::Object(out)
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = UID
            .replace_all(text, |found: &Captures<'_>| symbol(&mut self.uids, &found[0], "uid"))
            .into_owned();
        for (name, symbol) in &self.names {
            if text.contains(name) {
                text = text.replace(name, symbol);
            }
        }
        let text = ADDRESS.replace_all(&text, |found: &Captures<'_>| {
            symbol(&mut self.addresses, &found[0], "address")
        });
        let text = NODE_PORT.replace_all(&text, |found: &Captures<'_>| {
            let next = self.ports.len();
            let number = found[2].parse().unwrap_or_default();
            let port = self.ports.entry(number).or_insert_with(|| format!("port-{next}"));
            format!("{}{port}{}", &found[1], &found[3])
        });
        let text = NEWEST.replace_all(&text, "$1 (the newest)");
        let text = TIME.replace_all(&text, |found: &Captures<'_>| time(&found[0]));
        // Elsewhere numbers are those of the request, or bounds that it has not kept.
        let tells_revisions = text.to_lowercase().contains("version") || text.bytes().all(|byte| byte.is_ascii_digit());
        if !tells_revisions {
            return text.into_owned();
        }
        NUMBER
            .replace_all(&text, |found: &Captures<'_>| {
                let number = found[0].parse().ok().filter(|number| *number > FIRST_REVISION);
                let revision = number.and_then(|number: u64| self.revisions.get(&number));
                revision.cloned().unwrap_or_else(|| found[0].to_owned())
            })
            .into_owned()
    }
}

/// The prefix in a refusal of `metadata.generateName`.
fn refused_prefix(causes: &Value) -> Option<String> {
    let refused = |cause: &&Value| cause["field"] == "metadata.generateName";
    let message = causes.as_array()?.iter().find(refused)?["message"].as_str()?;
    Some(message.split('"').nth(1)?.to_owned())
}

fn symbol(known: &mut BTreeMap<String, String>, found: &str, kind: &str) -> String {
    let next = known.len();
    known
        .entry(found.to_owned())
        .or_insert_with(|| format!("{kind}-{next}"))
        .clone()
}

/// Times about now; others were in the request.
fn time(found: &str) -> String {
    let near = |time: Timestamp| time.duration_since(Timestamp::now()).abs() < SignedDuration::from_hours(24);
    match found.parse() {
        Ok(time) if near(time) => if found.contains('.') {
            "now, in microseconds"
        } else {
            "now, in seconds"
        }
        .to_owned(),
        _ => found.to_owned(),
    }
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name)?.as_str().filter(|text| !text.is_empty())
}

fn is_collection(fields: &Map<String, Value>) -> bool {
    let kind = text(fields, "kind").unwrap_or_default();
    kind.ends_with("List") || kind == "Table" || fields.get("metadata").is_some_and(is_bookmark)
}

/// A bookmark has a revision and no name.
fn is_bookmark(metadata: &Value) -> bool {
    metadata.get("resourceVersion").is_some() && metadata.get("name").is_none()
}

/// Some checks of Kubernetes go through maps, so that what they find comes in any order.
fn unordered(status: &mut Map<String, Value>) {
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some((subject, errors)) = message.split_once("failed to create typed patch object ")
        && errors.contains("field not declared in schema")
    {
        // The first such field that it comes to ends its walk over a map.
        *message = format!("{subject}failed to create typed patch object: a field is not declared");
    }
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some((subject, errors)) = message.split_once(": errors:\n")
    {
        // It walks over maps in any order.
        let mut errors: Vec<_> = errors.split('\n').collect();
        errors.sort_unstable();
        *message = format!("{subject}: errors:\n{}", errors.join("\n"));
    }
    let Some(causes) = status.get_mut("details").and_then(|details| details.get_mut("causes")) else {
        return;
    };
    let Some(causes) = causes.as_array_mut().filter(|causes| causes.len() > 1) else {
        return;
    };
    causes.sort_by_key(Value::to_string);
    let causes = causes.clone();
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some((subject, told)) = message.split_once(" is invalid: ")
        && is_told_of(told, &causes)
    {
        *message = format!("{subject} is invalid: (the causes)");
    }
}

/// Whether these words are a list of these causes, in whichever order, and nothing else. One that is twice there is told once.
fn is_told_of(words: &str, causes: &[Value]) -> bool {
    let of = |cause: &Value, part: &str| cause[part].as_str().unwrap_or_default().to_owned();
    let told = causes
        .iter()
        .map(|cause| format!("{}: {}", of(cause, "field"), of(cause, "message")));
    let mut told: Vec<_> = told.collect::<BTreeSet<_>>().into_iter().collect();
    // One may begin as another does.
    told.sort_by_key(|words| Reverse(words.len()));
    let mut rest = words.to_owned();
    for one in told {
        let Some((before, after)) = rest.split_once(&one) else {
            return false;
        };
        rest = format!("{before}{after}");
    }
    rest.chars().all(|left| "[], ".contains(left))
}

/// Resources by their names, so that one that is missing is told alone.
fn named(list: &mut Map<String, Value>) {
    if let Some(Value::Array(resources)) = list.get("resources") {
        let named = |resource: &Value| Some((resource["name"].as_str()?.to_owned(), resource.clone()));
        let resources: Map<_, _> = resources.iter().filter_map(named).collect();
        list.insert("resources".into(), Value::Object(resources));
    }
}

/// The lists within aggregated discovery, from the outermost on, and where their entries have their names.
const DISCOVERED: [(&str, &str); 4] = [
    ("items", "/metadata/name"),
    ("versions", "/version"),
    ("resources", "/resource"),
    ("subresources", "/subresource"),
];

/// The entries of lists within each other by their names, each with those that it comes after: so one that is missing is
/// told alone, and so are two that have changed places.
fn by_names(parent: &mut Map<String, Value>, lists: &[(&str, &str)]) {
    let Some(((list, name), inner)) = lists.split_first() else {
        return;
    };
    let mut named = Map::new();
    let entries = parent.remove(*list).unwrap_or_default();
    for entry in entries.as_array().into_iter().flatten() {
        let known = entry.pointer(name).and_then(Value::as_str).unwrap_or_default();
        // Definitions of other cases come and go meanwhile.
        if known.ends_with(".example.com") {
            continue;
        }
        let mut fields = entry.as_object().cloned().unwrap_or_default();
        by_names(&mut fields, inner);
        let earlier: Map<_, _> = named.keys().map(|name: &String| (name.clone(), true.into())).collect();
        fields.insert("after".into(), earlier.into());
        named.insert(known.to_owned(), fields.into());
    }
    parent.insert((*list).to_owned(), named.into());
}

/// The age of an object depends on when one looks.
fn ageless(table: &mut Map<String, Value>) {
    static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\d+[smh]\d*s?$").expect("it is an expression"));
    for row in table
        .get_mut("rows")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        for cell in row.get_mut("cells").and_then(Value::as_array_mut).into_iter().flatten() {
            if cell.as_str().is_some_and(|cell| AGE.is_match(cell)) {
                *cell = "age".into();
            }
        }
    }
}

/// The revisions of objects.
fn gather(value: &Value, revisions: &mut BTreeSet<u64>) {
    match value {
        Value::Object(fields) => {
            let collection = is_collection(fields);
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "resourceVersion" => {
                        revisions.extend(text.parse::<u64>().ok().filter(|revision| *revision > 0));
                    }
                    _ if collection && name == "metadata" => {}
                    other => gather(other, revisions),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| gather(item, revisions)),
        _ => {}
    }
}
