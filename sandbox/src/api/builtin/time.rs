//! Times as built-in objects write them: read strictly, told in UTC, with whole seconds or with microseconds.

use jiff::Timestamp;

/// The parts of a time, in the words in which a failure names them, and how long each is.
const PARTS: [(&str, usize); 11] = [
    ("2006", 4),
    ("-", 1),
    ("01", 2),
    ("-", 1),
    ("02", 2),
    ("T", 1),
    ("15", 2),
    (":", 1),
    ("04", 2),
    (":", 1),
    ("05", 2),
];

/// Microseconds, and the zone.
const MICROSECONDS: &str = ".000000";
const ZONE: &str = "Z07:00";

/// A time as it is stored. The error is a sentence.
pub(super) fn canonical(text: &str, micro: bool) -> Result<String, String> {
    let fraction = if micro { MICROSECONDS } else { "" };
    let failed = |rest: &str, part: &str| {
        Err(format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05{fraction}{ZONE}\": cannot parse {rest:?} as {part:?}"
        ))
    };
    let mut rest = text;
    for (part, length) in PARTS {
        let split = rest.split_at_checked(length);
        let Some((_, after)) = split.filter(|(found, _)| fits(found, part)) else {
            return failed(rest, part);
        };
        rest = after;
    }
    if micro {
        let digits = rest
            .strip_prefix('.')
            .map_or(0, |rest| rest.bytes().take(6).filter(u8::is_ascii_digit).count());
        if digits < MICROSECONDS.len() - 1 {
            return failed(rest, MICROSECONDS);
        }
    }
    let Ok(time) = text.parse::<Timestamp>() else {
        return failed(rest.get(fraction.len()..).unwrap_or_default(), ZONE);
    };
    let layout = if micro {
        "%Y-%m-%dT%H:%M:%S.%6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    Ok(time.strftime(layout).to_string())
}

fn fits(found: &str, part: &str) -> bool {
    if part.bytes().all(|byte| byte.is_ascii_digit()) {
        found.bytes().all(|byte| byte.is_ascii_digit())
    } else {
        found == part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_utc() {
        assert_eq!(
            canonical("2026-01-01T01:00:00+01:00", false).unwrap(),
            "2026-01-01T00:00:00Z"
        );
        assert_eq!(
            canonical("2026-01-01T00:00:00.9Z", false).unwrap(),
            "2026-01-01T00:00:00Z"
        );
        assert_eq!(
            canonical("2026-01-01T00:00:00.123456Z", true).unwrap(),
            "2026-01-01T00:00:00.123456Z"
        );
    }

    #[test]
    fn failures_name_the_part_at_fault() {
        for (text, micro, end) in [
            ("2026-01-01T00:00:00Z", true, "cannot parse \"Z\" as \".000000\""),
            ("2026-01-01T00:00:00.1Z", true, "cannot parse \".1Z\" as \".000000\""),
            ("wrong", true, "cannot parse \"wrong\" as \"2006\""),
            ("2026-01-01", false, "cannot parse \"\" as \"T\""),
            ("2026-01-01T00:00:00", false, "cannot parse \"\" as \"Z07:00\""),
        ] {
            let error = canonical(text, micro).unwrap_err();
            assert!(error.ends_with(end), "{error}");
        }
    }
}
