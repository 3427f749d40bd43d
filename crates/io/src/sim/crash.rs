//! What a power loss leaves. Names: a prefix of each directory's unsynced changes. Bytes: any mixture of a file's unsynced changes,
//! whole, torn at a sector or lost; where a later write survives without an earlier one, zeros fill the hole.

use super::inode::{Change, Content};
use super::tree::{Directory, Inode, Tree};
use crate::rng::{Rng, SimRng};

/// What a device writes in one piece, bytes.
const SECTOR: usize = 512;

/// Decides for every file and directory what survives, and makes that the durable and the live state.
pub(super) fn lose_power(tree: &mut Tree, rng: &mut SimRng) {
    // One mood for the whole disk makes the pure cases (all kept, all lost) as likely as the mixtures.
    let mood = rng.below(4);
    for inode in &mut tree.inodes {
        match inode {
            Inode::File(content) => settle_file(content, mood, rng),
            Inode::Dir(dir) => settle_dir(dir, mood, rng),
        }
    }
}

fn settle_dir(dir: &mut Directory, mood: u64, rng: &mut SimRng) {
    let keep = match mood {
        0 => 0,
        1 => dir.pending.len(),
        _ => rng.below(dir.pending.len() as u64 + 1) as usize,
    };
    for change in dir.pending.drain(..).take(keep) {
        change.apply(&mut dir.durable);
    }
    dir.live.clone_from(&dir.durable);
}

fn settle_file(content: &mut Content, mood: u64, rng: &mut SimRng) {
    let pending = std::mem::take(&mut content.pending);
    let prefix = rng.below(pending.len() as u64 + 1) as usize;
    for (number, change) in pending.into_iter().enumerate() {
        match mood {
            0 => {}
            1 => change.apply(&mut content.durable),
            2 if number < prefix => change.apply(&mut content.durable),
            2 if number == prefix => torn(change, rng, &mut content.durable),
            2 => {}
            _ => match rng.below(4) {
                0 => {}
                1 => torn(change, rng, &mut content.durable),
                _ => change.apply(&mut content.durable),
            },
        }
    }
    content.live.clone_from(&content.durable);
}

/// Applies some of a write's sectors: a prefix of them, or any of them with the length already there.
fn torn(change: Change, rng: &mut SimRng, to: &mut Vec<u8>) {
    let Change::Write { position, bytes } = change else { return };
    let whole_length = rng.below(2) == 0;
    if whole_length && to.len() < position as usize + bytes.len() {
        to.resize(position as usize + bytes.len(), 0);
    }
    let sectors = bytes.len().div_ceil(SECTOR) as u64;
    let prefix = rng.below(sectors + 1);
    let mut at = position;
    let mut rest = &bytes[..];
    for sector in 0.. {
        let len = rest.len().min(SECTOR - at as usize % SECTOR);
        if len == 0 {
            break;
        }
        let kept = if whole_length { rng.below(2) == 0 } else { sector < prefix };
        if kept {
            Change::Write { position: at, bytes: rest[..len].to_vec() }.apply(to);
        }
        at += len as u64;
        rest = &rest[len..];
    }
}
