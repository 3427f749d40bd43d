//! The fixed-size types that arrays can have as elements.

use crate::uuid::Uuid;

/// A type of fixed size on the wire.
pub(crate) trait Primitive: Copy + 'static {
    /// Bytes on the wire.
    const SIZE: usize;
    /// From exactly `SIZE` bytes.
    fn read(bytes: &[u8]) -> Self;
    /// To the end of `buf`.
    fn write(self, buf: &mut Vec<u8>);
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Primitive for $type {
            const SIZE: usize = size_of::<$type>();

            #[inline]
            fn read(bytes: &[u8]) -> Self {
                Self::from_be_bytes(fixed(bytes))
            }

            #[inline]
            fn write(self, buf: &mut Vec<u8>) {
                buf.extend_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}

integers!(i8, i16, i32, i64);

impl Primitive for Uuid {
    const SIZE: usize = 16;

    #[inline]
    fn read(bytes: &[u8]) -> Self {
        Uuid::from_bytes(fixed(bytes))
    }

    #[inline]
    fn write(self, buf: &mut Vec<u8>) {
        buf.extend_from_slice(self.as_bytes());
    }
}

/// The caller gives chunks of the type's size only.
#[inline]
fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}
