//! Rows as text: one line of JSON for each, in compressed bundles, so that a person can look at them with `zcat`.

use std::io::{BufRead as _, BufReader, Read, Write as _};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde_json::{Value as Json, json};
use store::copies::{Row, Value};

use super::{Sentence, manifest::changed};

/// How much text goes into one bundle.
pub(super) const BUNDLE: usize = 4 << 20;

/// Rows of one table on their way into a bundle.
pub(super) struct Bundle {
    text: GzEncoder<Vec<u8>>,
    size: usize,
}

impl Bundle {
    pub(super) fn new(columns: &[String]) -> Result<Self, Sentence> {
        let mut bundle = Self { text: GzEncoder::new(Vec::new(), Compression::fast()), size: 0 };
        bundle.say(&json!(columns))?;
        Ok(bundle)
    }

    /// Adds a row; answers how large the text is by now.
    pub(super) fn add(&mut self, row: &Row) -> Result<usize, Sentence> {
        let values: Vec<Json> = row.iter().map(encode).collect();
        self.say(&Json::Array(values))?;
        Ok(self.size)
    }

    pub(super) fn finish(self) -> Result<Vec<u8>, Sentence> {
        self.text.finish().map_err(|error| format!("rows cannot be compressed: {error}"))
    }

    fn say(&mut self, line: &Json) -> Result<(), Sentence> {
        let text = format!("{line}\n");
        self.size += text.len();
        self.text.write_all(text.as_bytes()).map_err(|error| format!("rows cannot be compressed: {error}"))
    }
}

/// Reads a bundle: first its columns, then rows, some at a time.
pub(super) fn read(
    from: impl Read,
    mut take: impl FnMut(&[String], Vec<Row>) -> Result<(), Sentence>,
) -> Result<u64, Sentence> {
    const AT_ONCE: usize = 200;
    let mut lines = BufReader::new(GzDecoder::new(from)).lines();
    let mut next = || lines.next().transpose().map_err(|_| changed());
    let columns: Vec<String> = serde_json::from_str(&next()?.ok_or_else(changed)?).map_err(|_| changed())?;
    let (mut rows, mut count) = (Vec::new(), 0);
    while let Some(line) = next()? {
        let values: Vec<Json> = serde_json::from_str(&line).map_err(|_| changed())?;
        rows.push(values.into_iter().map(decode).collect::<Option<Row>>().ok_or_else(changed)?);
        count += 1;
        if rows.len() == AT_ONCE {
            take(&columns, std::mem::take(&mut rows))?;
        }
    }
    if !rows.is_empty() {
        take(&columns, rows)?;
    }
    Ok(count)
}

fn encode(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Integer(number) => json!(number),
        // As text: it is exact, and knows numbers that JSON does not.
        Value::Real(number) => json!({ "real": format!("{number:?}") }),
        Value::Text(text) => json!(text),
        Value::Bytes(bytes) => json!({ "bytes": BASE64_STANDARD.encode(bytes) }),
    }
}

fn decode(value: Json) -> Option<Value> {
    Some(match value {
        Json::Null => Value::Null,
        Json::Number(number) => Value::Integer(number.as_i64()?),
        Json::String(text) => Value::Text(text),
        Json::Object(map) => match (map.get("real"), map.get("bytes")) {
            (Some(Json::String(number)), None) => Value::Real(number.parse().ok()?),
            (None, Some(Json::String(bytes))) => Value::Bytes(BASE64_STANDARD.decode(bytes).ok()?),
            _ => return None,
        },
        Json::Bool(_) | Json::Array(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_comes_back_as_it_was() {
        let row = vec![
            Value::Null,
            Value::Integer(i64::MIN),
            Value::Integer(i64::MAX),
            Value::Integer(9_007_199_254_740_993),
            Value::Real(0.1 + 0.2),
            Value::Real(-0.0),
            Value::Real(f64::INFINITY),
            Value::Real(5e-324),
            Value::Text("line\nbreak \"ünï\" \u{2028} {\"real\":\"1\"}".into()),
            Value::Text(String::new()),
            Value::Bytes((0..=255).collect()),
            Value::Bytes(Vec::new()),
        ];
        let columns: Vec<String> = (0..row.len()).map(|number| format!("c{number}")).collect();
        let mut bundle = Bundle::new(&columns).expect("a bundle");
        for _ in 0..450 {
            bundle.add(&row).expect("added");
        }
        let bytes = bundle.finish().expect("compressed");
        let mut seen = 0;
        let count = read(&bytes[..], |names, rows| {
            assert_eq!(names, columns);
            for read in rows {
                assert_eq!(format!("{read:?}"), format!("{row:?}"));
                seen += 1;
            }
            Ok(())
        });
        assert_eq!((count.expect("read"), seen), (450, 450));
        assert!(read(&bytes[..bytes.len() - 5], |_, _| Ok(())).is_err());
    }
}
