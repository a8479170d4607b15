//! How both ends find out what differs between what a node holds and what it should hold: rows are spread over chunks
//! by the hash of their key, and a chunk is compared by one hash.
//!
//! Decides neither who sends what nor what becomes of a difference.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

use crate::{
    limits,
    object::{ItemKey, Row, from_hex},
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
    let mut hasher = Sha256::new();
    for text in [
        &*object.kind,
        &object.namespace,
        &object.name,
        secret.as_deref().unwrap_or_default(),
    ] {
        update(&mut hasher, text);
    }
    let [a, b, c, d, ..] = <[u8; 32]>::from(hasher.finalize());
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
        for text in [
            &*object.kind,
            &object.namespace,
            &object.name,
            secret.as_deref().unwrap_or_default(),
            uid,
        ] {
            update(&mut hasher, text);
        }
        hasher.update(generation.to_be_bytes());
        hasher.update(hash.as_bytes());
    }
    let mut short = ChunkHash::default();
    for (to, from) in short.0.iter_mut().zip(<[u8; 32]>::from(hasher.finalize())) {
        *to = from;
    }
    short
}

/// Adds a text so that no two lists of texts hash alike.
fn update(hasher: &mut Sha256, text: &str) {
    hasher.update((text.len() as u64).to_be_bytes());
    hasher.update(text);
}
