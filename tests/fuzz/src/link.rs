//! The edge link: frames of both directions.

use std::fmt;

use skerry_edge::{
    Downstream, ReportPayload, Upstream, limits,
    message::{MessageError, Received},
};

use crate::Came;

pub(crate) fn upstream(data: &[u8]) -> Came {
    let can_be_written = |frame: &Upstream| {
        // What a newer node says is refused, never sent on.
        let Upstream::Report { report, .. } = frame else {
            return true;
        };
        !matches!(report.payload, ReportPayload::Unknown { .. })
    };
    frame(data, limits::MAX_UPSTREAM, Upstream::decode, |frame| {
        (frame.name(), can_be_written(frame).then(|| frame.encode().unwrap()))
    })
}

pub(crate) fn downstream(data: &[u8]) -> Came {
    frame(data, limits::MAX_DOWNSTREAM, Downstream::decode, |frame| {
        (frame.name(), Some(frame.encode().unwrap()))
    })
}

/// Reads a frame; what was read is the same once it is written and read again.
fn frame<F: PartialEq + fmt::Debug>(
    data: &[u8],
    limit: usize,
    decode: impl Fn(&str) -> Result<Received<F>, MessageError>,
    encode: impl Fn(&F) -> (&'static str, Option<String>),
) -> Came {
    let Ok(text) = std::str::from_utf8(data) else {
        return Came::refused("not text");
    };
    let frame = match decode(text) {
        Err(error) => return Came::refused(error),
        Ok(Received::Unknown(_)) => return Came::taken("of a newer peer"),
        Ok(Received::Message(frame)) => frame,
    };
    assert!(text.len() <= limit, "a frame above the limit was read");
    assert!(nests(text) <= limits::MAX_DEPTH, "a frame that nests too deep was read");
    let (name, written) = encode(&frame);
    // One whose text grows at the limit is refused by the next one, as it should be.
    if let Some(written) = written.filter(|written| written.len() <= limit) {
        match decode(&written) {
            Ok(Received::Message(again)) => assert_eq!(frame, again, "read differently once written: {written}"),
            other => panic!("written as {written}, read as {other:?}"),
        }
    }
    Came::taken(name)
}

/// How deep a JSON text nests, counted in another way than the decoder's: by taking its strings away first.
fn nests(text: &str) -> usize {
    let (mut levels, mut most) = (0_usize, 0);
    let mut rest = text;
    while let Some(at) = rest.find(['"', '{', '[', '}', ']']) {
        let (_, from) = rest.split_at(at);
        rest = match from.as_bytes().first() {
            Some(b'"') => after_string(from),
            Some(b'{' | b'[') => {
                levels += 1;
                from.get(1..).unwrap_or_default()
            }
            _ => {
                levels = levels.saturating_sub(1);
                from.get(1..).unwrap_or_default()
            }
        };
        most = most.max(levels);
    }
    most
}

/// What follows the string that a text begins with.
fn after_string(text: &str) -> &str {
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            '"' => return text.get(at + 1..).unwrap_or_default(),
            _ => {}
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_do_not_nest() {
        for (text, levels) in [
            ("", 0),
            ("[]", 1),
            (r#"{"a":[1,{"b":2}]}"#, 3),
            (r#"["[[[","\"[[["]"#, 1),
            ("[\"[[", 1),
            ("]]][", 1),
        ] {
            assert_eq!(nests(text), levels, "{text}");
        }
    }
}
