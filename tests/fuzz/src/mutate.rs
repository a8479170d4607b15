//! Makes inputs out of inputs: by bits and bytes, by tokens of what was seen before, and by what decoders stumble over.
//!
//! It knows no format. What it has of one are the tokens of the seeds: words, numbers and brackets, as they are in JSON, YAML
//! and PEM alike.

use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

/// No input grows beyond: what is slow to read is not read often.
pub const LONGEST: usize = 64 * 1024;
/// Inputs that are kept because they went another way than all before.
const KEPT: usize = 512;
/// Tokens of seeds that are kept.
const TOKENS: usize = 4096;
/// Changes to one input at most.
const CHANGES: u32 = 6;

/// What decoders stumble over, whatever they decode.
const STUMBLES: &[&[u8]] = &[
    b"null",
    b"true",
    b"-1",
    b"0",
    b"18446744073709551615",
    b"18446744073709551616",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"1e999",
    b"1e-999",
    b"0.1",
    b"\"\"",
    b"{}",
    b"[]",
    b"{",
    b"[",
    b"}",
    b"]",
    b"\"",
    b"\\",
    b":",
    b",",
    b"\\u0000",
    b"\\ud800",
    b"\xff",
    b"\xc3\x28",
    b"\0",
    b"\n",
    b"\r\n",
    b"---\n",
    b"&a",
    b"*a",
    b"../",
    b"/",
    b"..",
    b"%2e%2e%2f",
    b"-----BEGIN CERTIFICATE-----\n",
    b"-----END CERTIFICATE-----\n",
    b"9999-12-31T23:59:59Z",
    b"-009999-01-01T00:00:00Z",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
];

/// Makes inputs, the same ones from the same seeds and number.
#[derive(Debug)]
pub struct Mutator {
    random: StdRng,
    pool: Vec<Vec<u8>>,
    /// So many at its beginning are seeds, or were taken.
    good: usize,
    tokens: Vec<Vec<u8>>,
}

impl Mutator {
    /// From these inputs; an empty one where there are none.
    pub fn new(seeds: Vec<Vec<u8>>, number: u64) -> Self {
        let mut tokens: Vec<_> = seeds.iter().flat_map(|seed| tokens(seed)).map(<[u8]>::to_vec).collect();
        tokens.sort();
        tokens.dedup();
        tokens.truncate(TOKENS);
        let pool = if seeds.is_empty() { vec![Vec::new()] } else { seeds };
        Self {
            random: StdRng::seed_from_u64(number),
            good: pool.len(),
            pool,
            tokens,
        }
    }

    /// Keeps an input, to make others of: it went a way that none went before, and was taken or not.
    pub fn keep(&mut self, input: Vec<u8>, taken: bool) {
        if self.pool.len() >= KEPT {
            return;
        }
        self.pool.push(input);
        if taken {
            let last = self.pool.len() - 1;
            self.pool.swap(self.good, last);
            self.good += 1;
        }
    }

    /// The next input.
    pub fn make(&mut self) -> Vec<u8> {
        // What was taken, more often than what was refused in another way than all before: that gets no further.
        let from = if self.random.random_bool(0.8) {
            self.good
        } else {
            self.pool.len()
        };
        let mut input = self
            .pool
            .get(self.random.random_range(0..from.max(1)))
            .cloned()
            .unwrap_or_default();
        let most = if self.random.random_bool(0.5) { 1 } else { CHANGES };
        for _ in 0..self.random.random_range(1..=most) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        match self.random.random_range(0..12) {
            0 => self.flip(input),
            1 => self.overwrite(input),
            2 => drop(input.drain(self.range(input.len()))),
            3 => self.repeat(input),
            4 => self.splice(input),
            5 => input.truncate(self.place(input.len())),
            6 => self.nest(input),
            7 => self.number(input),
            8 | 9 => self.replace_token(input),
            10 => {
                let stumble = STUMBLES.choose(&mut self.random).copied().unwrap_or_default();
                self.insert(input, stumble);
            }
            _ => {
                let token = self.tokens.choose(&mut self.random).cloned().unwrap_or_default();
                self.insert(input, &token);
            }
        }
    }

    fn place(&mut self, length: usize) -> usize {
        self.random.random_range(0..=length)
    }

    /// A short one more often than a long one.
    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let begin = self.place(length);
        let most = if self.random.random_bool(0.8) { 16 } else { length };
        let count = self.random.random_range(0..=most.min(length - begin));
        begin..begin + count
    }

    fn insert(&mut self, input: &mut Vec<u8>, bytes: &[u8]) {
        let at = self.place(input.len());
        input.splice(at..at, bytes.iter().copied());
    }

    fn flip(&mut self, input: &mut [u8]) {
        let bit = 1 << self.random.random_range(0..8);
        let at = self.place(input.len());
        if let Some(byte) = input.get_mut(at) {
            *byte ^= bit;
        }
    }

    fn overwrite(&mut self, input: &mut [u8]) {
        let range = self.range(input.len());
        let random = &mut self.random;
        input.get_mut(range).unwrap_or_default().fill_with(|| random.random());
    }

    /// The same again, and again: lists grow, keys are there twice.
    fn repeat(&mut self, input: &mut Vec<u8>) {
        let range = self.range(input.len());
        let bytes = input.get(range.clone()).unwrap_or_default().to_vec();
        let times = if self.random.random_bool(0.9) {
            1
        } else {
            self.random.random_range(2..200)
        };
        let times = times.min(LONGEST / bytes.len().max(1));
        input.splice(range.end..range.end, bytes.repeat(times));
    }

    /// A part of another input in the place of one of this.
    fn splice(&mut self, input: &mut Vec<u8>) {
        let other = self.pool.choose(&mut self.random).cloned().unwrap_or_default();
        let (from, to) = (self.range(other.len()), self.range(input.len()));
        input.splice(to, other.get(from).unwrap_or_default().iter().copied());
    }

    /// Many brackets, closed or not.
    fn nest(&mut self, input: &mut Vec<u8>) {
        let most = if self.random.random_bool(0.9) { 150 } else { 20_000 };
        let levels = self.random.random_range(1..most);
        let (open, close) = *[("[", "]"), ("{\"a\":", "}"), ("(", ")"), ("- ", "")]
            .choose(&mut self.random)
            .unwrap_or(&("[", "]"));
        let range = self.range(input.len());
        let within = input.get(range.clone()).unwrap_or_default().to_vec();
        let mut nested = open.repeat(levels).into_bytes();
        nested.extend(within);
        if self.random.random_bool(0.7) {
            nested.extend(close.repeat(levels).bytes());
        }
        input.splice(range, nested);
    }

    /// Another number in the place of one.
    fn number(&mut self, input: &mut Vec<u8>) {
        let numbers: Vec<_> = spans(input)
            .filter(|span| input.get(span.start).is_some_and(u8::is_ascii_digit))
            .collect();
        let Some(span) = numbers.choose(&mut self.random).cloned() else {
            return;
        };
        let number = match self.random.random_range(0..4) {
            0 => self.random.random_range(0..300_u64).to_string(),
            1 => self.random.random::<u64>().to_string(),
            2 => self.random.random::<i64>().to_string(),
            _ => u64::MAX.rotate_right(self.random.random_range(0..64)).to_string(),
        };
        input.splice(span, number.bytes());
    }

    /// A token of a seed, or a stumble, in the place of a token.
    fn replace_token(&mut self, input: &mut Vec<u8>) {
        let all: Vec<_> = spans(input).collect();
        let Some(span) = all.choose(&mut self.random).cloned() else {
            return;
        };
        let token = if self.random.random_bool(0.7) {
            self.tokens.choose(&mut self.random).cloned().unwrap_or_default()
        } else {
            STUMBLES.choose(&mut self.random).copied().unwrap_or_default().to_vec()
        };
        input.splice(span, token);
    }
}

/// The tokens of an input.
fn tokens(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    spans(input)
        .filter_map(|span| input.get(span))
        .filter(|token| token.len() < 256)
}

/// Where words and quoted texts are, and every other byte that is no space.
fn spans(input: &[u8]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+');
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = input.get(at..)?;
        let begin = at + rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let rest = input.get(begin..)?;
        let length = match rest.first()? {
            b'"' => rest
                .iter()
                .skip(1)
                .position(|&byte| byte == b'"')
                .map_or(1, |end| end + 2),
            byte if is_word(byte) => rest.iter().position(|byte| !is_word(byte)).unwrap_or(rest.len()),
            _ => 1,
        };
        at = begin + length;
        Some(begin..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_words_quoted_texts_and_single_bytes() {
        let found: Vec<_> = tokens(br#"{"a b": -1.5, x-y:["#)
            .map(|token| String::from_utf8_lossy(token).into_owned())
            .collect();
        assert_eq!(found, ["{", "\"a b\"", ":", "-1.5", ",", "x-y", ":", "["]);
        assert_eq!(tokens(b"\"open").count(), 2);
        assert_eq!(tokens(b" \n").count(), 0);
    }

    #[test]
    fn the_same_number_makes_the_same_inputs_and_another_makes_others() {
        let made = |number| {
            let mut mutator = Mutator::new(vec![b"{\"a\": [1, 2]}".to_vec()], number);
            (0..100).map(|_| mutator.make()).collect::<Vec<_>>()
        };
        assert_eq!(made(1), made(1));
        assert_ne!(made(1), made(2));
    }

    #[test]
    fn inputs_differ_from_their_seeds_and_stay_short() {
        let seed = vec![b'x'; LONGEST];
        let mut mutator = Mutator::new(vec![seed.clone(), Vec::new()], 7);
        let made: Vec<_> = (0..2000).map(|_| mutator.make()).collect();
        assert!(made.iter().all(|input| input.len() <= LONGEST));
        let changed = made.iter().filter(|input| **input != seed && !input.is_empty()).count();
        assert!(changed > 1000, "{changed} of 2000 are other inputs");
    }
}
