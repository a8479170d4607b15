//! Counts the samples of a file as its bytes come by, in constant memory whatever the length of its lines.
//!
//! Sedna counts every line of a `txt` file, empty ones too, and takes the first line of a `csv` file for a header. The
//! same holds here, except that a line break within a quoted csv field (RFC 4180) does not end a record.

use std::str::FromStr;

use thiserror::Error;

/// How a file is divided into samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Every line is a sample.
    Txt,
    /// Every record but the first is a sample.
    Csv,
}

impl FromStr for Format {
    type Err = CountError;

    fn from_str(text: &str) -> Result<Self, CountError> {
        match text.to_ascii_lowercase().as_str() {
            "txt" => Ok(Self::Txt),
            "csv" => Ok(Self::Csv),
            _ => Err(CountError::Format(text.chars().take(64).collect())),
        }
    }
}

/// Why a file's samples cannot be counted, however often it is read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CountError {
    /// A format whose samples we do not know how to tell apart.
    #[error("format {0:?} cannot be counted: it has to be csv or txt")]
    Format(String),
    /// A csv file has at least its header.
    #[error("it is empty: a csv file starts with a header line")]
    NoHeader,
    /// All that follows would be one field.
    #[error("it is not csv: a quote that opens in record {record} is never closed")]
    OpenQuote {
        /// The record, the header being record 1.
        record: u64,
    },
}

/// Counts one file.
#[derive(Clone, Debug)]
pub struct Counter {
    format: Format,
    /// Lines or records that have ended.
    ended: u64,
    place: Place,
}

/// Where in the file the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the start of the file, this many bytes into its byte order mark.
    Mark(usize),
    /// At the start of a line or record.
    Start,
    /// At the start of a field that is not the record's first.
    Field,
    /// Within a line, or within a field that is not quoted.
    Plain,
    /// Within a quoted field.
    Quoted,
    /// After a quote within a quoted field: its end, or half of an escaped quote.
    Quote,
}

const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

impl Counter {
    /// A counter that has seen nothing.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            ended: 0,
            place: match format {
                Format::Txt => Place::Start,
                Format::Csv => Place::Mark(0),
            },
        }
    }

    /// The next bytes of the file.
    pub fn push(&mut self, bytes: &[u8]) {
        match self.format {
            Format::Txt => self.push_txt(bytes),
            Format::Csv => bytes.iter().for_each(|&byte| self.push_csv(byte)),
        }
    }

    fn push_txt(&mut self, bytes: &[u8]) {
        let breaks: usize = bytes.iter().map(|&byte| usize::from(byte == b'\n')).sum();
        self.ended += breaks as u64;
        self.place = match bytes.last() {
            None => self.place,
            Some(b'\n') => Place::Start,
            Some(_) => Place::Plain,
        };
    }

    fn push_csv(&mut self, byte: u8) {
        self.place = match (self.place, byte) {
            (Place::Mark(at), _) if BYTE_ORDER_MARK.get(at) == Some(&byte) => {
                if at + 1 == BYTE_ORDER_MARK.len() {
                    Place::Start
                } else {
                    Place::Mark(at + 1)
                }
            }
            (Place::Quoted, b'"') => Place::Quote,
            (Place::Quoted, _) | (Place::Mark(0) | Place::Start | Place::Field | Place::Quote, b'"') => Place::Quoted,
            (_, b'\n') => {
                self.ended += 1;
                Place::Start
            }
            (_, b',') => Place::Field,
            _ => Place::Plain,
        };
    }

    /// How many samples the file has, all of its bytes having been pushed.
    pub fn finish(self) -> Result<u64, CountError> {
        let all = match self.place {
            Place::Mark(0) | Place::Start => self.ended,
            Place::Quoted => return Err(CountError::OpenQuote { record: self.ended + 1 }),
            Place::Mark(_) | Place::Field | Place::Plain | Place::Quote => self.ended + 1,
        };
        match self.format {
            Format::Txt => Ok(all),
            Format::Csv => all.checked_sub(1).ok_or(CountError::NoHeader),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count(format: Format, text: &[u8]) -> Result<u64, CountError> {
        let mut counter = Counter::new(format);
        counter.push(text);
        counter.finish()
    }

    #[test]
    fn every_line_of_a_txt_file_is_a_sample() {
        for (text, samples) in [
            ("", 0),
            ("\n", 1),
            ("a", 1),
            ("a\n", 1),
            ("a\n\nb\r\n", 3),
            ("\"a\nb\"\n", 2),
        ] {
            assert_eq!(count(Format::Txt, text.as_bytes()), Ok(samples), "{text:?}");
        }
    }

    #[test]
    fn a_csv_file_has_a_header_and_quoted_line_breaks() {
        for (text, samples) in [
            ("a,b", 0),
            ("a,b\n", 0),
            ("a,b\r\n1,2\r\n", 1),
            ("a,b\n1,2", 1),
            ("a,b\n1,\n", 1),
            ("a,b\n1,", 1),
            ("a,b\n\n1,2\n", 2),
            ("a\n\"x\ny\"\nz\n", 2),
            ("a\n\"x\"\"\ny\"\nz\n", 2),
            ("\"a\n\",b\n1,\"\n\n\"\n", 1),
            ("a\n5\" disk\n3\" disk\n", 2),
            ("\u{feff}\"a\nb\",c\n1,2\n", 1),
        ] {
            assert_eq!(count(Format::Csv, text.as_bytes()), Ok(samples), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_csv_is_said() {
        assert_eq!(count(Format::Csv, b""), Err(CountError::NoHeader));
        assert_eq!(count(Format::Csv, b"\xef\xbb\xbf"), Err(CountError::NoHeader));
        let open = count(Format::Csv, b"a\nb\n\"c\nd\n");
        assert_eq!(open, Err(CountError::OpenQuote { record: 3 }));
        let error = "parquet".parse::<Format>().unwrap_err().to_string();
        assert!(error.contains("parquet") && error.contains("csv or txt"), "{error}");
        assert_eq!("CSV".parse(), Ok(Format::Csv));
    }

    fn record() -> impl Strategy<Value = String> {
        let field = "[a-z\"\n\r,]{0,6}".prop_map(|text| format!("\"{}\"", text.replace('"', "\"\"")));
        prop::collection::vec(field, 1..4).prop_map(|fields| fields.join(","))
    }

    proptest! {
        #[test]
        fn records_are_counted_whatever_they_quote(
            records in prop::collection::vec(record(), 1..20),
            ending in prop_oneof![Just("\n"), Just("\r\n")],
            last in any::<bool>(),
        ) {
            let mut text = records.join(ending);
            if last {
                text.push_str(ending);
            }
            prop_assert_eq!(count(Format::Csv, text.as_bytes()), Ok(records.len() as u64 - 1));
        }

        #[test]
        fn pieces_count_as_the_whole(text in "[a\"\n\r,\u{feff}]{0,40}", size in 1_usize..7) {
            for format in [Format::Txt, Format::Csv] {
                let mut counter = Counter::new(format);
                text.as_bytes().chunks(size).for_each(|piece| counter.push(piece));
                prop_assert_eq!(counter.finish(), count(format, text.as_bytes()));
            }
        }

        #[test]
        fn txt_counts_as_a_line_reader_does(text in "[a\n\r]{0,40}") {
            prop_assert_eq!(count(Format::Txt, text.as_bytes()), Ok(text.lines().count() as u64));
        }
    }
}
