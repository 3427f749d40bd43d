//! Encoding: fields in wire order, then the tagged section: the number of fields that differ from their default, and
//! those fields by ascending tag.

use crate::codegen::schema::{Field, Message, Struct, Type};
use crate::codegen::{names, types};

/// `fn enc` of a struct.
pub(super) fn function(message: &Message, s: &Struct) -> String {
    let mut out = "fn enc(&self, w: &mut Writer, v: i16) -> Result<(), EncodeError> {\n".to_owned();
    out += &types::define_flexible(message, s);
    for field in types::untagged(s) {
        out += &untagged(message, s, field);
    }
    out += &tags(message, s);
    out + "Ok(())\n}\n"
}

fn untagged(message: &Message, s: &Struct, field: &Field) -> String {
    let value = value(s, field, types::field_flexible(message, s, field));
    match types::within(field.versions, s.reach) {
        Some(condition) if field.ignorable => format!("if {condition} {{\n{value}}}\n"),
        Some(condition) => format!("if {condition} {{\n{value}}} else {{\n{}}}\n", absent(s, field)),
        None => value,
    }
}

/// The field must be at its default in versions without it.
fn absent(s: &Struct, field: &Field) -> String {
    format!("absent({}, \"{}.{}\", v)?;\n", types::differs(field), s.name, field.name)
}

/// Writes the field, given that it exists in the version.
fn value(s: &Struct, field: &Field, flexible: &str) -> String {
    let me = format!("self.{}", names::field(&field.name));
    if field.given_encoded {
        return format!("{me}.write(w, {flexible}, v)?;\n");
    }
    if !types::is_option(field) {
        return call(&field.kind, false, flexible, &me, &format!("&{me}"));
    }
    let as_deref = match field.kind {
        Type::Struct(_) | Type::Records => format!("{me}.as_ref()"),
        _ => format!("{me}.as_deref()"),
    };
    let some = call(&field.kind, true, flexible, &me, &as_deref);
    let needed = format!("need(&{me}, \"{}.{}\")?", s.name, field.name);
    let plain = call(&field.kind, false, flexible, &me, &needed);
    let Some(nullable) = field.nullable else { return plain };
    match types::within(nullable, field.versions.and(s.reach)) {
        Some(condition) => format!("if {condition} {{\n{some}}} else {{\n{plain}}}\n"),
        None => some,
    }
}

/// The statement that writes `value`: for primitives `me`, else a reference or an `Option` of one.
fn call(kind: &Type, nullable: bool, flexible: &str, me: &str, value: &str) -> String {
    let opt = if nullable { "opt_" } else { "" };
    match kind {
        Type::Primitive(name) => format!("w.{}({me});\n", name.to_lowercase()),
        Type::String => format!("w.{opt}string({flexible}, {value})?;\n"),
        Type::Bytes => format!("w.{opt}bytes({flexible}, {value})?;\n"),
        Type::Records => format!("w.{opt}records({flexible}, {value})?;\n"),
        Type::Struct(_) if nullable => format!("w.opt_struct({value}, v)?;\n"),
        Type::Struct(_) => format!("{}.enc(w, v)?;\n", value.trim_start_matches('&')),
        Type::Array(element) => match **element {
            Type::Primitive(_) => format!("w.{opt}primitives({flexible}, {value})?;\n"),
            Type::String => format!("w.{opt}strings({flexible}, {value})?;\n"),
            _ => format!("w.{opt}structs({flexible}, {value}, v)?;\n"),
        },
    }
}

fn tags(message: &Message, s: &Struct) -> String {
    let tagged = types::tagged(s);
    let flexible = types::flexible(message, s);
    match (flexible, tagged.is_empty()) {
        ("false", _) => return String::new(),
        ("true", true) => return "w.uvarint(0);\n".to_owned(),
        (_, true) => return format!("if {flexible} {{\nw.uvarint(0);\n}}\n"),
        (_, false) => {}
    }
    let mut out = String::new();
    for (tag, field) in &tagged {
        let differs = types::differs(field);
        let present = match types::within(field.versions, s.reach) {
            Some(condition) => format!("{condition} && ({differs})"),
            None => differs,
        };
        out += &format!("let t{tag} = {present};\n");
        if let (Some(condition), false) = (types::within(field.versions, s.reach), field.ignorable) {
            out += &format!("if !({condition}) {{\n{}}}\n", absent(s, field));
        }
    }
    let sum: Vec<String> = tagged.iter().map(|(tag, _)| format!("u32::from(t{tag})")).collect();
    let mut section = format!("w.uvarint({});\n", sum.join(" + "));
    for (tag, field) in &tagged {
        let value = tagged_value(s, field);
        section += &format!("if t{tag} {{\nlet mark = w.begin_tag({tag});\n{value}w.end_tag(mark)?;\n}}\n");
    }
    out + &if flexible == "true" { section } else { format!("if {flexible} {{\n{section}}}\n") }
}

fn tagged_value(s: &Struct, field: &Field) -> String {
    match (&field.kind, field.nullable) {
        (Type::Struct(_), Some(_)) => {
            format!("w.opt_tagged_struct(self.{}.as_ref(), v)?;\n", names::field(&field.name))
        }
        _ => value(s, field, "true"),
    }
}
