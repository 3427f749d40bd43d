//! Batches of the metadata log become images. Knows metadata transactions: between begin and end nothing is published,
//! and an abort forgets what came in between.

use milena_protocol::MetadataRecord;

use crate::delta::Delta;
use crate::error::ReplayError;
use crate::image::{Image, Provenance};
use crate::replay::ImageBuilder;

/// An image that is now current, and what changed since the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The image.
    pub image: Image,
    /// Names what is different from the image before.
    pub delta: Delta,
}

/// Replays the metadata log batch by batch.
#[derive(Debug)]
pub struct Loader {
    image: Image,
    /// Records of an open transaction, already replayed.
    transaction: Option<ImageBuilder>,
}

impl Loader {
    /// A loader that continues after `image`.
    pub fn new(image: Image) -> Self {
        Self { image, transaction: None }
    }

    /// The last published image.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Whether a transaction has begun and neither ended nor been aborted.
    pub fn in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Replays one batch whose first record is at `base_offset` and whose last one is at `provenance`. Returns the images
    /// this publishes, in order: none while a transaction stays open, two when one begins after other records.
    ///
    /// # Errors
    /// [`ReplayError`]; the loader must not be used further.
    pub fn load<'a, 'r: 'a>(
        &mut self,
        base_offset: i64,
        records: impl IntoIterator<Item = &'a MetadataRecord<'r>>,
        provenance: Provenance,
    ) -> Result<Vec<Loaded>, ReplayError> {
        let mut published = Vec::new();
        let mut open = self.transaction.is_some();
        let mut builder = self.transaction.take().unwrap_or_else(|| ImageBuilder::new(&self.image));
        for (offset, record) in (base_offset..).zip(records) {
            let wrong = |found, expected| Err(ReplayError::Transaction { offset, found, expected });
            match record {
                MetadataRecord::BeginTransaction(_) if open => {
                    return wrong("BeginTransactionRecord", "a transaction is already open");
                }
                MetadataRecord::BeginTransaction(_) => {
                    if offset > base_offset {
                        let before = Provenance { last_contained_offset: offset - 1, ..provenance };
                        published.push(self.publish(builder, before)?);
                    }
                    builder = ImageBuilder::new(&self.image);
                    open = true;
                }
                MetadataRecord::EndTransaction(_) if open => open = false,
                MetadataRecord::EndTransaction(_) => return wrong("EndTransactionRecord", "no transaction is open"),
                MetadataRecord::AbortTransaction(_) if open => {
                    builder = ImageBuilder::new(&self.image);
                    open = false;
                }
                MetadataRecord::AbortTransaction(_) => {
                    return wrong("AbortTransactionRecord", "no transaction is open");
                }
                record => builder.replay(record)?,
            }
        }
        if open {
            self.transaction = Some(builder);
        } else {
            published.push(self.publish(builder, provenance)?);
        }
        Ok(published)
    }

    fn publish(&mut self, builder: ImageBuilder, provenance: Provenance) -> Result<Loaded, ReplayError> {
        let (image, delta) = builder.finish(provenance)?;
        self.image = image.clone();
        Ok(Loaded { image, delta })
    }
}
