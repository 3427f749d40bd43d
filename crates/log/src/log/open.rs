//! Opening a log: the files that are there, what a crash left of them, and where the log ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_io::{Disk, Entry};

use super::Log;
use super::flush::Marks;
use crate::config::LogConfig;
use crate::epochs::{EpochCache, EpochEntry};
use crate::error::{IoContext, Result};
use crate::index::{Index, IndexEntry};
use crate::kept::{keep_segment, keep_tail};
use crate::names::{
    CLEANED, DELETED, EPOCHS, Home, INDEX, LOG, SNAPSHOT, SWAP, TIME_INDEX, TXN_INDEX, offset_before, segment_offset,
};
use crate::producers::{Producers, Source, replay, restore, state_at};
use crate::recover::{Rebuilt, has_gaps, rebuild};
use crate::segment::Segment;
use crate::text::{read_text, replace_file};

/// What a log is opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenParams {
    /// The log directory was stopped in order: sizes are trusted, nothing is scanned.
    pub clean: bool,
    /// From `recovery-point-offset-checkpoint`; 0 without an entry.
    pub recovery_point: i64,
    /// From `log-start-offset-checkpoint`; 0 without an entry. Where a new log begins.
    pub log_start_offset: i64,
    /// From `cleaner-offset-checkpoint`; 0 without an entry. Below it compaction has been, whatever the topic's policy is now.
    pub cleaned_to: i64,
    /// Wall clock, ms since 1970.
    pub now_ms: i64,
}

/// What opening had to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Segments whose batches were read and checked.
    pub segments_scanned: usize,
    /// Bytes read for that.
    pub bytes_scanned: u64,
    /// Bytes cut off behind the last good batch, those of dropped later segments included.
    pub bytes_cut: u64,
    /// Log end offset after a cut; `None` when nothing was cut.
    pub cut_at: Option<i64>,
    /// Why the first bad batch is bad.
    pub reason: Option<String>,
    /// The file that it is in, and where, bytes.
    pub place: Option<(PathBuf, u64)>,
    /// Files that hold what was cut and may be sound.
    pub kept: Vec<PathBuf>,
}

impl Log {
    /// Opens the log in `dir`. A directory or segment that is missing is made; the directory above must exist.
    ///
    /// After an orderly stop nothing is read but names, sizes, the epochs and the producer snapshot. Otherwise every segment from the one that holds the recovery point
    /// on is checked batch by batch, gets new indexes, and the log ends before the first bad batch. A segment without its index files is
    /// read and indexed in any case.
    ///
    /// # Errors
    /// [`LogError::Io`](crate::LogError::Io) when the disk fails. Damage is repaired and told in the [`Recovery`].
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: Arc<LogConfig>,
        params: OpenParams,
    ) -> Result<(Log, Recovery)> {
        let home = Home { disk, dir: dir.to_owned() };
        let fresh = home.disk.metadata(dir).context("looking for", dir)?.is_none();
        if fresh {
            home.disk.create_dir(dir).context("creating", dir)?;
        }
        let mut loader = Loader {
            home,
            config,
            params,
            recovery: Recovery::default(),
            epochs: EpochCache::default(),
            epochs_in_file: None,
            recovered_from: None,
            producers: None,
        };
        let entries = loader.tidy()?;
        let mut found = loader.load_segments(&entries)?;
        let (segments, end) = loader.settle(&mut found)?;
        loader.finish(segments, end, &found, &Origin { created: entries.is_empty(), fresh })
    }
}

/// The steps of opening and what they share.
struct Loader {
    home: Home,
    config: Arc<LogConfig>,
    params: OpenParams,
    recovery: Recovery,
    epochs: EpochCache,
    /// What their file says; `None` where it is lost or damaged.
    epochs_in_file: Option<Vec<EpochEntry>>,
    /// Base offset of the first segment that was recovered.
    recovered_from: Option<i64>,
    /// The producers as the recovery has met them: with the last batches of each, of which a snapshot tells one.
    producers: Option<Producers>,
}

/// What was there before.
struct Origin {
    /// Nothing in the directory.
    created: bool,
    /// Not even the directory.
    fresh: bool,
}

/// The segments in their order.
#[derive(Default)]
struct Found {
    segments: Vec<Segment>,
    /// Those without complete index files, by base offset.
    unindexed: Vec<i64>,
    /// Those with a transaction index, by base offset.
    aborting: Vec<i64>,
    snapshots: Vec<i64>,
}

impl Loader {
    fn remove(&self, name: &str) -> Result<()> {
        let path = self.home.dir.join(name);
        self.home.disk.remove_file(&path).context("removing", &path)
    }

    fn list(&self) -> Result<Vec<Entry>> {
        let dir = &self.home.dir;
        let entries = self.home.disk.list(dir).context("listing", dir)?;
        Ok(entries.into_iter().filter(|entry| !entry.is_dir).collect())
    }

    /// Removes what an interrupted deletion or compaction left, and completes a swap that had begun. Returns the names that stay.
    fn tidy(&self) -> Result<Vec<Entry>> {
        let entries = self.list()?;
        let temporary = |entry: &Entry| [DELETED, CLEANED, SWAP].iter().any(|suffix| entry.name.ends_with(suffix));
        if !entries.iter().any(temporary) {
            return Ok(entries);
        }
        let cleaned = |entry: &Entry| offset_before(&entry.name, CLEANED);
        let least_cleaned = entries.iter().filter_map(cleaned).min().unwrap_or(i64::MAX);
        for entry in &entries {
            let swap = offset_before(&entry.name, SWAP).is_some_and(|offset| offset >= least_cleaned);
            let deleted = entry.name.ends_with(DELETED) && !entry.name.ends_with(".checkpoint.deleted");
            if deleted || entry.name.ends_with(CLEANED) || swap {
                self.remove(&entry.name)?;
            }
        }
        self.complete_swap()?;
        self.list()
    }

    /// The segments that the swapped ones replace go, then the swapped ones get their names.
    fn complete_swap(&self) -> Result<()> {
        let entries = self.list()?;
        let swapped: Vec<&Entry> = entries.iter().filter(|entry| offset_before(&entry.name, SWAP).is_some()).collect();
        let (mut least, mut end) = (i64::MAX, i64::MIN);
        for entry in &swapped {
            if let Some(base) = entry.name.strip_suffix(SWAP).and_then(|name| segment_offset(name, LOG)) {
                least = least.min(base);
                end = end.max(self.swap_end(&entry.name, base)?);
            }
        }
        for entry in &entries {
            if offset_before(&entry.name, "").is_some_and(|offset| least <= offset && offset < end) {
                self.remove(&entry.name)?;
            }
        }
        for entry in swapped {
            let from = self.home.dir.join(&entry.name);
            let to = self.home.dir.join(entry.name.trim_end_matches(SWAP));
            self.home.disk.rename(&from, &to).context("renaming to", &to)?;
        }
        Ok(())
    }

    /// Offset after the last batch of a `.log.swap` file.
    fn swap_end(&self, name: &str, base: i64) -> Result<i64> {
        let path = self.home.dir.join(name);
        let file = self.home.disk.open(&path, milena_io::OpenMode::Read).context("opening", &path)?;
        let len = file.len().context("measuring", &path)?;
        let mut scan = crate::scan::HeaderScan::new(&*file, 0, len);
        let mut end = base;
        while let Ok(Some(header)) = scan.next() {
            end = header.last_offset + 1;
        }
        Ok(end)
    }

    /// The segments by their names and sizes. Index files without a segment go.
    fn load_segments(&self, entries: &[Entry]) -> Result<Found> {
        let mut found = Found::default();
        let has = |name: &str| entries.binary_search_by(|entry| entry.name.as_str().cmp(name)).is_ok();
        for Entry { name, .. } in entries {
            if let Some(base) = segment_offset(name, LOG) {
                let path = self.home.dir.join(name);
                let size = self.home.disk.metadata(&path).context("measuring", &path)?.map_or(0, |found| found.len);
                found.segments.push(Segment::existing(base, size));
                let stem = name.trim_end_matches(LOG);
                if !has(&format!("{stem}{INDEX}")) || !has(&format!("{stem}{TIME_INDEX}")) {
                    found.unindexed.push(base);
                }
                if has(&format!("{stem}{TXN_INDEX}")) {
                    found.aborting.push(base);
                }
            } else if let Some(offset) = segment_offset(name, SNAPSHOT) {
                found.snapshots.push(offset);
            } else if let Some(stem) = [INDEX, TIME_INDEX, TXN_INDEX].iter().find_map(|kind| name.strip_suffix(kind))
                && segment_offset(stem, "").is_some()
                && !has(&format!("{stem}{LOG}"))
            {
                self.remove(name)?;
            }
        }
        found.segments.sort_by_key(|segment| segment.base_offset);
        Ok(found)
    }

    /// Reads the epochs, recovers what must be, and finds the log end. The segments are at least one.
    fn settle(&mut self, found: &mut Found) -> Result<(Vec<Segment>, i64)> {
        let mut segments = std::mem::take(&mut found.segments);
        self.load_epochs(&segments)?;
        let mut end = None;
        if self.params.clean {
            end = self.index_missing(&mut segments, &found.unindexed)?;
        } else if !segments.is_empty() {
            end = Some(self.recover(&mut segments, found)?);
        }
        let end = match (end, segments.last()) {
            (Some(end), _) => end,
            (None, Some(last)) => self.end_of(last, &found.snapshots)?,
            (None, None) => self.params.log_start_offset,
        };
        if segments.is_empty() || end < self.params.log_start_offset {
            return Ok((vec![self.start_anew(segments)?], self.params.log_start_offset.max(0)));
        }
        Ok((segments, end))
    }

    /// The epochs from their file; where it is lost or damaged, from the headers of the batches. Those of the segments that are recovered come with
    /// that.
    fn load_epochs(&mut self, segments: &[Segment]) -> Result<()> {
        let path = self.home.dir.join(EPOCHS);
        let text = read_text(&*self.home.disk, &path).ok().flatten();
        if let Some(epochs) = text.and_then(|text| EpochCache::parse(&path, &text).ok()) {
            self.epochs_in_file = Some(epochs.entries().to_vec());
            self.epochs = epochs;
            return Ok(());
        }
        let unread = if self.params.clean { segments.len() } else { self.first_to_recover(segments) };
        for segment in &segments[..unread] {
            let mut scan = segment.scan(&self.home, 0)?;
            while let Ok(Some(header)) = scan.next() {
                if self.epochs.latest().is_none_or(|latest| header.leader_epoch > latest) {
                    self.epochs.assign(header.leader_epoch, header.base_offset);
                }
            }
        }
        Ok(())
    }

    /// Number of the segment that holds the recovery point.
    fn first_to_recover(&self, segments: &[Segment]) -> usize {
        segments.partition_point(|segment| segment.base_offset <= self.params.recovery_point).saturating_sub(1)
    }

    fn rebuild(&mut self, segment: &mut Segment, producers: Option<&mut Producers>) -> Result<Rebuilt> {
        let rebuilt = rebuild(segment, &self.home, self.config.index_interval_bytes, &mut self.epochs, producers)?;
        self.recovery.segments_scanned += 1;
        self.recovery.bytes_scanned += rebuilt.read;
        Ok(rebuilt)
    }

    /// After an orderly stop: new indexes for the segments that lack them. Only the last segment is cut at a bad batch. Returns the log end
    /// if the last segment was read.
    fn index_missing(&mut self, segments: &mut [Segment], unindexed: &[i64]) -> Result<Option<i64>> {
        let count = segments.len();
        for (at, segment) in segments.iter_mut().enumerate() {
            if !unindexed.contains(&segment.base_offset) {
                continue;
            }
            let size = segment.size;
            let rebuilt = self.rebuild(segment, None)?;
            if at + 1 == count {
                self.note_damage(segment, rebuilt.valid, rebuilt.reason.as_ref());
                self.note_cut(rebuilt.reason, rebuilt.next_offset, size - rebuilt.valid);
                self.keep_tail(segment, size, rebuilt.next_offset, false)?;
                segment.cut_to_size(&self.home)?;
                return Ok(Some(rebuilt.next_offset));
            }
            self.note_damage(segment, rebuilt.valid, rebuilt.reason.as_ref());
            segment.size = size;
            segment.finish(&self.home)?;
        }
        Ok(None)
    }

    /// Checks the segments from the one that holds the recovery point on, and those without indexes before it. Returns the log end.
    fn recover(&mut self, segments: &mut Vec<Segment>, found: &Found) -> Result<i64> {
        let from = self.first_to_recover(segments);
        let first = segments[from].base_offset;
        self.index_missing_before(&mut segments[..from], &found.unindexed)?;
        self.epochs.truncate_from_end(first);
        let mut producers = state_at(&self.source(segments, first), from, &found.snapshots)?;
        let mut end = segments[from].base_offset;
        let mut compacted = self.config.compact;
        for at in from..segments.len() {
            let size = segments[at].size;
            let rebuilt = self.rebuild(&mut segments[at], Some(&mut producers))?;
            end = rebuilt.next_offset;
            compacted |= rebuilt.has_gaps;
            let gap = self.gap(end, &segments[at + 1..], compacted)?;
            if rebuilt.reason.is_some() || gap.is_some() {
                let later: u64 = segments[at + 1..].iter().map(|segment| segment.size).sum();
                let reason = rebuilt.reason.or(gap);
                self.note_damage(&segments[at], rebuilt.valid, reason.as_ref());
                self.note_cut(reason, end, size - rebuilt.valid + later);
                self.keep_tail(&segments[at], size, end, later > 0)?;
                self.drop_after(segments, at)?;
                segments[at].cut_to_size(&self.home)?;
                break;
            }
            segments[at].give_back_reserved(&self.home)?;
            if at + 1 < segments.len() {
                segments[at].finish(&self.home)?;
            }
        }
        self.recovered_from = Some(first);
        self.producers = Some(producers);
        Ok(end)
    }

    fn source<'s>(&'s self, segments: &'s [Segment], end: i64) -> Source<'s> {
        let expire = Some((self.params.now_ms, self.config.producer_id_expiration_ms));
        Source { home: &self.home, segments, end, clean: self.params.clean, expire }
    }

    /// Loads the transaction indexes of the segments that were not recovered, and makes those anew that can't be true.
    fn load_aborted(&mut self, segments: &mut [Segment], end: i64, found: &Found) -> Result<()> {
        let recovered = self.recovered_from.unwrap_or(i64::MAX);
        for at in 0..segments.len() {
            let base = segments[at].base_offset;
            if base >= recovered || !found.aborting.contains(&base) {
                continue;
            }
            let end = segments.get(at + 1).map_or(end, |next| next.base_offset);
            if let Some(sound) = Index::load_sound(&self.home, base, end)? {
                segments[at].set_aborted(sound);
                continue;
            }
            self.replace_aborted(segments, at, end, &found.snapshots)?;
            let sound = Index::load_sound(&self.home, base, end)?;
            sound.into_iter().for_each(|sound| segments[at].set_aborted(sound));
            self.recovery.segments_scanned += 1;
            self.recovery.bytes_scanned += segments[at].size;
            let path = self.home.segment_file(base, TXN_INDEX);
            self.recovery.reason.get_or_insert_with(|| format!("{} has entries that can't be true", path.display()));
        }
        Ok(())
    }

    /// Puts what the batches say in the place of a transaction index, durably.
    fn replace_aborted(&self, segments: &[Segment], at: usize, end: i64, snapshots: &[i64]) -> Result<()> {
        let base = segments[at].base_offset;
        let mut producers = state_at(&self.source(segments, end), at, snapshots)?;
        let mut bytes = Vec::new();
        replay(&self.source(&segments[at..=at], end), base, &mut producers, |aborted| {
            aborted.encode(base, &mut bytes);
            Ok(())
        })?;
        replace_file(&*self.home.disk, &self.home.segment_file(base, TXN_INDEX), &bytes)?;
        self.home.disk.sync_dir(&self.home.dir).context("syncing", &self.home.dir)
    }

    fn index_missing_before(&mut self, segments: &mut [Segment], unindexed: &[i64]) -> Result<()> {
        for segment in segments.iter_mut().filter(|segment| unindexed.contains(&segment.base_offset)) {
            let size = segment.size;
            let rebuilt = self.rebuild(segment, None)?;
            self.note_damage(segment, rebuilt.valid, rebuilt.reason.as_ref());
            segment.size = size;
            segment.finish(&self.home)?;
        }
        Ok(())
    }

    /// Why the first of the `later` segments cannot follow one that ends at `end`, if it cannot.
    ///
    /// Offsets are missing between segments only where compaction has been; elsewhere the end of the earlier one was lost. Compaction begins
    /// with the first segment, and what it cleans lies below the recovery point: where that is known, none of it is read here.
    fn gap(&self, end: i64, later: &[Segment], compacted: bool) -> Result<Option<String>> {
        let Some(base) = later.first().map(|next| next.base_offset) else { return Ok(None) };
        if base < end {
            return Ok(Some(format!("the next segment begins at {base}, below {end}")));
        }
        if base == end || compacted || base <= self.params.cleaned_to || has_gaps(later, &self.home)? {
            return Ok(None);
        }
        Ok(Some(format!("the next segment begins at {base}, {end} is missing")))
    }

    /// Notes where a segment is damaged, and why.
    fn note_damage(&mut self, segment: &Segment, position: u64, reason: Option<&String>) {
        if let Some(reason) = reason {
            self.recovery.reason = Some(reason.clone());
            self.recovery.place = Some((segment.path(&self.home), position));
        }
    }

    fn keep_tail(&mut self, segment: &Segment, size: u64, end: i64, anyway: bool) -> Result<()> {
        let kept = keep_tail(&self.home, segment, size, end, anyway)?;
        self.recovery.kept.extend(kept);
        Ok(())
    }

    fn note_cut(&mut self, reason: Option<String>, end: i64, bytes: u64) {
        if reason.is_some() {
            self.recovery.reason = reason;
            self.recovery.cut_at = Some(end);
            self.recovery.bytes_cut += bytes;
        }
    }

    /// Takes the segments behind number `at` out of the log, from the last one down, and makes that durable.
    fn drop_after(&mut self, segments: &mut Vec<Segment>, at: usize) -> Result<()> {
        if segments.len() == at + 1 {
            return Ok(());
        }
        for segment in segments.drain(at + 1..).rev() {
            let kept = keep_segment(&self.home, &segment)?;
            self.recovery.kept.extend(kept);
        }
        self.home.disk.sync_dir(&self.home.dir).context("syncing", &self.home.dir)
    }

    /// The log end after an orderly stop. A recovery point that a producer snapshot confirms is it; otherwise the headers behind the last index
    /// entry tell.
    fn end_of(&self, last: &Segment, snapshots: &[i64]) -> Result<i64> {
        let point = self.params.recovery_point;
        if point > last.base_offset && snapshots.contains(&point) {
            return Ok(point);
        }
        if last.size == 0 {
            return Ok(last.base_offset);
        }
        last.end_offset(&self.home)
    }

    /// Drops everything for an empty segment at the log start offset.
    fn start_anew(&mut self, mut segments: Vec<Segment>) -> Result<Segment> {
        if let Some(first) = segments.first() {
            let bytes = segments.iter().map(|segment| segment.size).sum();
            let reason = format!("the log ends below its start offset {}", self.params.log_start_offset);
            self.note_cut(Some(reason), self.params.log_start_offset, bytes);
            let path = first.path(&self.home);
            while let Some(segment) = segments.pop() {
                let kept = keep_segment(&self.home, &segment)?;
                self.recovery.kept.extend(kept);
            }
            self.home.disk.sync_dir(&self.home.dir).context("syncing", &path)?;
        }
        self.epochs.clear();
        self.recovered_from = None;
        self.producers = None;
        Segment::create(&self.home, self.params.log_start_offset.max(0), self.config.new_length())
    }

    fn finish(
        mut self,
        mut segments: Vec<Segment>,
        end: i64,
        found: &Found,
        origin: &Origin,
    ) -> Result<(Log, Recovery)> {
        let first = segments[0].base_offset;
        let log_start_offset = self.params.log_start_offset.max(first);
        let mut unchanged = self.epochs.version();
        self.epochs.truncate_from_end(end + 1);
        let without_records = self.epochs.version();
        self.epochs.truncate_from_end(end);
        // An epoch without records gives way to the next leader's: that is no change to keep.
        unchanged += self.epochs.version() - without_records;
        self.epochs.truncate_from_start(log_start_offset);
        self.load_aborted(&mut segments, end, found)?;
        let mut restored = restore(&self.source(&segments, end), &found.snapshots)?;
        // A recovery that found no sound snapshot knows nothing of producers whose batches are deleted; a later snapshot may.
        let met = self.producers.take().filter(|met| met.states().eq(restored.producers.states()));
        restored.producers = met.unwrap_or(restored.producers);
        if !origin.created {
            // Thousands of logs hold no file open that only a start has looked into.
            segments.iter_mut().for_each(Segment::release);
        }
        let Loader { home, config, params, recovery, mut epochs, epochs_in_file, .. } = self;
        let at_end = restored.snapshot == Some(end);
        let complete = at_end || (segments.iter().all(|segment| segment.size == 0) && restored.producers.is_empty());
        let lost = epochs_in_file.is_none() && !epochs.entries().is_empty();
        let unread = recovery == Recovery::default() && epochs.version() == unchanged && !lost;
        let untouched = params.clean && !origin.created && complete && unread;
        let with_records = |entry: &&EpochEntry| entry.start_offset < end;
        if epochs_in_file.is_some_and(|in_file| in_file.iter().filter(with_records).eq(epochs.entries())) {
            epochs.is_as_in_file();
        }
        let log = Log {
            home,
            config,
            log_start_offset,
            log_end_offset: end,
            flushed_to: if params.clean { end } else { params.recovery_point.clamp(first, end) },
            epochs,
            recent: super::Recent::default(),
            producers: restored.producers,
            synced_snapshot: (params.clean && at_end).then_some(end),
            written_snapshot: at_end.then_some(end),
            only_led: 0,
            shared: Arc::default(),
            generation: 0,
            marks: Marks { names: u64::from(!untouched), parent: u64::from(origin.fresh), epochs: 0 },
            synced: Marks::default(),
            removed: 0,
            flushes: 0,
            rolled: false,
            active_since_ms: params.now_ms,
            closed_cleanly: untouched,
            closed: false,
            segments,
        };
        Ok((log, recovery))
    }
}
