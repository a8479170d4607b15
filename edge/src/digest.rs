//! How both ends find out what differs between what a node holds and what it should hold: rows are spread over chunks
//! by the hash of their key, and a chunk is compared by one hash.
//!
//! Decides neither who sends what nor what becomes of a difference.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

use crate::{
    hash::{ContentHash, from_hex},
    limits,
    message::Upstream,
    object::{ItemKey, ObjectKey, Row},
};

/// The hash of a chunk's rows, in order of their keys: the first 16 bytes of a SHA-256, as 32 hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ChunkHash([u8; 16]);

impl fmt::Debug for ChunkHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for ChunkHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self:?}"))
    }
}

impl<'de> Deserialize<'de> for ChunkHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        from_hex(&text).map(Self).map_err(de::Error::custom)
    }
}

/// How many chunks suit so many items: a power of two, at most [`limits::MAX_CHUNKS`].
pub fn chunk_count(items: usize) -> usize {
    items
        .div_ceil(limits::CHUNK_ITEMS)
        .next_power_of_two()
        .min(limits::MAX_CHUNKS)
}

/// In which of `chunks` chunks a key belongs.
pub fn chunk_of(key: &ItemKey, chunks: usize) -> usize {
    let ItemKey { object, secret } = key;
    let texts = [
        &*object.kind,
        &object.namespace,
        &object.name,
        secret.as_deref().unwrap_or_default(),
    ];
    let [a, b, c, d, ..] = *ContentHash::of_texts(texts).as_bytes();
    usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or_default() % chunks.max(1)
}

/// The hashes of `chunks` chunks of these rows, in whatever order they come.
pub fn chunk_hashes<'a>(rows: impl IntoIterator<Item = &'a Row>, chunks: usize) -> Vec<ChunkHash> {
    let mut chunked = vec![Vec::new(); chunks];
    for row in rows {
        if let Some(chunk) = chunked.get_mut(chunk_of(&row.key, chunks)) {
            chunk.push(row);
        }
    }
    chunked.into_iter().map(hash_chunk).collect()
}

fn hash_chunk(mut rows: Vec<&Row>) -> ChunkHash {
    rows.sort_unstable();
    let mut hasher = Sha256::new();
    for Row {
        key: ItemKey { object, secret },
        uid,
        generation,
        hash,
    } in rows
    {
        let texts = [
            &*object.kind,
            &object.namespace,
            &object.name,
            secret.as_deref().unwrap_or_default(),
            uid,
        ];
        hasher.update(ContentHash::of_texts(texts).as_bytes());
        hasher.update(generation.to_be_bytes());
        hasher.update(hash.as_bytes());
    }
    let mut short = ChunkHash::default();
    for (to, from) in short.0.iter_mut().zip(<[u8; 32]>::from(hasher.finalize())) {
        *to = from;
    }
    short
}

/// The frames that answer a digest: what is held in the chunks whose hashes differ, cut to messages of a bounded size.
pub fn answer(theirs: &[ChunkHash], rows: &[Row]) -> Vec<Upstream> {
    let ours = chunk_hashes(rows, theirs.len());
    let differs: Vec<bool> = ours.iter().zip(theirs).map(|(ours, theirs)| ours != theirs).collect();
    let chunks = differs
        .iter()
        .zip(0_u32..)
        .filter_map(|(differs, chunk)| differs.then_some(chunk))
        .collect();
    let held = rows
        .iter()
        .filter(|row| differs.get(chunk_of(&row.key, theirs.len())) == Some(&true));

    let mut frames = vec![(chunks, Vec::new())];
    let mut bytes = 0;
    for row in held {
        bytes += size(row);
        if bytes > limits::DIGEST_ROWS_BYTES {
            bytes = size(row);
            frames.push((Vec::new(), Vec::new()));
        }
        if let Some((_, rows)) = frames.last_mut() {
            rows.push(row.clone());
        }
    }
    let last = frames.len() - 1;
    let frame = |(at, (chunks, rows))| Upstream::Rows {
        chunks,
        rows,
        more: at < last,
    };
    frames.into_iter().enumerate().map(frame).collect()
}

/// Bytes of a row in a frame, at most: names need no escapes, and the rest is of fixed size.
fn size(
    Row {
        key: ItemKey { object, secret },
        uid,
        generation: _,
        hash: _,
    }: &Row,
) -> usize {
    let ObjectKey { kind, namespace, name } = object;
    kind.len() + namespace.len() + name.len() + secret.as_ref().map_or(0, String::len) + uid.len() + 200
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Downstream, Epoch, message::Start};

    #[test]
    fn a_digest_has_so_many_chunks_at_most_and_they_fit_a_message() {
        let counts = [
            0,
            limits::CHUNK_ITEMS,
            limits::CHUNK_ITEMS + 1,
            limits::MAX_ITEMS,
            usize::MAX,
        ];
        assert_eq!(counts.map(chunk_count), [1, 1, 2, 2048, limits::MAX_CHUNKS]);
        let welcome = Downstream::Welcome {
            cluster: "c".repeat(limits::MAX_NAME),
            epoch: Epoch {
                lease: "l".repeat(limits::MAX_NAME),
                transitions: u64::MAX,
                made: None,
            },
            start: Start::Digest {
                chunks: chunk_hashes([], chunk_count(usize::MAX)),
            },
            reports_per_second: Some(u32::MAX),
        };
        let bytes = welcome.encode().unwrap().len();
        assert!(bytes < limits::MAX_DOWNSTREAM / 10, "{bytes}");
    }
}
