//! Decoding: one struct literal whose fields stand in wire order, then the tagged section.

use crate::codegen::schema::{Field, Message, Struct, Type};
use crate::codegen::{names, types};

/// `fn dec` of a struct.
pub(super) fn function(message: &Message, s: &Struct) -> String {
    let tagged = types::tagged(s);
    let mutable = if tagged.is_empty() { "" } else { "mut " };
    let mut out = "fn dec(r: &mut Reader<'a>, v: i16) -> Result<Self, DecodeError> {\n".to_owned();
    out += &types::define_flexible(message, s);
    out += &format!("let {mutable}m = Self {{\n");
    for field in types::untagged(s) {
        out += &format!("{}: {},\n", names::field(&field.name), untagged(message, s, field));
    }
    for (_, field) in &tagged {
        out += &format!("{}: {},\n", names::field(&field.name), types::default(field));
    }
    out += "};\n";
    out += &tags(message, s, &tagged);
    out + "Ok(m)\n}\n"
}

fn untagged(message: &Message, s: &Struct, field: &Field) -> String {
    let value = value(s, field, types::field_flexible(message, s, field));
    match types::within(field.versions, s.reach) {
        Some(condition) => format!("if {condition} {{ {value} }} else {{ {} }}", types::default(field)),
        None => value,
    }
}

/// The field's value, given that it exists in the version.
fn value(s: &Struct, field: &Field, flexible: &str) -> String {
    let Some(nullable) = field.nullable else {
        let value = call(&field.kind, false, flexible);
        return if field.given_encoded { format!("Structs::Items({value})") } else { value };
    };
    let some = call(&field.kind, true, flexible);
    match types::within(nullable, field.versions.and(s.reach)) {
        Some(condition) => {
            let plain = call(&field.kind, false, flexible);
            let plain = if field.kind == Type::Records { plain } else { format!("Some({plain})") };
            format!("if {condition} {{ {some} }} else {{ {plain} }}")
        }
        None => some,
    }
}

fn call(kind: &Type, nullable: bool, flexible: &str) -> String {
    let opt = if nullable { "opt_" } else { "" };
    match kind {
        Type::Primitive(name) => format!("r.{}()?", name.to_lowercase()),
        Type::String => format!("r.{opt}string({flexible})?"),
        Type::Bytes => format!("r.{opt}bytes({flexible})?"),
        Type::Records => format!("r.{opt}records({flexible})?"),
        Type::Struct(_) if nullable => "r.opt_struct(v)?".to_owned(),
        Type::Struct(_) => "Wire::dec(r, v)?".to_owned(),
        Type::Array(element) => match **element {
            Type::Primitive(_) => format!("r.{opt}primitives({flexible})?"),
            Type::String => format!("r.{opt}strings({flexible})?"),
            _ => format!("r.{opt}structs({flexible}, v)?"),
        },
    }
}

fn tags(message: &Message, s: &Struct, tagged: &[(u32, &Field)]) -> String {
    let flexible = types::flexible(message, s);
    if flexible == "false" {
        assert!(tagged.is_empty(), "tags without a flexible version in {}", s.name);
        return String::new();
    }
    if tagged.is_empty() {
        return format!("r.skip_tags({flexible})?;\n");
    }
    let mut arms = String::new();
    let mut known = Vec::new();
    for (tag, field) in tagged {
        let guard =
            types::within(field.versions, s.reach).map_or(String::new(), |condition| format!(" if {condition}"));
        if !guard.is_empty() {
            known.push(tag.to_string());
        }
        let value = match (&field.kind, field.nullable) {
            (Type::Struct(_), Some(_)) => "r.opt_tagged_struct(v)?".to_owned(),
            _ => value(s, field, "true"),
        };
        arms += &format!("{tag}{guard} => m.{} = {value},\n", names::field(&field.name));
    }
    let known = if known.is_empty() { "false".to_owned() } else { format!("matches!(t, {})", known.join(" | ")) };
    let body = format!(
        "for _ in 0..r.tag_count()? {{
let (t, size) = r.tag()?;
match t {{
{arms}_ => r.unknown_tag((t, size), {known}, v)?,
}}
}}
"
    );
    if flexible == "true" { body } else { format!("if {flexible} {{\n{body}}}\n") }
}
