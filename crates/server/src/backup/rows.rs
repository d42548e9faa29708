//! Rows as gzipped JSON lines, so that they can be read with `zcat`.

use std::io::{BufRead as _, BufReader, Read, Write as _};

use anyhow::{Context as _, Result};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde_json::{Value as Json, json};
use store::dump::{Row, Value};

use super::manifest::corrupted;

/// The size of the text at which a batch is finished.
pub(super) const MAX_BATCH_SIZE: usize = 4 << 20;

/// A compressed batch of rows of one table.
pub(super) struct RowBatch {
    encoder: GzEncoder<Vec<u8>>,
    size: usize,
}

impl RowBatch {
    pub(super) fn new(columns: &[String]) -> Result<Self> {
        let mut batch = Self { encoder: GzEncoder::new(Vec::new(), Compression::fast()), size: 0 };
        batch.write_line(&json!(columns))?;
        Ok(batch)
    }

    /// Adds a row; returns the size of the text so far.
    pub(super) fn add(&mut self, row: &Row) -> Result<usize> {
        let values: Vec<Json> = row.iter().map(encode).collect();
        self.write_line(&Json::Array(values))?;
        Ok(self.size)
    }

    pub(super) fn finish(self) -> Result<Vec<u8>> {
        self.encoder.finish().context("cannot compress rows")
    }

    fn write_line(&mut self, line: &Json) -> Result<()> {
        let text = format!("{line}\n");
        self.size += text.len();
        self.encoder.write_all(text.as_bytes()).context("cannot compress rows")
    }
}

/// Reads a batch and passes its columns and rows to `handle`, some rows at a time; returns the number of rows.
pub(super) fn read(from: impl Read, mut handle: impl FnMut(&[String], Vec<Row>) -> Result<()>) -> Result<u64> {
    const ROWS_PER_CALL: usize = 200;
    let mut lines = BufReader::new(GzDecoder::new(from)).lines();
    let mut next = || lines.next().transpose().map_err(|_| corrupted());
    let columns: Vec<String> = serde_json::from_str(&next()?.ok_or_else(corrupted)?).map_err(|_| corrupted())?;
    let (mut rows, mut count) = (Vec::new(), 0);
    while let Some(line) = next()? {
        let values: Vec<Json> = serde_json::from_str(&line).map_err(|_| corrupted())?;
        rows.push(values.into_iter().map(decode).collect::<Option<Row>>().ok_or_else(corrupted)?);
        count += 1;
        if rows.len() == ROWS_PER_CALL {
            handle(&columns, std::mem::take(&mut rows))?;
        }
    }
    if !rows.is_empty() {
        handle(&columns, rows)?;
    }
    Ok(count)
}

fn encode(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Integer(number) => json!(number),
        // As text: exact, and JSON has no infinity.
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
    fn every_value_survives_a_round_trip() {
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
        let mut batch = RowBatch::new(&columns).expect("a batch");
        for _ in 0..450 {
            batch.add(&row).expect("added");
        }
        let bytes = batch.finish().expect("compressed");
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
