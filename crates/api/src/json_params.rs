//! Parses a JSON body into parameters, with a limit on the number of values in memory.

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
    fmt,
};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use crate::{error::ApiError, params::ParamValue};

/// The maximum number of values in a JSON body: numbers, strings, lists, objects and everything in them. A value takes up to
/// 64 bytes in memory, and as little as two in the body.
pub(crate) const MAX_JSON_VALUES: usize = 20_000;

/// The fields of a JSON object, in their order and with duplicates.
pub(crate) struct JsonFields {
    pub(crate) fields: Vec<(String, ParamValue)>,
    /// The number of values, including nested ones.
    pub(crate) values: usize,
}

/// Parses the fields of an object. Any other value is valid and has no fields.
pub(crate) fn read(bytes: &[u8]) -> Result<JsonFields, ApiError> {
    let counter = ValueCounter::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = FieldsSeed(&counter).deserialize(&mut deserializer).and_then(|fields| {
        deserializer.end()?;
        Ok(fields)
    });
    match read {
        Ok(fields) => Ok(JsonFields { fields, values: counter.0.get() }),
        Err(_) if counter.0.get() > MAX_JSON_VALUES => Err(ApiError::TooManyJsonValues),
        Err(_) => Err(ApiError::MalformedBody),
    }
}

/// The number of values parsed.
#[derive(Default)]
struct ValueCounter(Cell<usize>);

impl ValueCounter {
    /// Counts a value; fails if there are too many.
    fn count<E: serde::de::Error>(&self) -> Result<(), E> {
        self.0.set(self.0.get() + 1);
        if self.0.get() > MAX_JSON_VALUES { Err(E::custom("too many values")) } else { Ok(()) }
    }
}

/// Parses the outermost value. Not into a map, which would silently keep the last of two fields with the same name.
struct FieldsSeed<'a>(&'a ValueCounter);

impl<'de> DeserializeSeed<'de> for FieldsSeed<'_> {
    type Value = Vec<(String, ParamValue)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldsSeed<'_> {
    type Value = Vec<(String, ParamValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key()? {
            fields.push((name, map.next_value_seed(ValueSeed(self.0))?));
        }
        Ok(fields)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Vec::new())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }
}

/// Parses any value and counts it.
struct ValueSeed<'a>(&'a ValueCounter);

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = ParamValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ParamValue, D::Error> {
        self.0.count::<D::Error>()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = ParamValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ParamValue, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key()? {
            fields.push((name, map.next_value_seed(ValueSeed(self.0))?));
        }
        Ok(ParamValue::Object(deduplicate(fields)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<ParamValue, A::Error> {
        let mut read = Vec::new();
        while let Some(value) = elements.next_element_seed(ValueSeed(self.0))? {
            read.push(value);
        }
        Ok(ParamValue::List(read))
    }

    fn visit_bool<E>(self, value: bool) -> Result<ParamValue, E> {
        Ok(ParamValue::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<ParamValue, E> {
        Ok(ParamValue::Number(number.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<ParamValue, E> {
        Ok(ParamValue::Number(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<ParamValue, E> {
        // As in JSON, with a decimal point or an exponent.
        Ok(Number::from_f64(number).map_or(ParamValue::Null, |number| ParamValue::Number(number.to_string())))
    }

    fn visit_str<E>(self, text: &str) -> Result<ParamValue, E> {
        Ok(ParamValue::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<ParamValue, E> {
        Ok(ParamValue::Text(text))
    }

    fn visit_unit<E>(self) -> Result<ParamValue, E> {
        Ok(ParamValue::Null)
    }
}

/// Removes duplicates from the fields of a nested object: the last value wins, at the position of the first.
fn deduplicate(fields: Vec<(String, ParamValue)>) -> Vec<(String, ParamValue)> {
    let names: HashSet<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    if names.len() == fields.len() {
        return fields;
    }
    let mut unique: Vec<(String, ParamValue)> = Vec::with_capacity(names.len());
    let mut indexes: HashMap<String, usize> = HashMap::new();
    for (name, value) in fields {
        if let Some(index) = indexes.get(&name) {
            unique[*index].1 = value;
        } else {
            indexes.insert(name.clone(), unique.len());
            unique.push((name, value));
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Vec<(String, ParamValue)> {
        read(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error:?}")).fields
    }

    fn number(digits: &str) -> ParamValue {
        ParamValue::Number(digits.to_owned())
    }

    #[test]
    fn every_kind_of_value_is_parsed() {
        let parsed =
            fields(r#"{"a":[1,-2,1.0,1e30,"x\n",true,null],"b":{"c":1,"d":2,"c":3},"e":18446744073709551615}"#);
        let list = vec![
            number("1"),
            number("-2"),
            number("1.0"),
            number("1e+30"),
            ParamValue::Text("x\n".to_owned()),
            ParamValue::Bool(true),
            ParamValue::Null,
        ];
        let object = vec![("c".to_owned(), number("3")), ("d".to_owned(), number("2"))];
        assert!(
            parsed
                == [
                    ("a".to_owned(), ParamValue::List(list)),
                    ("b".to_owned(), ParamValue::Object(object)),
                    ("e".to_owned(), number("18446744073709551615")),
                ]
        );
        // Duplicates at the outermost level are left to `RawParams`.
        assert_eq!(fields(r#"{"a":1,"a":2}"#).len(), 2);
        for text in ["[1,[2]]", "1", "-1", "1.5", "\"x\"", "true", "null"] {
            assert!(fields(text).is_empty(), "{text}");
        }
        for text in ["", "{", "{}x", "[1", "{\"a\"}", "nul"] {
            assert!(matches!(read(text.as_bytes()), Err(ApiError::MalformedBody)), "{text}");
        }
    }

    #[test]
    fn values_are_counted_at_every_depth() {
        let list = |count: usize| format!("[{}]", vec!["0"; count].join(","));
        // The list itself counts as a value.
        assert_eq!(
            read(format!("{{\"a\":{}}}", list(MAX_JSON_VALUES - 1)).as_bytes()).expect("read").values,
            MAX_JSON_VALUES
        );
        for text in [
            format!("{{\"a\":{}}}", list(MAX_JSON_VALUES)),
            format!("{{\"a\":{{\"b\":[{}]}}}}", vec!["[]"; MAX_JSON_VALUES].join(",")),
            format!("{{{}}}", vec!["\"a\":0"; MAX_JSON_VALUES + 1].join(",")),
            // Parsing stops at the first value beyond the limit.
            format!("{{\"a\":{}", list(MAX_JSON_VALUES)),
        ] {
            assert!(matches!(read(text.as_bytes()), Err(ApiError::TooManyJsonValues)), "{}", &text[..40]);
        }
        // A string is one value, however long it is.
        assert_eq!(read(format!("{{\"a\":\"{}\"}}", ",[{".repeat(50_000)).as_bytes()).expect("read").values, 1);
    }
}
