//! Zigzag varints of records: 7 bits a byte, least significant first, the top bit says that another byte follows. The unsigned varints
//! of the wire protocol are not here.

/// Most bytes of a varint (32 bits).
pub const MAX_VARINT: usize = 5;
/// Most bytes of a varlong (64 bits).
pub const MAX_VARLONG: usize = 10;

/// Why a varint could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VarintError {
    /// The bytes end inside of it.
    #[error("the bytes end inside a varint")]
    Truncated,
    /// It goes on after its fifth byte, or after its tenth for a varlong.
    #[error("a varint goes on after its last possible byte")]
    TooLong,
}

/// Takes a varint off the front of `rest`. Longer forms than needed are read too; bits beyond 32 are dropped.
///
/// # Errors
/// [`VarintError`]; nothing is taken then.
#[inline]
pub fn take_varint(rest: &mut &[u8]) -> Result<i32, VarintError> {
    match **rest {
        [first, ref after @ ..] if first < 0x80 => {
            *rest = after;
            Ok(unzigzag32(u32::from(first)))
        }
        [first, second, ref after @ ..] if second < 0x80 => {
            *rest = after;
            Ok(unzigzag32(u32::from(first & 0x7f) | u32::from(second) << 7))
        }
        _ => {
            let (value, size) = read_long(rest, MAX_VARINT)?;
            *rest = &rest[size..];
            Ok(unzigzag32(value as u32))
        }
    }
}

/// Takes a varlong off the front of `rest`. Longer forms than needed are read too; bits beyond 64 are dropped.
///
/// # Errors
/// [`VarintError`]; nothing is taken then.
#[inline]
pub fn take_varlong(rest: &mut &[u8]) -> Result<i64, VarintError> {
    match **rest {
        [first, ref after @ ..] if first < 0x80 => {
            *rest = after;
            Ok(unzigzag64(u64::from(first)))
        }
        [first, second, ref after @ ..] if second < 0x80 => {
            *rest = after;
            Ok(unzigzag64(u64::from(first & 0x7f) | u64::from(second) << 7))
        }
        _ => {
            let (value, size) = read_long(rest, MAX_VARLONG)?;
            *rest = &rest[size..];
            Ok(unzigzag64(value))
        }
    }
}

/// One of any length; its bits and how many bytes it takes. Most take one or two: this is kept out of their way, and it is given the
/// bytes by value, so that the caller's slice stays in registers.
#[inline(never)]
fn read_long(bytes: &[u8], most: usize) -> Result<(u64, usize), VarintError> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().take(most).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok((value, index + 1));
        }
    }
    Err(if bytes.len() < most { VarintError::Truncated } else { VarintError::TooLong })
}

/// Appends `value` in its shortest form.
pub fn write_varint(out: &mut Vec<u8>, value: i32) {
    write_varlong(out, i64::from(value));
}

/// Appends `value` in its shortest form.
pub fn write_varlong(out: &mut Vec<u8>, value: i64) {
    let mut rest = zigzag64(value);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Bytes of `value`'s shortest form, for a varint as well as for a varlong.
pub fn size_of_varlong(value: i64) -> usize {
    let bits = 64 - (zigzag64(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

fn zigzag64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn unzigzag32(value: u32) -> i32 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

fn unzigzag64(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The value, and how many bytes it took.
    fn read<T>(take: impl Fn(&mut &[u8]) -> Result<T, VarintError>, bytes: &[u8]) -> Result<(T, usize), VarintError> {
        let mut rest = bytes;
        let value = take(&mut rest);
        assert!(value.is_ok() || rest.len() == bytes.len(), "an error takes nothing");
        value.map(|value| (value, bytes.len() - rest.len()))
    }

    #[test]
    fn values_have_the_bytes_of_the_zigzag_encoding() {
        for (value, bytes) in [
            (0, &[0x00][..]),
            (-1, &[0x01]),
            (1, &[0x02]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 0x01]),
            (-65, &[0x81, 0x01]),
            (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            let mut out = Vec::new();
            write_varint(&mut out, value);
            assert_eq!(out, bytes, "{value}");
            assert_eq!(read(take_varint, bytes), Ok((value, bytes.len())));
        }
    }

    #[test]
    fn an_overlong_form_is_read_and_a_sixth_byte_is_refused() {
        assert_eq!(read(take_varint, &[0x82, 0x00]), Ok((1, 2)));
        assert_eq!(read(take_varint, &[0x82, 0x80, 0x80, 0x80, 0x00]), Ok((1, 5)));
        assert_eq!(read(take_varint, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), Err(VarintError::TooLong));
        assert_eq!(read(take_varint, &[0x80, 0x80]), Err(VarintError::Truncated));
        assert_eq!(read(take_varint, &[]), Err(VarintError::Truncated));
        assert_eq!(read(take_varlong, &[0x80; 10]), Err(VarintError::TooLong));
        assert_eq!(read(take_varlong, &[0x80; 9]), Err(VarintError::Truncated));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_with_the_size_foretold(value: i64, follow: u8) {
            let mut out = Vec::new();
            write_varlong(&mut out, value);
            prop_assert_eq!(out.len(), size_of_varlong(value));
            out.push(follow);
            prop_assert_eq!(read(take_varlong, &out), Ok((value, out.len() - 1)));
            let small = value as i32;
            let mut out = Vec::new();
            write_varint(&mut out, small);
            prop_assert_eq!(out.len(), size_of_varlong(i64::from(small)));
            out.push(follow);
            prop_assert_eq!(read(take_varint, &out), Ok((small, out.len() - 1)));
        }
    }
}
