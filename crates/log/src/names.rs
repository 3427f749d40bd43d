//! Names of the files and directories of a partition, as Kafka forms and reads them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_io::Disk;

use crate::error::{IoContext, Result};

pub(crate) const LOG: &str = ".log";
pub(crate) const INDEX: &str = ".index";
pub(crate) const TIME_INDEX: &str = ".timeindex";
pub(crate) const TXN_INDEX: &str = ".txnindex";
pub(crate) const SNAPSHOT: &str = ".snapshot";
pub(crate) const DELETED: &str = ".deleted";
pub(crate) const CLEANED: &str = ".cleaned";
pub(crate) const SWAP: &str = ".swap";
pub(crate) const EPOCHS: &str = "leader-epoch-checkpoint";

/// Most bytes of a file name.
const NAME_MAX: usize = 255;

/// The disk and the directory of one partition.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
}

impl Home {
    /// Path of a segment's file.
    pub(crate) fn segment_file(&self, base_offset: i64, suffix: &str) -> PathBuf {
        self.dir.join(segment_name(base_offset, suffix))
    }

    /// Gives a segment's file, if it is there, the suffix `.deleted` and adds its new path to `deleted`.
    pub(crate) fn rename_deleted(&self, base_offset: i64, suffix: &str, deleted: &mut Vec<PathBuf>) -> Result<()> {
        let from = self.segment_file(base_offset, suffix);
        let to = self.dir.join(segment_name(base_offset, suffix) + DELETED);
        match self.disk.rename(&from, &to) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            renamed => renamed.context("renaming to", &to).map(|()| deleted.push(to)),
        }
    }

    pub(crate) fn parent(&self) -> &Path {
        self.dir.parent().unwrap_or(Path::new("."))
    }
}

/// `%020d` and a suffix.
pub(crate) fn segment_name(base_offset: i64, suffix: &str) -> String {
    format!("{base_offset:020}{suffix}")
}

/// The offset of a name like `00000000000000000042.log` with this suffix; `None` for any other name.
pub(crate) fn segment_offset(name: &str, suffix: &str) -> Option<i64> {
    let digits = name.strip_suffix(suffix)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// The offset of a segment's file of any kind, with or without `suffix` behind its own.
pub(crate) fn offset_before(name: &str, suffix: &str) -> Option<i64> {
    let name = name.strip_suffix(suffix)?;
    [LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT].iter().find_map(|kind| segment_offset(name, kind))
}

/// What a partition's directory is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DirKind {
    /// `topic-N`: served.
    Current,
    /// `topic-N.<32 hex>-delete`: waits for its deletion.
    Delete,
    /// `topic-N.<32 hex>-future`: target of a move between log directories.
    Future,
    /// `topic-N.<32 hex>-stray`: kept aside, never served.
    Stray,
}

impl DirKind {
    const SUFFIXED: [DirKind; 3] = [DirKind::Delete, DirKind::Future, DirKind::Stray];

    fn suffix(self) -> &'static str {
        match self {
            DirKind::Current => "",
            DirKind::Delete => "-delete",
            DirKind::Future => "-future",
            DirKind::Stray => "-stray",
        }
    }
}

/// The name of a partition's directory, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PartitionDirName {
    /// The topic; cut to what fits for the kinds with a suffix.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// What the directory is there for.
    pub kind: DirKind,
}

impl PartitionDirName {
    /// Takes a name apart; `None` for what Kafka does not accept in a log directory.
    pub fn parse(name: &str) -> Option<PartitionDirName> {
        let kind = DirKind::SUFFIXED.into_iter().find(|kind| name.ends_with(kind.suffix())).unwrap_or(DirKind::Current);
        let base = match kind {
            DirKind::Current => name,
            _ => {
                let (base, unique) = name.strip_suffix(kind.suffix())?.rsplit_once('.')?;
                (!unique.is_empty()).then_some(base)?
            }
        };
        let (topic, partition) = base.rsplit_once('-')?;
        let partition = partition.parse().ok().filter(|partition| *partition >= 0)?;
        (!topic.is_empty()).then(|| PartitionDirName { topic: topic.to_owned(), partition, kind })
    }

    /// Whether [`format`](Self::format) does not have to cut the topic.
    pub fn fits(topic: &str, partition: i32, kind: DirKind) -> bool {
        Self::format("", partition, kind, 0).len() + topic.len() <= NAME_MAX
    }

    /// The name of a directory of this kind; `unique` tells apart those of one partition. The topic is cut so that the name fits.
    pub fn format(topic: &str, partition: i32, kind: DirKind, unique: u128) -> String {
        if kind == DirKind::Current {
            return format!("{topic}-{partition}");
        }
        let tail = format!("-{partition}.{unique:032x}{}", kind.suffix());
        let mut keep = topic.len().min(NAME_MAX - tail.len());
        while !topic.is_char_boundary(keep) {
            keep -= 1;
        }
        format!("{}{tail}", &topic[..keep])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str) -> Option<(String, i32, DirKind)> {
        PartitionDirName::parse(name).map(|name| (name.topic, name.partition, name.kind))
    }

    #[test]
    fn the_partition_is_what_follows_the_last_dash() {
        assert_eq!(parsed("a-b-12"), Some(("a-b".to_owned(), 12, DirKind::Current)));
        assert_eq!(parsed("t.x-0"), Some(("t.x".to_owned(), 0, DirKind::Current)));
        for name in ["", "-", "t", "t-", "-1", "t-x", "t--1x", "t-1-delete", "t-1.-delete", "delete"] {
            assert_eq!(parsed(name), None, "{name}");
        }
    }

    #[test]
    fn names_with_a_suffix_round_trip() {
        for kind in DirKind::SUFFIXED {
            let name = PartitionDirName::format("t", 3, kind, 0xabc);
            assert_eq!(parsed(&name), Some(("t".to_owned(), 3, kind)), "{name}");
        }
        assert_eq!(
            PartitionDirName::format("t", 3, DirKind::Delete, 0xabc),
            "t-3.00000000000000000000000000000abc-delete"
        );
    }

    #[test]
    fn a_long_topic_is_cut_so_that_the_name_fits() {
        let name = PartitionDirName::format(&"t".repeat(249), 7, DirKind::Delete, 1);
        assert_eq!((name.len(), parsed(&name).map(|parsed| parsed.1)), (255, Some(7)));
    }

    #[test]
    fn only_digits_and_the_suffix_name_a_segment() {
        assert_eq!(segment_offset("00000000000000000042.log", LOG), Some(42));
        for name in [".log", "x.log", "+1.log", "1.log.deleted", "99999999999999999999.log"] {
            assert_eq!(segment_offset(name, LOG), None, "{name}");
        }
        assert_eq!(offset_before("00000000000000000007.timeindex.swap", SWAP), Some(7));
    }
}
