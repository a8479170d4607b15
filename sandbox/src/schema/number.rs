//! Numbers in the notation in which the API server's messages and answers show them.

use serde_json::{Number, Value};

/// A floating-point number as Go prints it: no trailing `.0`, an exponent from 1e21 on.
pub(crate) fn float(n: f64) -> String {
    if n.abs() >= 1e21 || (n != 0.0 && n.abs() < 1e-4) {
        let text = format!("{n:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |d| ('-', d));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{n}")
}

/// Makes whole numbers integers, everywhere in a value: Go writes a float without a fraction like one, and whatever is kept was
/// written by it. Until then such a float is another value than the integer. Those beyond the integers stay.
pub(crate) fn make_whole(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = whole(number) {
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Object(fields) => fields.values_mut().for_each(make_whole),
        _ => {}
    }
}

/// Whether the same is kept of both.
pub(crate) fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || whole(a).is_some_and(|a| whole(b) == Some(a)),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            let both = |(name, a): (&String, &Value)| b.get(name).is_some_and(|b| is_same(a, b));
            a.len() == b.len() && a.iter().all(both)
        }
        (a, b) => a == b,
    }
}

fn whole(number: &Number) -> Option<i64> {
    match number.as_i64() {
        Some(whole) => Some(whole),
        None => number.as_f64().map(float).and_then(|text| text.parse().ok()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn floats_are_printed_as_go_does() {
        for (n, text) in [
            (1.0, "1"),
            (0.5, "0.5"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-07"),
            (1e20, "100000000000000000000"),
        ] {
            assert_eq!(float(n), text);
        }
    }

    #[test]
    fn a_whole_number_becomes_an_integer_wherever_it_is() {
        let mut value = json!({"a": [1000.0, {"b": -3.0}], "c": 1.5, "d": 1e300, "e": "1.0", "f": 7});
        make_whole(&mut value);
        let whole = r#"{"a":[1000,{"b":-3}],"c":1.5,"d":1e+300,"e":"1.0","f":7}"#;
        assert_eq!(value.to_string(), whole);
    }
}
