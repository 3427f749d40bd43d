//! Kafka's message definitions as data. Versions are ranges here, and a struct that is used twice in a message is one.

use serde_json::Value;

/// Arrays of structs that an encoder may also be given in their encoded form: struct and field.
const GIVEN_ENCODED: [(&str, &str); 1] = [("MetadataResponseTopic", "Partitions")];

/// An inclusive range of versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) lo: i16,
    pub(super) hi: i16,
}

impl Range {
    /// `3`, `3-5`, or `3+`, which ends at `newest`; `None` for `none`.
    fn parse(text: &str, newest: i16) -> Option<Range> {
        let number = |text: &str| text.parse::<i16>().unwrap_or_else(|_| panic!("version `{text}`"));
        if text == "none" {
            return None;
        }
        if let Some(lo) = text.strip_suffix('+') {
            return Some(Range { lo: number(lo), hi: newest });
        }
        let (lo, hi) = text.split_once('-').unwrap_or((text, text));
        Some(Range { lo: number(lo), hi: number(hi) })
    }

    pub(super) fn contains(self, version: i16) -> bool {
        self.lo <= version && version <= self.hi
    }

    /// The versions in both.
    pub(super) fn and(self, other: Range) -> Range {
        Range { lo: self.lo.max(other.lo), hi: self.hi.min(other.hi) }
    }

    /// The smallest range with the versions of both.
    fn or(self, other: Range) -> Range {
        Range { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    /// As in the definitions: `3-5`, `3+` or `3`.
    pub(super) fn text(self, newest: i16) -> String {
        match self {
            Range { lo, hi } if hi == newest => format!("{lo}+"),
            Range { lo, hi } if lo == hi => lo.to_string(),
            Range { lo, hi } => format!("{lo}-{hi}"),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Type {
    /// A fixed-size type under its Rust name: `bool`, `i32`, `f64`, `Uuid`, ...
    Primitive(&'static str),
    String,
    Bytes,
    Records,
    Struct(String),
    Array(Box<Type>),
}

impl Type {
    fn parse(text: &str) -> Type {
        if let Some(element) = text.strip_prefix("[]") {
            return Type::Array(Box::new(Type::parse(element)));
        }
        match text {
            "bool" => Type::Primitive("bool"),
            "int8" => Type::Primitive("i8"),
            "int16" => Type::Primitive("i16"),
            "uint16" => Type::Primitive("u16"),
            "int32" => Type::Primitive("i32"),
            "uint32" => Type::Primitive("u32"),
            "int64" => Type::Primitive("i64"),
            "float64" => Type::Primitive("f64"),
            "uuid" => Type::Primitive("Uuid"),
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "records" => Type::Records,
            name => Type::Struct(name.to_owned()),
        }
    }
}

#[derive(Clone)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) kind: Type,
    /// As the definition spells it, for the documentation.
    pub(super) kind_text: String,
    pub(super) versions: Range,
    pub(super) nullable: Option<Range>,
    pub(super) tag: Option<u32>,
    pub(super) default: Option<String>,
    pub(super) ignorable: bool,
    /// The field stays in the old encoding in flexible versions.
    pub(super) never_flexible: bool,
    /// An array that is a `Structs`, not a vector.
    pub(super) given_encoded: bool,
}

/// A message's own fields (the first struct), or those of a nested struct.
pub(super) struct Struct {
    pub(super) name: String,
    pub(super) fields: Vec<Field>,
    /// Versions in which the struct can occur at all.
    pub(super) reach: Range,
    /// Whether the Rust type has a lifetime.
    pub(super) borrows: bool,
}

pub(super) struct Message {
    pub(super) name: String,
    /// `request`, `response`, `header`, `metadata`, `coordinator-key`, `coordinator-value` or `data`.
    pub(super) kind: String,
    pub(super) api_key: Option<i16>,
    pub(super) valid: Range,
    pub(super) flexible_from: Option<i16>,
    pub(super) listeners: Vec<String>,
    pub(super) latest_unstable: bool,
    pub(super) structs: Vec<Struct>,
}

impl Message {
    pub(super) fn parse(json: &str) -> Message {
        let json: Value = serde_json::from_str(json).expect("a definition is JSON");
        let valid = Range::parse(text(&json, "validVersions"), i16::MAX).expect("a message has versions");
        let flexible = Range::parse(text(&json, "flexibleVersions"), valid.hi);
        let name = text(&json, "name").to_owned();
        let mut structs = Vec::new();
        collect(&mut structs, &name, &json, valid, valid);
        mark_borrowing(&mut structs);
        Message {
            kind: text(&json, "type").to_owned(),
            api_key: json["apiKey"].as_i64().map(|key| i16::try_from(key).expect("an int16")),
            flexible_from: flexible.map(|range| range.lo),
            listeners: json["listeners"].as_array().into_iter().flatten().map(|x| plain(x).to_owned()).collect(),
            latest_unstable: json["latestVersionUnstable"].as_bool().unwrap_or(false),
            name,
            valid,
            structs,
        }
    }

    pub(super) fn root(&self) -> &Struct {
        &self.structs[0]
    }

    pub(super) fn find(&self, name: &str) -> &Struct {
        self.structs.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("no struct {name} in {}", self.name))
    }
}

fn plain(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn text<'a>(json: &'a Value, key: &str) -> &'a str {
    json[key].as_str().unwrap_or_else(|| panic!("no `{key}` in {json}"))
}

/// Adds the struct `name` with the fields of `json`, and those nested in it.
fn collect(structs: &mut Vec<Struct>, name: &str, json: &Value, reach: Range, valid: Range) {
    let entries = json["fields"].as_array().expect("a struct has fields");
    if let Some(known) = structs.iter_mut().find(|s| s.name == name) {
        known.reach = known.reach.or(reach);
    } else {
        let mut fields: Vec<Field> = entries.iter().map(|entry| field(entry, valid)).collect();
        for field in &mut fields {
            field.given_encoded = GIVEN_ENCODED.contains(&(name, &field.name));
        }
        structs.push(Struct { name: name.to_owned(), fields, reach, borrows: false });
    }
    for entry in entries.iter().filter(|entry| entry.get("fields").is_some()) {
        let name = text(entry, "type").trim_start_matches("[]");
        let versions = field(entry, valid).versions;
        collect(structs, name, entry, versions.and(reach), valid);
    }
}

fn field(json: &Value, valid: Range) -> Field {
    let range = |key: &str| json[key].as_str().and_then(|text| Range::parse(text, valid.hi));
    let versions = range("versions").expect("a field has versions").and(valid);
    let tag = json["tag"].as_u64().map(|tag| u32::try_from(tag).expect("a small number"));
    assert!(tag.is_none() || range("taggedVersions").is_some_and(|tagged| tagged.and(valid) == versions), "{json}");
    Field {
        name: text(json, "name").to_owned(),
        kind: Type::parse(text(json, "type")),
        kind_text: text(json, "type").to_owned(),
        versions,
        nullable: range("nullableVersions").map(|range| range.and(versions)),
        tag,
        default: json["default"].as_str().map(str::to_owned),
        ignorable: json["ignorable"].as_bool().unwrap_or(false),
        never_flexible: json["flexibleVersions"].as_str() == Some("none"),
        given_encoded: false,
    }
}

/// Nested structs come after the struct that has them, so one pass from the end would do, were it not for those used
/// twice; hence until nothing changes.
fn mark_borrowing(structs: &mut [Struct]) {
    loop {
        let borrowing: Vec<String> = structs.iter().filter(|s| s.borrows).map(|s| s.name.clone()).collect();
        let mut changed = false;
        for s in structs.iter_mut().filter(|s| !s.borrows) {
            s.borrows = s.fields.iter().any(|field| borrows(&field.kind, &borrowing));
            changed |= s.borrows;
        }
        if !changed {
            return;
        }
    }
}

fn borrows(kind: &Type, borrowing: &[String]) -> bool {
    match kind {
        Type::Primitive(_) => false,
        Type::String | Type::Bytes | Type::Records => true,
        Type::Struct(name) => borrowing.contains(name),
        Type::Array(element) => matches!(**element, Type::Primitive(_)) || borrows(element, borrowing),
    }
}
