//! What a cleaning needs of the log: which part of it can be cleaned, its files, and the swap.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use milena_io::OpenMode;

use super::flush::Shared;
use super::{Log, LogView, Segment, segment_at};
use crate::aborted::AbortedTxn;
use crate::cleaner::{LastWritten, SegmentSizes, Source, Target};
use crate::error::{IoContext, LogError, Result};
use crate::index::Index;
use crate::names::{CLEANED, SNAPSHOT, SWAP, TXN_INDEX, segment_name};

/// A log between two changes of its end.
#[derive(Debug, Clone)]
pub(crate) struct Version(Arc<Shared>, u64);

/// What of a log can be cleaned depends on these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleaningLimits {
    /// Last stable offset: nothing at or above it is cleaned.
    pub last_stable_offset: i64,
    /// `min.compaction.lag.ms`: a segment with a younger record is left, ms.
    pub min_lag_ms: i64,
    /// `max.compaction.lag.ms`: a record that is older is to be cleaned however little there is, ms.
    pub max_lag_ms: i64,
    /// Wall clock, ms since 1970.
    pub now_ms: i64,
}

/// The part of a log that can be cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cleanable {
    /// First offset that was not cleaned yet.
    pub first_dirty: i64,
    /// Base offset of the first segment that can't be cleaned.
    pub end: i64,
    /// Bytes of the segments that begin below `first_dirty`.
    pub clean_bytes: u64,
    /// Bytes of the segments from `first_dirty` to `end`.
    pub cleanable_bytes: u64,
    /// How much longer than `max.compaction.lag.ms` the oldest dirty segment has waited, ms; 0 when it has not.
    pub delay_ms: i64,
    /// The checkpoint was outside of the log: the log start offset stands in.
    pub reset: bool,
}

impl Cleanable {
    /// Part of the bytes that are dirty, of those that would be read: what is compared with `min.cleanable.dirty.ratio`. NaN when there are none.
    pub fn ratio(&self) -> f64 {
        self.cleanable_bytes as f64 / (self.clean_bytes + self.cleanable_bytes) as f64
    }
}

impl Log {
    /// As [`LogView::cleanable`], at once.
    ///
    /// # Errors
    /// The same.
    pub fn cleanable(&self, cleaned_to: Option<i64>, limits: &CleaningLimits) -> Result<Cleanable> {
        self.view_of_all().cleanable(cleaned_to, limits)
    }
}

impl LogView {
    /// Of a [view of all segments](Log::view_of_all): what can be cleaned when everything below `cleaned_to` is clean (from `cleaner-offset-checkpoint`).
    ///
    /// The last segment never is, nor is what is above the last stable offset.
    ///
    /// # Errors
    /// Index files and headers that can't be read, where a lag asks for them.
    pub fn cleanable(&self, cleaned_to: Option<i64>, limits: &CleaningLimits) -> Result<Cleanable> {
        let cleaned_to = cleaned_to.unwrap_or(self.log_start_offset);
        let reset = cleaned_to < self.log_start_offset || cleaned_to > self.end_offset;
        let first_dirty = if reset { self.log_start_offset } else { cleaned_to };
        let last = self.segments.len() - 1;
        let first = segment_at(&self.segments, first_dirty).min(last);
        let dirty = &self.segments[first..last];
        let mut uncleanable = limits.last_stable_offset.min(self.segments[last].base_offset);
        if limits.min_lag_ms > 0 {
            let oldest = limits.now_ms.saturating_sub(limits.min_lag_ms);
            for segment in dirty {
                if segment.newest(&self.home)?.timestamp > oldest {
                    uncleanable = uncleanable.min(segment.base_offset);
                    break;
                }
            }
        }
        let end = segment_at(&self.segments, uncleanable.max(first_dirty));
        let size = |segments: &[Segment]| segments.iter().map(|segment| segment.size).sum();
        let clean = self.segments.partition_point(|segment| segment.base_offset < first_dirty);
        Ok(Cleanable {
            first_dirty,
            end: self.segments[end].base_offset,
            clean_bytes: size(&self.segments[..clean]),
            cleanable_bytes: size(&self.segments[first.min(end)..end]),
            delay_ms: self.delay_ms(dirty, limits)?,
            reset,
        })
    }

    fn delay_ms(&self, dirty: &[Segment], limits: &CleaningLimits) -> Result<i64> {
        let until = limits.now_ms.saturating_sub(limits.max_lag_ms.max(0));
        let mut earliest = i64::MAX;
        // Stamps of the past are positive: nothing is read for a lag that reaches behind 1970.
        if until > 0 {
            for segment in dirty {
                earliest = earliest.min(segment.first_timestamp(&self.home)?.filter(|at| *at > 0).unwrap_or(i64::MAX));
            }
        }
        Ok(until.saturating_sub(earliest).max(0))
    }

    /// Of a [view below an offset](Log::view_below).
    pub(crate) fn sizes(&self) -> Result<Vec<SegmentSizes>> {
        let sizes = self.segments.iter().map(|segment| {
            let (index, time_index) = segment.index_bytes(&self.home)?;
            Ok(SegmentSizes { base_offset: segment.base_offset, size: segment.size, index, time_index })
        });
        sizes.collect()
    }

    /// Of a [view below an offset](Log::view_below): where in its segment the batch that holds `offset` begins, bytes; the segment's end when
    /// it holds none behind.
    pub(crate) fn position_of(&self, offset: i64) -> Result<u64> {
        let segment = &self.segments[segment_at(&self.segments, offset)];
        Ok(segment.locate(&self.home, offset)?.map_or(segment.size, |found| found.position))
    }
}

impl Log {
    /// For [`is_version`](Self::is_version).
    pub(crate) fn version(&self) -> Version {
        Version(Arc::clone(&self.shared), self.generation)
    }

    /// Whether it is the same log, nothing was cut off since, and it takes changes.
    pub(crate) fn is_version(&self, version: &Version) -> bool {
        Arc::ptr_eq(&self.shared, &version.0) && self.generation == version.1 && !self.closed
    }

    /// A segment to read from its beginning; `None` when it has gone, or the log was cut.
    pub(crate) fn source(&self, version: &Version, base_offset: i64) -> Result<Option<Source>> {
        let at = self.finished_segments().binary_search_by_key(&base_offset, |segment| segment.base_offset);
        let (Ok(at), true) = (at, self.is_version(version)) else { return Ok(None) };
        let segment = &self.segments[at];
        let path = segment.path(&self.home);
        // A handle of its own: what is cleaned once a day is not kept open for it.
        let file = self.home.disk.open(&path, OpenMode::Read).context("opening", &path)?;
        Ok(Some(Source { file, path, position: 0, end: segment.size, next_offset: base_offset }))
    }

    /// What each known producer wrote last.
    pub(crate) fn last_written(&self) -> HashMap<i64, LastWritten> {
        let last = |state: crate::ProducerState| {
            let data_offset = (state.last_offset >= 0).then_some(state.last_offset);
            (state.producer_id, LastWritten { data_offset, epoch: state.epoch })
        };
        self.producers().map(last).collect()
    }

    /// Makes the files of a new segment; `None` when the log was cut or closed.
    pub(crate) fn create_target(&self, version: &Version, base_offset: i64) -> Result<Option<Target>> {
        if !self.is_version(version) {
            return Ok(None);
        }
        self.writable()?;
        let config = &self.config;
        Target::create(&self.home, base_offset, config.index_interval_bytes, config.segment_index_bytes).map(Some)
    }

    /// Adds to the new segment's transaction index.
    pub(crate) fn add_aborted(&self, version: &Version, target: &mut Target, aborted: &[AbortedTxn]) -> Result<()> {
        if self.is_version(version) { target.add_aborted(&self.home, aborted) } else { Ok(()) }
    }

    /// Removes the files of a new segment that is not swapped in. What stays of them is removed at the next start.
    pub(crate) fn discard_target(&self, version: &Version, target: &Target) {
        if !self.is_version(version) || self.is_poisoned() {
            return;
        }
        for suffix in target.suffixes() {
            let name = segment_name(target.base_offset(), suffix) + CLEANED;
            let _ = self.home.disk.remove_file(&self.home.dir.join(name));
        }
    }

    /// Puts the finished new segment in the place of neighbours; false, and nothing has changed, when they are not what they were.
    ///
    /// Stages *swap* (the new files get the suffix `.swap`: from here on a start completes the rest) and *replace* (the old files get the suffix
    /// `.deleted`, the last segment first and of each its `.log` first; the new files get their names, the `.log` first). Readers of the old
    /// files go on. The new paths of the old files are added to `deleted`, also at a failure. The names are durable once the directory is synced.
    ///
    /// # Errors
    /// [`LogError::Io`](crate::LogError::Io); the log is poisoned then, unless nothing has changed. It goes on being read: the old segments as long
    /// as their files have their names, then the new one, whatever its files are called.
    pub(crate) fn swap_in(
        &mut self,
        version: &Version,
        target: &Target,
        replaced: &[SegmentSizes],
        deleted: &mut Vec<PathBuf>,
    ) -> Result<bool> {
        let same = |(segment, was): (&Segment, &SegmentSizes)| {
            segment.base_offset == was.base_offset && segment.size == was.size
        };
        let finished = self.finished_segments();
        let at = finished.partition_point(|segment| segment.base_offset < target.base_offset());
        let now = finished.get(at..at + replaced.len()).unwrap_or_default();
        let unchanged = now.len() == replaced.len() && now.iter().zip(replaced).all(same);
        if !unchanged || !self.is_version(version) {
            return Ok(false);
        }
        self.writable()?;
        let range = at..at + replaced.len();
        self.rename_target(target, CLEANED, SWAP).inspect_err(|_| self.poison())?;
        let swapped = self.replace(target, &self.segments[range.clone()], deleted);
        self.segments.splice(range, [Segment::existing(target.base_offset(), target.size())]);
        let loaded = swapped.and_then(|()| self.load_swapped(at, target));
        if loaded.is_err() {
            self.poison();
            self.segments[at] = target.held();
        }
        self.recent.clear();
        self.marks.names += 1;
        self.closed_cleanly = false;
        loaded.map(|()| true)
    }

    /// Takes the transaction index of the segment that was swapped in.
    fn load_swapped(&mut self, at: usize, target: &Target) -> Result<()> {
        if target.suffixes().any(|suffix| suffix == TXN_INDEX) {
            let loaded = Index::load_sound(&self.home, target.base_offset(), self.segment_end(at))?;
            let path = self.home.segment_file(target.base_offset(), TXN_INDEX);
            let reason = "what was written is not what is read".to_owned();
            self.segments[at].set_aborted(loaded.ok_or(LogError::Corrupt { path, position: 0, reason })?);
        }
        Ok(())
    }

    fn rename_target(&self, target: &Target, from: &str, to: &str) -> Result<()> {
        target.suffixes().try_for_each(|suffix| {
            let name = segment_name(target.base_offset(), suffix);
            let (from, to) = (self.home.dir.join(name.clone() + from), self.home.dir.join(name + to));
            self.home.disk.rename(&from, &to).context("renaming to", &to)
        })
    }

    /// Stage *replace*.
    fn replace(&self, target: &Target, replaced: &[Segment], deleted: &mut Vec<PathBuf>) -> Result<()> {
        let home = &self.home;
        for segment in replaced.iter().rev() {
            segment.rename_deleted(home, deleted)?;
            if segment.base_offset != target.base_offset() {
                home.rename_deleted(segment.base_offset, SNAPSHOT, deleted)?;
            }
        }
        self.rename_target(target, SWAP, "")
    }
}
