//! The answer to a digest while it comes in.

use std::collections::BTreeMap;

use crate::{
    digest, limits,
    object::{ItemKey, Row},
};

/// What the node has said so far.
#[derive(Debug)]
pub(super) struct Answer {
    /// For each chunk, whether the node found that it differs.
    pub(super) differs: Vec<bool>,
    /// What the node holds in those.
    pub(super) rows: BTreeMap<ItemKey, Row>,
}

impl Answer {
    /// To a digest of so many chunks.
    pub(super) fn of(chunks: usize) -> Self {
        Self {
            differs: vec![false; chunks],
            rows: BTreeMap::new(),
        }
    }

    /// Takes one frame of the answer, or says what is wrong with it.
    pub(super) fn take(&mut self, chunks: Vec<u32>, rows: Vec<Row>) -> Result<(), String> {
        for chunk in chunks {
            let differs = usize::try_from(chunk)
                .ok()
                .and_then(|chunk| self.differs.get_mut(chunk));
            *differs.ok_or_else(|| format!("chunk {chunk} is not in the digest"))? = true;
        }
        for row in rows {
            if self.differs.get(digest::chunk_of(&row.key, self.differs.len())) != Some(&true) {
                return Err(format!("{} is in none of the chunks that differ", row.key));
            }
            self.rows.insert(row.key.clone(), row);
        }
        if self.rows.len() > limits::MAX_ITEMS {
            return Err(format!("a node holds at most {} items", limits::MAX_ITEMS));
        }
        Ok(())
    }
}
