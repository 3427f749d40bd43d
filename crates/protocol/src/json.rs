//! Messages as JSON, under Kafka's names: the field name with its first letter lowered. Bytes are padded base64, ids
//! unpadded base64url. Fields that the version does not have are left out, as are tagged fields at their default.

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

use crate::{Records, Structs, Uuid};

/// A value that has a JSON form.
pub trait ToJson {
    /// The JSON of the value in this version of the message that it is part of.
    fn to_json(&self, version: i16) -> Value;
}

fn put(map: &mut Map<String, Value>, name: &str, value: &dyn ToJson, version: i16) {
    map.insert(name.to_owned(), value.to_json(version));
}

macro_rules! simple {
    ($($type:ty),*) => {$(
        impl ToJson for $type {
            fn to_json(&self, _: i16) -> Value {
                (*self).into()
            }
        }
    )*};
}

simple!(bool, i8, i16, u16, i32, u32, i64, f64);

impl ToJson for Uuid {
    fn to_json(&self, _: i16) -> Value {
        self.to_string().into()
    }
}

impl ToJson for Cow<'_, str> {
    fn to_json(&self, _: i16) -> Value {
        (**self).into()
    }
}

impl ToJson for Cow<'_, [u8]> {
    fn to_json(&self, _: i16) -> Value {
        BASE64_STANDARD.encode(self).into()
    }
}

/// A gap has no bytes to show, so its length stands for it.
impl ToJson for Records<'_> {
    fn to_json(&self, _: i16) -> Value {
        match self {
            Records::Bytes(bytes) => BASE64_STANDARD.encode(bytes).into(),
            Records::Gap(len) => (*len).into(),
        }
    }
}

fn array<T: ToJson>(items: &[T], version: i16) -> Value {
    items.iter().map(|item| item.to_json(version)).collect()
}

macro_rules! arrays {
    ($($type:ty),*) => {$(
        impl ToJson for Cow<'_, [$type]> {
            fn to_json(&self, version: i16) -> Value {
                array(self, version)
            }
        }
    )*};
}

arrays!(i8, i16, i32, i64, Uuid);

impl<T: ToJson> ToJson for Vec<T> {
    fn to_json(&self, version: i16) -> Value {
        array(self, version)
    }
}

impl<T: ToJson> ToJson for Structs<T> {
    fn to_json(&self, version: i16) -> Value {
        array(self, version)
    }
}

impl<T: ToJson> ToJson for Option<T> {
    fn to_json(&self, version: i16) -> Value {
        self.as_ref().map_or(Value::Null, |value| value.to_json(version))
    }
}

#[allow(unused_mut, unused_variables, unused_imports, clippy::all)]
mod generated {
    /// What the generated code uses.
    mod rt {
        pub(super) use serde_json::{Map, Value};

        pub(super) use crate::Uuid;
        pub(super) use crate::json::{ToJson, put};
    }
    include!(concat!(env!("OUT_DIR"), "/json.rs"));
}
