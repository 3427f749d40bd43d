//! What a field is in Rust: its type, its default, the test for "not at its default", and the versions it exists in.

use crate::codegen::names;
use crate::codegen::schema::{Field, Message, Range, Struct, Type};

/// The type's name with its lifetime, if it has one.
pub(super) fn struct_name(s: &Struct) -> String {
    format!("{}{}", s.name, if s.borrows { "<'a>" } else { "" })
}

fn plain(message: &Message, kind: &Type) -> String {
    match kind {
        Type::Primitive(name) => (*name).to_owned(),
        Type::String => "Str<'a>".to_owned(),
        Type::Bytes => "Cow<'a, [u8]>".to_owned(),
        Type::Records => "Records<'a>".to_owned(),
        Type::Struct(name) => struct_name(message.find(name)),
        Type::Array(element) => match &**element {
            Type::Primitive(name) => format!("Cow<'a, [{name}]>"),
            other => format!("Vec<{}>", plain(message, other)),
        },
    }
}

/// Whether the Rust type is an `Option`.
pub(super) fn is_option(field: &Field) -> bool {
    field.nullable.is_some() || field.kind == Type::Records
}

/// The field's Rust type.
pub(super) fn rust(message: &Message, field: &Field) -> String {
    let plain = match &field.kind {
        Type::Array(element) if field.given_encoded => format!("Structs<{}>", plain(message, element)),
        kind => plain(message, kind),
    };
    if is_option(field) { format!("Option<{plain}>") } else { plain }
}

pub(super) fn defaults_to_null(field: &Field) -> bool {
    field.default.as_deref() == Some("null") || (field.kind == Type::Records && field.default.is_none())
}

/// A primitive's default, when it is not zero.
fn number(field: &Field) -> Option<&str> {
    let zero = ["0", "false", ""];
    field.default.as_deref().filter(|text| !zero.contains(text))
}

/// Whether `Default::default()` of the Rust type is another value than Kafka's default.
pub(super) fn needs_default(field: &Field) -> bool {
    match field.kind {
        Type::Primitive(_) => number(field).is_some(),
        _ => is_option(field) && !defaults_to_null(field),
    }
}

/// The default as an expression.
pub(super) fn default(field: &Field) -> String {
    if defaults_to_null(field) {
        return "None".to_owned();
    }
    let value = match &field.kind {
        Type::Primitive("bool") => number(field).unwrap_or("false").to_owned(),
        Type::Primitive("Uuid") => "Uuid::ZERO".to_owned(),
        Type::Primitive(name) => number(field).map_or_else(|| format!("0 as {name}"), str::to_owned),
        Type::String => "Cow::Borrowed(\"\")".to_owned(),
        Type::Array(_) if field.given_encoded => "Structs::default()".to_owned(),
        Type::Array(element) if !matches!(**element, Type::Primitive(_)) => "Vec::new()".to_owned(),
        Type::Bytes | Type::Array(_) => "Cow::Borrowed(&[])".to_owned(),
        Type::Struct(_) => "Default::default()".to_owned(),
        Type::Records => unreachable!("records default to null"),
    };
    if is_option(field) { format!("Some({value})") } else { value }
}

/// The test whether the field of `self` is not at its default.
pub(super) fn differs(field: &Field) -> String {
    let me = format!("self.{}", names::field(&field.name));
    if defaults_to_null(field) {
        return format!("{me}.is_some()");
    }
    match (&field.kind, is_option(field)) {
        (Type::Primitive("bool"), _) if number(field).is_none() => me,
        (Type::Primitive(_), _) => format!("{me} != {}", default(field)),
        (Type::Struct(name), false) => format!("{me} != {name}::default()"),
        (Type::Struct(name), true) => format!("{me} != Some({name}::default())"),
        (_, false) => format!("!{me}.is_empty()"),
        (_, true) => format!("!{me}.as_ref().is_some_and(|x| x.is_empty())"),
    }
}

/// The test on `v` for `range`, given that `v` is within `reach`; `None` when it is always true.
pub(super) fn within(range: Range, reach: Range) -> Option<String> {
    let lo = (range.lo > reach.lo).then(|| format!("v >= {}", range.lo));
    let hi = (range.hi < reach.hi).then(|| format!("v <= {}", range.hi));
    match (lo, hi) {
        (Some(lo), Some(hi)) => Some(format!("{lo} && {hi}")),
        (lo, hi) => lo.or(hi),
    }
}

/// Whether versions are flexible, as an expression: `true`, `false`, or the local `fx`.
pub(super) fn flexible(message: &Message, s: &Struct) -> &'static str {
    match message.flexible_from {
        Some(from) if from <= s.reach.lo => "true",
        Some(from) if from <= s.reach.hi => "fx",
        _ => "false",
    }
}

/// The same for a field, which may differ from its message.
pub(super) fn field_flexible(message: &Message, s: &Struct, field: &Field) -> &'static str {
    if field.never_flexible { "false" } else { flexible(message, s) }
}

/// The line that defines `fx`, where it is needed.
pub(super) fn define_flexible(message: &Message, s: &Struct) -> String {
    match message.flexible_from {
        Some(from) if flexible(message, s) == "fx" => format!("let fx = v >= {from};\n"),
        _ => String::new(),
    }
}

/// Fields outside the tagged section, in wire order.
pub(super) fn untagged(s: &Struct) -> impl Iterator<Item = &Field> {
    s.fields.iter().filter(|field| field.tag.is_none())
}

/// Fields of the tagged section by ascending tag, which is not the declared order.
pub(super) fn tagged(s: &Struct) -> Vec<(u32, &Field)> {
    let mut fields: Vec<_> = s.fields.iter().filter_map(|field| Some((field.tag?, field))).collect();
    fields.sort_by_key(|(tag, _)| *tag);
    fields
}

/// The fewest bytes that the struct can take, over all versions in which it occurs.
pub(super) fn min_size(message: &Message, s: &Struct) -> usize {
    (s.reach.lo..=s.reach.hi).map(|version| min_size_in(message, s, version)).min().expect("a version")
}

fn min_size_in(message: &Message, s: &Struct, version: i16) -> usize {
    let flexible = message.flexible_from.is_some_and(|from| from <= version);
    let fields = untagged(s).filter(|field| field.versions.contains(version));
    let size = fields.map(|field| {
        let flexible = flexible && !field.never_flexible;
        match &field.kind {
            Type::Primitive("bool" | "i8") => 1,
            Type::Primitive("i16" | "u16") => 2,
            Type::Primitive("i32" | "u32") => 4,
            Type::Primitive("i64" | "f64") => 8,
            Type::Primitive(_) => 16,
            Type::Struct(_) if field.nullable.is_some_and(|range| range.contains(version)) => 1,
            Type::Struct(name) => min_size_in(message, message.find(name), version),
            _ if flexible => 1,
            Type::String => 2,
            Type::Bytes | Type::Records | Type::Array(_) => 4,
        }
    });
    size.sum::<usize>() + usize::from(flexible)
}
