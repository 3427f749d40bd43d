//! Randomness as a trait: the kernel's, and a seeded one that gives the same numbers every time.

use std::io;

/// A source of random numbers.
pub trait Rng: Send {
    /// 64 uniform bits.
    fn next_u64(&mut self) -> u64;

    /// Fills `buf` with random bytes.
    fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// A number in `0..bound`; 0 when `bound` is 0. The bias is below 2^-32 for bounds under 2^32.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// The kernel's generator: fit for ids and secrets.
#[derive(Debug, Default, Clone, Copy)]
pub struct RealRng;

impl RealRng {
    fn try_fill(buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match rustix::rand::getrandom(&mut buf[done..], rustix::rand::GetRandomFlags::empty()) {
                Ok(read) => done += read,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

impl Rng for RealRng {
    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// # Panics
    /// When the kernel refuses random numbers: ids and secrets must not be made of anything else.
    fn fill(&mut self, buf: &mut [u8]) {
        if let Err(error) = Self::try_fill(buf) {
            panic!("the kernel gives no random numbers: {error}");
        }
    }
}

/// A seeded generator (SplitMix64): for tests and for choices that need no secrecy.
#[derive(Debug, Clone)]
pub struct SimRng {
    state: u64,
}

impl SimRng {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }
}

impl Rng for SimRng {
    fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_every_time() {
        let mut rng = SimRng::new(0);
        assert_eq!(rng.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(rng.next_u64(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn numbers_stay_below_the_bound() {
        let mut rng = SimRng::new(7);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[rng.below(5) as usize] = true;
        }
        assert_eq!((seen, rng.below(0)), ([true; 5], 0));
    }

    #[test]
    fn the_kernel_gives_different_bytes_each_time() {
        let (mut a, mut b) = ([0; 16], [0; 16]);
        RealRng.fill(&mut a);
        RealRng.fill(&mut b);
        assert_ne!(a, b);
    }
}
