//! Kafka's 16-byte identifiers and their text form. Random bytes come from whoever asks for a random id.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use thiserror::Error;

const TEXT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// An id of 16 bytes: topics, directories, incarnations, members. Text is unpadded base64url, 22 characters.
///
/// The order is that of the bytes. Kafka's own order compares the two halves as signed numbers: see
/// [`Uuid::kafka_order`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid([u8; 16]);

/// The text is not 16 bytes in base64url.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a UUID in base64url")]
pub struct ParseUuidError(String);

/// How many ids, counted from zero, stand for something else than a topic or a directory.
const RESERVED: u128 = 100;

impl Uuid {
    /// All zero: "no id".
    pub const ZERO: Uuid = Uuid([0; 16]);
    /// The value 1, reserved like zero.
    pub const ONE: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

    /// The id with these bytes, most significant first.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, most significant first.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The bytes by value.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Whether all bytes are zero.
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// Whether this is one of the ids that stand for something else than a topic or a directory.
    pub fn is_reserved(&self) -> bool {
        u128::from_be_bytes(self.0) < RESERVED
    }

    /// A random id (a version 4 UUID) of the bytes that `fill` gives, as Kafka draws them: never a reserved one, and its
    /// text never begins with a hyphen, which command lines would take for an option.
    pub fn random(mut fill: impl FnMut(&mut [u8])) -> Self {
        loop {
            let mut bytes = [0; 16];
            fill(&mut bytes);
            bytes[6] = bytes[6] & 0x0f | 0x40;
            bytes[8] = bytes[8] & 0x3f | 0x80;
            let id = Self(bytes);
            if !id.is_reserved() && !id.to_string().starts_with('-') {
                return id;
            }
        }
    }

    /// A key that sorts as Kafka sorts ids: by the high half, then by the low half, each a signed number.
    pub fn kafka_order(&self) -> (i64, i64) {
        let value = u128::from_be_bytes(self.0);
        ((value >> 64) as i64, value as i64)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 22];
        let written = TEXT.encode_slice(self.0, &mut text).map_err(|_| fmt::Error)?;
        f.write_str(std::str::from_utf8(&text[..written]).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Self, ParseUuidError> {
        let error = || ParseUuidError(text.chars().take(64).collect());
        if text.len() > 24 {
            return Err(error());
        }
        let bytes = TEXT.decode(text).map_err(|_| error())?;
        bytes.try_into().map(Self).map_err(|_| error())
    }
}

#[cfg(test)]
mod tests {
    use super::Uuid;

    #[test]
    fn text_is_unpadded_base64url_and_reads_back() {
        let id = Uuid::from_bytes([0xfb, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
        assert_eq!(id.to_string(), "-_8BAgMEBQYHCAkKCwwNDg");
        assert_eq!("-_8BAgMEBQYHCAkKCwwNDg".parse(), Ok(id));
        assert_eq!("-_8BAgMEBQYHCAkKCwwNDg==".parse(), Ok(id));
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
    }

    #[test]
    fn text_of_another_length_or_alphabet_is_refused() {
        for text in ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAAAAA", "+_8BAgMEBQYHCAkKCwwNDg", "ééééééééééé"] {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }

    #[test]
    fn random_ids_are_version_4_and_never_begin_with_a_hyphen() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..2000 {
            let id = Uuid::random(|bytes| rng.fill(bytes));
            assert_eq!((id.to_bytes()[6] >> 4, id.to_bytes()[8] >> 6), (4, 2));
            assert!(!id.is_reserved() && !id.to_string().starts_with('-'), "{id}");
        }
    }

    #[test]
    fn kafkas_order_is_signed() {
        let high = Uuid::from_bytes([0xff; 16]);
        assert!(high > Uuid::ONE && high.kafka_order() < Uuid::ONE.kafka_order());
    }
}
