//! Reads a JSON body into parameters without ever holding more values than a request may have.

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
    fmt,
};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use crate::{error::ApiError, params::Item};

/// The most values that a JSON body may have: numbers, texts, lists, objects and everything in them. A value takes up to
/// 64 bytes in memory, and as little as two in the body.
pub(crate) const MOST_VALUES: usize = 20_000;

/// The fields of a JSON object, in their order and with their repetitions.
pub(crate) struct JsonFields {
    pub(crate) fields: Vec<(String, Item)>,
    /// How many values there are, those inside of others included.
    pub(crate) values: usize,
}

/// Reads the fields of an object. Any other value is valid and has no fields.
pub(crate) fn read(bytes: &[u8]) -> Result<JsonFields, ApiError> {
    let counter = Counter::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = FieldsSeed(&counter).deserialize(&mut deserializer).and_then(|fields| {
        deserializer.end()?;
        Ok(fields)
    });
    match read {
        Ok(fields) => Ok(JsonFields { fields, values: counter.0.get() }),
        Err(_) if counter.0.get() > MOST_VALUES => Err(ApiError::TooManyValues),
        Err(_) => Err(ApiError::BadBody),
    }
}

/// How many values were read.
#[derive(Default)]
struct Counter(Cell<usize>);

impl Counter {
    /// Counts one more value; fails if there are too many.
    fn count<E: serde::de::Error>(&self) -> Result<(), E> {
        self.0.set(self.0.get() + 1);
        if self.0.get() > MOST_VALUES { Err(E::custom("too many values")) } else { Ok(()) }
    }
}

/// Reads the outermost value. A map would silently keep the last one of two fields with the same name.
struct FieldsSeed<'a>(&'a Counter);

impl<'de> DeserializeSeed<'de> for FieldsSeed<'_> {
    type Value = Vec<(String, Item)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldsSeed<'_> {
    type Value = Vec<(String, Item)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key()? {
            fields.push((name, map.next_value_seed(ItemSeed(self.0))?));
        }
        Ok(fields)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
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

/// Reads any value and counts it.
struct ItemSeed<'a>(&'a Counter);

impl<'de> DeserializeSeed<'de> for ItemSeed<'_> {
    type Value = Item;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Item, D::Error> {
        self.0.count::<D::Error>()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemSeed<'_> {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Item, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key()? {
            fields.push((name, map.next_value_seed(ItemSeed(self.0))?));
        }
        Ok(Item::Object(without_repetitions(fields)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Item, A::Error> {
        let mut read = Vec::new();
        while let Some(item) = items.next_element_seed(ItemSeed(self.0))? {
            read.push(item);
        }
        Ok(Item::List(read))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Item, E> {
        Ok(Item::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Item, E> {
        Ok(Item::Number(number.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Item, E> {
        Ok(Item::Number(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Item, E> {
        // As it stands in JSON, with a point or an exponent.
        Ok(Number::from_f64(number).map_or(Item::Null, |number| Item::Number(number.to_string())))
    }

    fn visit_str<E>(self, text: &str) -> Result<Item, E> {
        Ok(Item::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Item, E> {
        Ok(Item::Text(text))
    }

    fn visit_unit<E>(self) -> Result<Item, E> {
        Ok(Item::Null)
    }
}

/// The fields of an object inside of another value: of two with the same name the last one counts, in the place of the first.
fn without_repetitions(fields: Vec<(String, Item)>) -> Vec<(String, Item)> {
    let names: HashSet<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    if names.len() == fields.len() {
        return fields;
    }
    let mut kept: Vec<(String, Item)> = Vec::with_capacity(names.len());
    let mut places: HashMap<String, usize> = HashMap::new();
    for (name, item) in fields {
        if let Some(place) = places.get(&name) {
            kept[*place].1 = item;
        } else {
            places.insert(name.clone(), kept.len());
            kept.push((name, item));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Vec<(String, Item)> {
        read(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error:?}")).fields
    }

    fn number(digits: &str) -> Item {
        Item::Number(digits.to_owned())
    }

    #[test]
    fn every_kind_of_value_is_read_as_it_stands() {
        let found = fields(r#"{"a":[1,-2,1.0,1e30,"x\n",true,null],"b":{"c":1,"d":2,"c":3},"e":18446744073709551615}"#);
        let list = vec![
            number("1"),
            number("-2"),
            number("1.0"),
            number("1e+30"),
            Item::Text("x\n".to_owned()),
            Item::Bool(true),
            Item::Null,
        ];
        let object = vec![("c".to_owned(), number("3")), ("d".to_owned(), number("2"))];
        assert!(
            found
                == [
                    ("a".to_owned(), Item::List(list)),
                    ("b".to_owned(), Item::Object(object)),
                    ("e".to_owned(), number("18446744073709551615")),
                ]
        );
        // Repetitions at the outermost level are judged by whoever collects them.
        assert_eq!(fields(r#"{"a":1,"a":2}"#).len(), 2);
        for text in ["[1,[2]]", "1", "-1", "1.5", "\"x\"", "true", "null"] {
            assert!(fields(text).is_empty(), "{text}");
        }
        for text in ["", "{", "{}x", "[1", "{\"a\"}", "nul"] {
            assert!(matches!(read(text.as_bytes()), Err(ApiError::BadBody)), "{text}");
        }
    }

    #[test]
    fn values_are_counted_at_every_depth() {
        let list = |count: usize| format!("[{}]", vec!["0"; count].join(","));
        // The list itself counts, too.
        assert_eq!(read(format!("{{\"a\":{}}}", list(MOST_VALUES - 1)).as_bytes()).expect("read").values, MOST_VALUES);
        for text in [
            format!("{{\"a\":{}}}", list(MOST_VALUES)),
            format!("{{\"a\":{{\"b\":[{}]}}}}", vec!["[]"; MOST_VALUES].join(",")),
            format!("{{{}}}", vec!["\"a\":0"; MOST_VALUES + 1].join(",")),
            // Nothing after the one value too many is looked at.
            format!("{{\"a\":{}", list(MOST_VALUES)),
        ] {
            assert!(matches!(read(text.as_bytes()), Err(ApiError::TooManyValues)), "{}", &text[..40]);
        }
        // A text is one value, however long it is.
        assert_eq!(read(format!("{{\"a\":\"{}\"}}", ",[{".repeat(50_000)).as_bytes()).expect("read").values, 1);
    }
}
