//! Random ids.

use milena_io::Rng;
use milena_protocol::Uuid;

/// How many ids, counted from zero, stand for something else than a directory.
const RESERVED_IDS: u128 = 100;

/// Whether an id is one of those that stand for something else than a directory.
pub(crate) fn is_reserved(id: Uuid) -> bool {
    u128::from_be_bytes(id.to_bytes()) < RESERVED_IDS
}

/// A random id (a version 4 UUID) as Kafka draws them: never a reserved one, and its text never begins with a hyphen, which
/// command lines would take for an option.
pub fn random_uuid(rng: &mut dyn Rng) -> Uuid {
    loop {
        let mut bytes = [0; 16];
        rng.fill(&mut bytes);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let id = Uuid::from_bytes(bytes);
        if !is_reserved(id) && !id.to_string().starts_with('-') {
            return id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use milena_io::SimRng;

    #[test]
    fn random_ids_are_version_4_and_never_begin_with_a_hyphen() {
        let mut rng = SimRng::new(7);
        for _ in 0..2000 {
            let id = random_uuid(&mut rng);
            assert_eq!((id.to_bytes()[6] >> 4, id.to_bytes()[8] >> 6), (4, 2));
            assert!(!id.to_string().starts_with('-'));
        }
    }
}
