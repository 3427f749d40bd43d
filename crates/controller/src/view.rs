//! What every decision reads, and what it gives back beside a response.

use milena_config::BrokerConfig;
use milena_metadata::Image;
use milena_protocol::MetadataRecord;

/// Records to append to the metadata log in one batch, in this order. Each is written in the version that the image's
/// metadata version asks for, and holds only fields of that version.
pub type Records = Vec<MetadataRecord<'static>>;

/// The state a decision is made on.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The cluster's metadata, with everything that was decided before.
    pub image: &'a Image,
    /// The level of `kraft.version`, which the image has no word of.
    pub kraft_version: i16,
    /// The deciding node's settings, dynamic ones included: defaults of topics, limits of groups, what is allowed.
    pub config: &'a BrokerConfig,
}
