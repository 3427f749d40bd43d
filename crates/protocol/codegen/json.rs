//! JSON: one call a field, under Kafka's names.

use crate::codegen::schema::{Field, Message, Struct};
use crate::codegen::{names, types};

/// `impl ToJson` of a message's structs.
pub(super) fn message(message: &Message) -> String {
    let module = names::snake(&message.name);
    let structs: String = message.structs.iter().map(implementation).collect();
    format!("mod {module} {{\nuse super::rt::*;\nuse crate::messages::{module}::*;\n{structs}}}\n")
}

fn implementation(s: &Struct) -> String {
    let lifetime = if s.borrows { "<'_>" } else { "" };
    let mut out = format!("impl ToJson for {}{lifetime} {{\nfn to_json(&self, v: i16) -> Value {{\n", s.name);
    out += "let mut m = Map::new();\n";
    for field in &s.fields {
        let line = format!("put(&mut m, \"{}\", &self.{}, v);\n", names::json(&field.name), names::field(&field.name));
        out += &conditional(s, field, line);
    }
    out + "Value::Object(m)\n}\n}\n"
}

/// Fields that the version does not have are left out, and tagged ones at their default.
fn conditional(s: &Struct, field: &Field, line: String) -> String {
    let exists = types::within(field.versions, s.reach);
    let present = field.tag.map(|_| types::differs(field));
    match (exists, present) {
        (None, None) => line,
        (Some(condition), None) | (None, Some(condition)) => format!("if {condition} {{\n{line}}}\n"),
        (Some(exists), Some(present)) => format!("if {exists} && ({present}) {{\n{line}}}\n"),
    }
}
