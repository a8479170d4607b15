//! The string formats that the API server checks. Formats that it does not know hold for every string.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::LazyLock,
};

use base64::Engine as _;
use regex::Regex;

static UUID: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$").ok());
static HOSTNAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$").ok()
});

/// Formats that the API server knows of strings. It forgets all others, those of numbers among them.
const KNOWN: [&str; 24] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "date-time",
];

pub(crate) fn is_known(format: &str) -> bool {
    KNOWN.contains(&format) || format == "datetime"
}

pub(crate) fn holds(format: &str, text: &str) -> bool {
    let matches = |regex: &Option<Regex>| regex.as_ref().is_none_or(|r| r.is_match(text));
    match format {
        "date" => text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10,
        // As lenient about the separator as RFC 3339 is; an offset is needed.
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "duration" => is_duration(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "uuid" => matches(&UUID),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "uri" => text
            .parse::<http::Uri>()
            .is_ok_and(|uri| uri.scheme().is_some() || text.starts_with('/')),
        "hostname" => matches(&HOSTNAME),
        "email" => text
            .split_once('@')
            .is_some_and(|(user, host)| !user.is_empty() && !host.is_empty()),
        _ => true,
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return false;
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

/// Go's durations, such as `1h30m`, and words such as `3 days`.
fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 7] = ["ns", "us", "µs", "ms", "s", "m", "h"];
    const WORDS: [&str; 16] = [
        "ns", "us", "µs", "ms", "s", "m", "h", "d", "w", "second", "minute", "hour", "day", "week", "milli", "micro",
    ];
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    if body == "0" {
        return true;
    }
    let mut rest = body;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let known = UNITS.contains(&unit) || WORDS.contains(&unit.trim().trim_end_matches('s'));
        if number.parse::<f64>().is_err() || !known {
            return false;
        }
        parts += 1;
        rest = tail;
    }
    parts > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_tell_right_from_wrong() {
        for (format, right, wrong) in [
            ("date-time", "2026-01-02T03:04:05Z", "2026-01-02"),
            ("date", "2026-01-02", "2026-13-02"),
            ("duration", "1h30m", "1x"),
            ("byte", "YQ==", "?"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
            ("ipv4", "192.0.2.1", "192.0.2"),
            ("ipv6", "2001:db8::1", "192.0.2.1"),
            ("cidr", "192.0.2.0/24", "192.0.2.0/33"),
            ("uri", "http://a.test/x", "a b"),
        ] {
            assert!(holds(format, right), "{format} {right}");
            assert!(!holds(format, wrong), "{format} {wrong}");
        }
        assert!(holds("made-up", "anything"));
    }
}
