//! How long ago something was, as people read it.

use jiff::Timestamp;
use serde_json::Value;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The time since a timestamp (RFC 3339) in a field; `<unknown>` where there is none.
pub(super) fn since(time: Option<&Value>, now: Timestamp) -> String {
    match time.and_then(Value::as_str) {
        None | Some("") => "<unknown>".into(),
        Some(text) => text
            .parse()
            .map_or_else(|_| "<invalid>".into(), |then: Timestamp| duration(then, now)),
    }
}

/// The time between two moments, in the two largest units that matter.
pub(super) fn duration(from: Timestamp, to: Timestamp) -> String {
    let whole = to.as_second() - from.as_second();
    // Whole seconds, rounded towards zero.
    let seconds = if to.subsec_nanosecond() < from.subsec_nanosecond() && whole > 0 {
        whole - 1
    } else {
        whole
    };
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{big}{big_unit}")
        } else {
            format!("{big}{big_unit}{small}{small_unit}")
        }
    };
    match seconds {
        // Clocks differ a little.
        ..=-2 => "<invalid>".into(),
        -1 => "0s".into(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s / MINUTE, "m", s % MINUTE, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s / HOUR, "h", s % HOUR / MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s / DAY, "d", s % DAY / HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s / YEAR, "y", s % YEAR / DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;

    #[test]
    fn ages_read_as_kubectl_users_know_them() {
        let then: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (3600, "60m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 90, "3h1m"),
            (26 * HOUR, "26h"),
            (3 * DAY + HOUR, "3d1h"),
            (100 * DAY, "100d"),
            (3 * YEAR + DAY, "3y1d"),
            (9 * YEAR, "9y"),
        ] {
            assert_eq!(duration(then, then + SignedDuration::from_secs(seconds)), text);
        }
        assert_eq!(since(None, then), "<unknown>");
        assert_eq!(since(Some(&json!("soon")), then), "<invalid>");
    }
}
