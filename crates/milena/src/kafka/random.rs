//! `java.util.SplittableRandom`, so that what is measured is measured with the same bytes as Kafka's tools send.

/// The increment of the state: the golden ratio.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The generator.
#[derive(Debug, Clone)]
pub struct SplittableRandom(u64);

impl SplittableRandom {
    /// With a seed.
    pub fn new(seed: i64) -> Self {
        Self(seed.cast_unsigned())
    }

    /// `nextInt()`.
    fn next(&mut self) -> i32 {
        self.0 = self.0.wrapping_add(GAMMA);
        let z = (self.0 ^ (self.0 >> 33)).wrapping_mul(0x62a9_d9ed_7997_05f5);
        (((z ^ (z >> 28)).wrapping_mul(0xcb24_d0a5_c88c_35b3) >> 32) as u32).cast_signed()
    }

    /// `nextInt(bound)`: a number from 0 to before `bound`, which is positive.
    pub fn below(&mut self, bound: i32) -> i32 {
        let last = bound - 1;
        let mut drawn = self.next();
        if bound & last == 0 {
            return drawn & last;
        }
        loop {
            let positive = (drawn.cast_unsigned() >> 1).cast_signed();
            let number = positive % bound;
            // Beyond the last multiple of the bound some numbers would come too often.
            if positive.checked_sub(number).and_then(|base| base.checked_add(last)).is_some() {
                return number;
            }
            drawn = self.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_java() {
        let drawn = |seed, bound| {
            let mut random = SplittableRandom::new(seed);
            (0..10).map(|_| random.below(bound)).collect::<Vec<_>>()
        };
        // Printed by a Java program.
        assert_eq!(drawn(0, 26), [24, 16, 7, 7, 13, 4, 1, 18, 4, 15]);
        assert_eq!(drawn(7, 64), [16, 2, 59, 51, 27, 23, 14, 3, 40, 9]);
        let large = [1_343_976_908, 247_978_065, 234_860_623, 297_140_415, 924_429_687];
        assert_eq!(drawn(-1, 1_500_000_000)[..5], large);
    }
}
