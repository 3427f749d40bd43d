//! Client quotas as recorded.

use std::collections::BTreeMap;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

/// Whom a quota is for: entity type (`user`, `client-id`, `ip`) to name, `None` being the default of that type.
pub type QuotaEntity = BTreeMap<String, Option<String>>;

/// Quota key to value.
pub type QuotaValues = BTreeMap<String, f64>;

/// All quotas. A clone shares everything with its source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientQuotas {
    entities: RedBlackTreeMapSync<QuotaEntity, Arc<QuotaValues>>,
}

impl ClientQuotas {
    /// The quotas of exactly this entity.
    pub fn get(&self, entity: &QuotaEntity) -> Option<&Arc<QuotaValues>> {
        self.entities.get(entity)
    }

    /// All entities with quotas.
    pub fn iter(&self) -> impl Iterator<Item = (&QuotaEntity, &Arc<QuotaValues>)> {
        self.entities.iter()
    }

    pub(crate) fn set(&mut self, entity: &QuotaEntity, key: &str, value: Option<f64>) {
        let mut values = self.entities.get(entity).cloned().unwrap_or_default();
        let map = Arc::make_mut(&mut values);
        match value {
            Some(value) => map.insert(key.to_owned(), value),
            None => map.remove(key),
        };
        if values.is_empty() {
            self.entities.remove_mut(entity);
        } else {
            self.entities.insert_mut(entity.clone(), values);
        }
    }
}
