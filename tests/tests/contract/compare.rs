//! Two trees, field by field.

use std::{collections::BTreeSet, fmt};

use serde_json::{Value, json};

/// How much of a value is shown.
const SHOWN: usize = 1200;

/// A field that is not the same on both servers.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// The number of the step in it.
    pub step: usize,
    /// What was asked.
    pub ask: String,
    /// The status code of Kubernetes' answer.
    pub code: u16,
    /// Where in the answer, as a JSON pointer whose first part is `type`, `warnings` or `body`; empty where the codes differ.
    pub at: String,
    /// What Kubernetes has there.
    pub real: Option<Value>,
    /// What the sandbox has there.
    pub sandbox: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<Value>| match value {
            None => "(nothing)".to_owned(),
            Some(value) => value.to_string().chars().take(SHOWN).collect(),
        };
        write!(
            f,
            "step {} {}: {}\n    Kubernetes: {}\n    sandbox:    {}",
            self.step,
            self.ask,
            self.at,
            show(&self.real),
            show(&self.sandbox)
        )
    }
}

/// What differs, the request left open.
pub fn trees(real: &Value, sandbox: &Value) -> Vec<Difference> {
    let code = real["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let code = code.unwrap_or_default();
    // Of answers that are of another kind altogether, the fields say little.
    if real["code"] != sandbox["code"] {
        let short = |answer: &Value| match &answer["body"]["message"] {
            Value::Null => json!({"code": answer["code"]}),
            message => json!({"code": answer["code"], "message": message}),
        };
        return vec![Difference {
            code,
            real: Some(short(real)),
            sandbox: Some(short(sandbox)),
            ..Difference::default()
        }];
    }
    let mut found = Vec::new();
    walk("", Some(real), Some(sandbox), &mut found);
    for difference in &mut found {
        difference.code = code;
    }
    found
}

fn walk(at: &str, real: Option<&Value>, sandbox: Option<&Value>, found: &mut Vec<Difference>) {
    match (real, sandbox) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let names: BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for name in names {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                walk(&format!("{at}/{escaped}"), a.get(name), b.get(name), found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for index in 0..a.len().max(b.len()) {
                walk(&format!("{at}/{index}"), a.get(index), b.get(index), found);
            }
        }
        (real, sandbox) if real == sandbox => {}
        (real, sandbox) => found.push(Difference {
            at: at.to_owned(),
            real: real.cloned(),
            sandbox: sandbox.cloned(),
            ..Difference::default()
        }),
    }
}
