//! Ways to damage a file, each told by a number.

/// What was done, and the bytes after it.
pub(crate) fn damage(sound: &[u8], number: u64) -> (String, Vec<u8>) {
    // A small generator of its own: the same number is the same damage, everywhere and always.
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x1234_5678);
    let mut below = |most: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % most.max(1) as u64) as usize
    };
    let mut bytes = sound.to_vec();
    let text = match number % 6 {
        0 => {
            let keep = below(bytes.len() + 1);
            bytes.truncate(keep);
            format!("cut to {keep} bytes")
        }
        1 => {
            let from = below(bytes.len());
            let to = (from + 1 + below(200)).min(bytes.len());
            bytes[from..to].fill(0);
            format!("zeros at {from} to {to}")
        }
        2 => {
            let more = 1 + below(100);
            bytes.extend((0..more).map(|_| below(256) as u8));
            format!("{more} bytes more")
        }
        3 => {
            bytes.fill(0);
            "all zeros".to_owned()
        }
        _ => {
            let at = below(bytes.len());
            let bit = below(8);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << bit;
            }
            format!("bit {bit} of byte {at} flipped")
        }
    };
    (format!("damage {number}: {text}"), bytes)
}
