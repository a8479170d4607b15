//! Quantities in the one way of writing that Kubernetes gives back: `1000m` is `1`, `1024Ki` is `1Mi`.

/// Billionths in one: the finest that is kept.
const NANO: i128 = 1_000_000_000;

/// What is said of text that is no quantity.
pub(crate) const MALFORMED: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// How a quantity was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    /// Powers of 1024.
    Binary,
    /// Powers of 1000, by letter.
    Decimal,
    /// Powers of 1000, by exponent.
    Exponent,
}

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// From billionths on.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// The canonical form; `None` if the text is no quantity.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let (nanos, format) = parse(text)?;
    if nanos == 0 {
        return Some("0".into());
    }
    let whole = nanos % NANO == 0;
    if format == Format::Binary && whole && (nanos / NANO).abs() >= 1024 {
        let (mut value, mut power) = (nanos / NANO, 0);
        while value % 1024 == 0 && power + 1 < BINARY.len() {
            value /= 1024;
            power += 1;
        }
        return Some(format!("{value}{}", BINARY.get(power)?));
    }
    let (mut value, mut power) = (nanos, 0);
    while value % 1000 == 0 && power + 1 < DECIMAL.len() {
        value /= 1000;
        power += 1;
    }
    if format == Format::Exponent {
        let exponent = i32::try_from(power).ok()? * 3 - 9;
        return Some(if exponent == 0 {
            value.to_string()
        } else {
            format!("{value}e{exponent}")
        });
    }
    Some(format!("{value}{}", DECIMAL.get(power)?))
}

/// Which of two quantities is larger; text that is none counts as nothing.
pub(crate) fn compare(a: &str, b: &str) -> std::cmp::Ordering {
    let value = |text| parse(text).map_or(0, |(nanos, _)| nanos);
    value(a).cmp(&value(b))
}

/// The value in billionths, rounded up.
fn parse(text: &str) -> Option<(i128, Format)> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (base, power, format) = scale(suffix)?;
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let mut numerator = digits.checked_mul(NANO)?;
    let mut denominator = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let factor = |power: u32| i128::from(base).checked_pow(power);
    if power >= 0 {
        numerator = numerator.checked_mul(factor(power.unsigned_abs())?)?;
    } else {
        denominator = denominator.checked_mul(factor(power.unsigned_abs())?)?;
    }
    let rounded = numerator / denominator + i128::from(numerator % denominator != 0);
    Some((if negative { -rounded } else { rounded }, format))
}

/// Base, power and format of a suffix.
fn scale(suffix: &str) -> Option<(u32, i32, Format)> {
    let place = |list: &[&str]| {
        list.iter()
            .position(|known| *known == suffix)
            .and_then(|at| i32::try_from(at).ok())
    };
    if let Some(at) = place(&DECIMAL) {
        return Some((1000, at - 3, Format::Decimal));
    }
    if let Some(at) = place(&BINARY) {
        return Some((1024, at, Format::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((10, exponent, Format::Exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_to_write_each() {
        for (text, wanted) in [
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("1", "1"),
            ("1000", "1k"),
            ("0", "0"),
            ("0Mi", "0"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("1000Ki", "1000Ki"),
            ("0.5Ki", "512"),
            ("128Mi", "128Mi"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("-100m", "-100m"),
            ("+2", "2"),
            ("100000", "100k"),
            ("0.1Ki", "102400m"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(wanted), "{text}");
        }
        for text in ["", "Mi", "1.2.3", "1Zi", "abc", "1 Gi", "."] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}
