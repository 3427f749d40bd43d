//! JSON files as Kafka's tools read them, and the words in which they say what is wrong.

use serde_json::{Map, Value};

use super::{Thrown, java};

/// A value in a file.
#[derive(Debug, Clone, Copy)]
pub struct Json<'v>(pub &'v Value);

/// An object in a file.
#[derive(Debug, Clone, Copy)]
pub struct Object<'v>(&'v Map<String, Value>);

impl<'v> Json<'v> {
    /// An object.
    pub fn object(self) -> Result<Object<'v>, Thrown> {
        self.0.as_object().map(Object).ok_or_else(|| self.unexpected("Expected JSON object, received"))
    }

    /// The values of a list.
    pub fn array(self) -> Result<impl Iterator<Item = Json<'v>>, Thrown> {
        let values = self.0.as_array().ok_or_else(|| self.unexpected("Expected JSON array, received"))?;
        Ok(values.iter().map(Json))
    }

    /// A text.
    pub fn text(self) -> Result<&'v str, Thrown> {
        self.0.as_str().ok_or_else(|| self.unexpected("Expected `String` value, received"))
    }

    /// A number of 32 bits.
    pub fn int(self) -> Result<i32, Thrown> {
        let number = self.0.as_i64().and_then(|number| i32::try_from(number).ok());
        number.ok_or_else(|| self.unexpected("Expected `Integer` value, received"))
    }

    fn unexpected(self, what: &str) -> Thrown {
        mapping(format!("{what} {}", self.0))
    }
}

impl<'v> Object<'v> {
    /// A field that may be missing.
    pub fn get(self, name: &str) -> Option<Json<'v>> {
        self.0.get(name).map(Json)
    }

    /// A field that must be there.
    pub fn need(self, name: &str) -> Result<Json<'v>, Thrown> {
        self.get(name).ok_or_else(|| mapping(format!("No such field exists: `{name}`")))
    }
}

fn mapping(message: String) -> Thrown {
    Thrown::new(java::JSON_MAPPING, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_expected_is_told_with_its_value() {
        let value = json!({ "topic": 5, "partition": "x" });
        let object = Json(&value).object().unwrap();
        let message = |result: Result<(), Thrown>| result.unwrap_err().message;
        assert_eq!(message(object.need("topic").unwrap().text().map(drop)), "Expected `String` value, received 5");
        assert_eq!(
            message(object.need("partition").unwrap().int().map(drop)),
            "Expected `Integer` value, received \"x\""
        );
        assert_eq!(message(object.need("replicas").map(drop)), "No such field exists: `replicas`");
        assert_eq!(message(Json(&json!(1)).object().map(drop)), "Expected JSON object, received 1");
    }
}
