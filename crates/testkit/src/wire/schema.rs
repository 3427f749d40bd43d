//! The schemas: read from the protocol crate's `schema/*.json` when first asked for, then kept.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// An inclusive range of versions; an empty one for `none`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Versions(RangeInclusive<i16>);

impl Versions {
    fn parse(text: &str) -> Result<Self> {
        let number = |t: &str| t.parse::<i16>().with_context(|| format!("versions {text}"));
        Ok(Self(match (text, text.split_once('-')) {
            ("none", _) => return Ok(Self::none()),
            (_, Some((first, last))) => number(first)?..=number(last)?,
            (_, None) => match text.strip_suffix('+') {
                Some(first) => number(first)?..=i16::MAX,
                None => number(text)?..=number(text)?,
            },
        }))
    }

    fn of(object: &Value, key: &str) -> Result<Self> {
        object[key].as_str().map_or(Ok(Self::none()), Self::parse)
    }

    /// No version at all.
    pub(super) fn none() -> Self {
        Self(RangeInclusive::new(1, 0))
    }

    pub(super) fn contains(&self, version: i16) -> bool {
        self.0.contains(&version)
    }
}

/// The type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Type {
    Bool,
    /// Bytes wide, and whether it has a sign.
    Int(u8, bool),
    Float,
    Uuid,
    String,
    Bytes,
    Records,
    Struct,
    Array(Box<Type>),
}

impl Type {
    fn parse(text: &str) -> Self {
        match text {
            "bool" => Self::Bool,
            "int8" => Self::Int(1, true),
            "int16" => Self::Int(2, true),
            "int32" => Self::Int(4, true),
            "int64" => Self::Int(8, true),
            "uint16" => Self::Int(2, false),
            "uint32" => Self::Int(4, false),
            "float64" => Self::Float,
            "uuid" => Self::Uuid,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "records" => Self::Records,
            _ => match text.strip_prefix("[]") {
                Some(element) => Self::Array(Box::new(Self::parse(element))),
                None => Self::Struct,
            },
        }
    }
}

/// One field of a message or struct.
#[derive(Debug, Clone)]
pub(super) struct Field {
    /// The name in JSON.
    pub(super) key: String,
    pub(super) kind: Type,
    pub(super) versions: Versions,
    pub(super) nullable: Versions,
    pub(super) tagged: Versions,
    pub(super) tag: u32,
    pub(super) flexible: Option<Versions>,
    pub(super) default: Value,
    pub(super) fields: Vec<Field>,
}

impl Field {
    fn parse(object: &Value) -> Result<Self> {
        let name = object["name"].as_str().context("a field without a name")?;
        let kind = Type::parse(object["type"].as_str().context("a field without a type")?);
        let fields = object["fields"].as_array().map_or(Ok(Vec::new()), |f| f.iter().map(Self::parse).collect())?;
        Ok(Self {
            key: name[..1].to_lowercase() + &name[1..],
            default: default(&kind, object["default"].as_str()),
            kind,
            versions: Versions::of(object, "versions")?,
            nullable: Versions::of(object, "nullableVersions")?,
            tagged: Versions::of(object, "taggedVersions")?,
            tag: object["tag"].as_u64().and_then(|t| u32::try_from(t).ok()).unwrap_or(0),
            flexible: object["flexibleVersions"].as_str().map(Versions::parse).transpose()?,
            fields,
        })
    }
}

fn default(kind: &Type, text: Option<&str>) -> Value {
    match (kind, text) {
        (_, Some("null")) => Value::Null,
        (Type::Bool, text) => Value::Bool(text == Some("true")),
        (Type::Int(..), text) => text.unwrap_or("0").parse::<i64>().unwrap_or(0).into(),
        (Type::Float, text) => text.unwrap_or("0").parse::<f64>().unwrap_or(0.0).into(),
        (Type::Uuid, _) => "AAAAAAAAAAAAAAAAAAAAAA".into(),
        (Type::String | Type::Bytes, text) => text.unwrap_or("").into(),
        (Type::Records, _) => Value::Null,
        (Type::Struct, _) => Value::Object(serde_json::Map::new()),
        (Type::Array(_), _) => Value::Array(Vec::new()),
    }
}

/// A message definition.
#[derive(Debug, Clone)]
pub struct Schema {
    /// The key of a request, reply or record.
    pub api_key: Option<i16>,
    /// The versions that exist.
    valid: Versions,
    flexible: Versions,
    pub(super) fields: Vec<Field>,
}

impl Schema {
    /// Whether this version uses compact lengths and tagged fields.
    #[must_use]
    pub fn is_flexible(&self, version: i16) -> bool {
        self.flexible.contains(version)
    }

    /// `body` without the fields that this version does not have.
    pub(super) fn fit(&self, version: i16, body: &Value) -> Value {
        fit(&self.fields, version, body)
    }

    /// The versions that exist.
    #[must_use]
    pub fn versions(&self) -> RangeInclusive<i16> {
        self.valid.0.clone()
    }
}

fn fit(fields: &[Field], version: i16, body: &Value) -> Value {
    match body {
        Value::Array(all) => all.iter().map(|one| fit(fields, version, one)).collect(),
        Value::Object(object) => {
            let known = |name: &str| fields.iter().find(|f| f.key == name);
            let kept = object.iter().filter(|(name, _)| known(name).is_none_or(|f| f.versions.contains(version)));
            let fitted = kept.map(|(name, value)| {
                let inner = known(name).map_or(&[][..], |f| &f.fields);
                (name.clone(), fit(inner, version, value))
            });
            Value::Object(fitted.collect())
        }
        other => other.clone(),
    }
}

type Cache = Mutex<HashMap<String, Arc<Schema>>>;
static CACHE: LazyLock<Cache> = LazyLock::new(Cache::default);

fn folder() -> PathBuf {
    crate::cache::repository().join("crates/protocol/schema")
}

/// The definition of a message, by its full name (`MetadataRequest`).
///
/// # Errors
/// When there is none.
pub fn schema(name: &str) -> Result<Arc<Schema>> {
    let mut cache = CACHE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(found) = cache.get(name) {
        return Ok(found.clone());
    }
    let path = folder().join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let object: Value = serde_json::from_str(&text).with_context(|| format!("{}", path.display()))?;
    let Some(fields) = object["fields"].as_array() else { bail!("{name} has no fields") };
    let parsed = Arc::new(Schema {
        api_key: object["apiKey"].as_i64().and_then(|k| i16::try_from(k).ok()),
        valid: Versions::of(&object, "validVersions")?,
        flexible: Versions::of(&object, "flexibleVersions")?,
        fields: fields.iter().map(Field::parse).collect::<Result<_>>()?,
    });
    cache.insert(name.to_owned(), parsed.clone());
    Ok(parsed)
}

/// The names of all APIs with their keys, in key order.
///
/// # Errors
/// When the schemas cannot be read.
pub fn apis() -> Result<Vec<(i16, String)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        let Some(api) = file.strip_suffix("Request.json") else { continue };
        if let Some(key) = schema(&format!("{api}Request"))?.api_key {
            found.push((key, api.to_owned()));
        }
    }
    found.sort();
    Ok(found)
}
