//! The wire format: numbered fields, each a number or a run of bytes.

use super::ProtobufError;

/// A field's value.
#[derive(Clone, Copy)]
pub(super) enum Wire<'b> {
    Varint(u64),
    Fixed(u64),
    Bytes(&'b [u8]),
}

impl<'b> Wire<'b> {
    pub(super) fn bytes(self) -> Result<&'b [u8], ProtobufError> {
        if let Self::Bytes(bytes) = self {
            Ok(bytes)
        } else {
            Err(ProtobufError::Broken)
        }
    }

    pub(super) fn text(self) -> Result<String, ProtobufError> {
        let text = std::str::from_utf8(self.bytes()?);
        text.map(str::to_owned).map_err(|_| ProtobufError::Broken)
    }

    /// Whole numbers are signed; negative ones are written in 64 bits.
    pub(super) fn whole(self) -> Result<i64, ProtobufError> {
        if let Self::Varint(number) = self {
            Ok(number.cast_signed())
        } else {
            Err(ProtobufError::Broken)
        }
    }

    pub(super) fn number(self) -> Result<f64, ProtobufError> {
        if let Self::Fixed(bits) = self {
            Ok(f64::from_bits(bits))
        } else {
            Err(ProtobufError::Broken)
        }
    }
}

/// Reads a message field by field.
pub(super) struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// The next field, by its number; `None` at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Wire<'b>)>, ProtobufError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| ProtobufError::Broken)?;
        let value = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Broken)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed(u32::from_le_bytes(self.array()?).into()),
            _ => return Err(ProtobufError::Broken),
        };
        Ok(Some((number, value)))
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], ProtobufError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ProtobufError::Broken)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtobufError> {
        self.take(N)?.try_into().map_err(|_| ProtobufError::Broken)
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(ProtobufError::Broken)
    }
}
