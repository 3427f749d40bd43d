//! A message's module: its structs, their defaults, and the traits.

use crate::codegen::schema::{Field, Message, Struct};
use crate::codegen::{decode, encode, names, types};

/// The module of one message.
pub(super) fn module(message: &Message) -> String {
    let mut out = format!(
        "/// Kafka's `{}`, versions {}-{}.\npub mod {} {{\nuse super::rt::*;\n",
        message.name,
        message.valid.lo,
        message.valid.hi,
        names::snake(&message.name)
    );
    for s in &message.structs {
        out += &definition(message, s);
        out += &default(s);
        out += &format!("impl<'a> Wire<'a> for {} {{\n", types::struct_name(s));
        out += &format!("const MIN_SIZE: usize = {};\n", types::min_size(message, s));
        out += &decode::function(message, s);
        out += &encode::function(message, s);
        out += "}\n";
    }
    out + &message_impl(message) + "}\n"
}

/// The messages themselves, beside their modules.
pub(super) fn reexports(messages: &[Message]) -> String {
    messages.iter().map(|m| format!("pub use {}::{};\n", names::snake(&m.name), m.name)).collect()
}

fn definition(message: &Message, s: &Struct) -> String {
    let derives = if s.fields.iter().any(types::needs_default) { "" } else { ", Default" };
    let mut out = format!("/// {}.\n", struct_doc(message, s));
    out += &format!("#[derive(Debug, Clone, PartialEq{derives})]\npub struct {} {{\n", types::struct_name(s));
    for field in &s.fields {
        let (name, kind) = (names::field(&field.name), types::rust(message, field));
        out += &format!("/// {}.\npub {name}: {kind},\n", field_doc(message, field));
    }
    out + "}\n"
}

fn struct_doc(message: &Message, s: &Struct) -> String {
    let versions = s.reach.text(message.valid.hi);
    if s.name != message.name {
        return format!("`{}` in {}, versions {versions}", s.name, message.name);
    }
    let flexible = message.flexible_from.map_or("never".to_owned(), |from| format!("from {from}"));
    format!("{}, versions {versions}, flexible {flexible}", message.name)
}

fn field_doc(message: &Message, field: &Field) -> String {
    let newest = message.valid.hi;
    let mut doc = format!("{}, versions {}", field.kind_text, field.versions.text(newest));
    let mut add = |text: String| doc = format!("{doc}, {text}");
    if let Some(tag) = field.tag {
        add(format!("tag {tag}"));
    }
    if let Some(nullable) = field.nullable {
        add(if nullable == field.versions { "nullable".into() } else { format!("nullable {}", nullable.text(newest)) });
    }
    if let Some(default) = &field.default {
        add(format!("default {default}"));
    }
    if field.ignorable {
        add("dropped where absent".into());
    }
    doc.replace('[', "\\[")
}

fn default(s: &Struct) -> String {
    if !s.fields.iter().any(types::needs_default) {
        return String::new();
    }
    let lifetime = if s.borrows { "<'_>" } else { "" };
    let mut out = format!("impl Default for {}{lifetime} {{\nfn default() -> Self {{\nSelf {{\n", s.name);
    for field in &s.fields {
        out += &format!("{}: {},\n", names::field(&field.name), types::default(field));
    }
    out + "}\n}\n}\n"
}

fn message_impl(message: &Message) -> String {
    let throttles = message.root().fields.iter().any(|field| field.name == "ThrottleTimeMs");
    let throttle = if throttles { "fn throttle_time_ms(&self) -> i32 { self.throttle_time_ms }\n" } else { "" };
    format!(
        "impl<'a> Message<'a> for {} {{
const NAME: &'static str = \"{}\";
const API_KEY: Option<i16> = {:?};
const MIN_VERSION: i16 = {};
const MAX_VERSION: i16 = {};
const FLEXIBLE_FROM: i16 = {};
fn decode(r: &mut Reader<'a>, version: i16) -> Result<Self, DecodeError> {{ crate::message::decode(r, version) }}
fn encode(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError> {{ crate::message::encode(self, w, version) }}
{throttle}}}
",
        types::struct_name(message.root()),
        message.name,
        message.api_key,
        message.valid.lo,
        message.valid.hi,
        message.flexible_from.unwrap_or(i16::MAX),
    )
}
