//! The metadata image as requests see it, and the answers made of it that are the same for every client: they are
//! encoded at the first request and go with the image.

use std::ops::Deref;
use std::sync::Arc;

use milena_metadata::{Image, Topic};
use milena_protocol::{EncodeError, Uuid};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Most bytes of encoded partitions kept beside one image; what comes later is encoded for every answer.
const MAX_ENCODED_BYTES: usize = 8 << 20;

/// An image that requests see.
#[derive(Default)]
pub struct Published {
    image: Image,
    encoded: Mutex<Encoded>,
}

/// The partitions of topics as Metadata tells them, by version and topic.
#[derive(Default)]
struct Encoded {
    topics: FxHashMap<(i16, Uuid), Vec<AtListener>>,
    bytes: usize,
}

/// A listener, and what is told there.
type AtListener = (Arc<str>, Arc<[u8]>);

impl Published {
    /// The encoded partitions of a topic of this image, as clients of a listener and a version see them; `encode` says
    /// what they are.
    ///
    /// # Errors
    /// Those of `encode`.
    pub fn encoded_partitions(
        &self,
        topic: &Topic,
        listener: &Arc<str>,
        version: i16,
        encode: impl FnOnce() -> Result<Arc<[u8]>, EncodeError>,
    ) -> Result<Arc<[u8]>, EncodeError> {
        let key = (version, topic.id);
        let known = |encoded: &Encoded| {
            let mut known = encoded.topics.get(&key)?.iter();
            known.find(|(name, _)| name == listener).map(|(_, bytes)| Arc::clone(bytes))
        };
        if let Some(bytes) = known(&self.encoded.lock()) {
            return Ok(bytes);
        }
        let bytes = encode()?;
        let mut encoded = self.encoded.lock();
        if known(&encoded).is_none() && encoded.bytes + bytes.len() <= MAX_ENCODED_BYTES {
            encoded.bytes += bytes.len();
            encoded.topics.entry(key).or_default().push((Arc::clone(listener), Arc::clone(&bytes)));
        }
        Ok(bytes)
    }
}

impl From<Image> for Published {
    fn from(image: Image) -> Self {
        Self { image, encoded: Mutex::default() }
    }
}

impl Deref for Published {
    type Target = Image;

    fn deref(&self) -> &Image {
        &self.image
    }
}
