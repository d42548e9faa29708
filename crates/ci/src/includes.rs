//! `include`: other files of the same repository, merged under the file that names them.

use crate::budget::{Budget, MAX_CHAIN, MAX_INCLUDES, Weight};
use crate::invalid::Invalid;
use crate::value::{Map, Value};
use crate::yaml;

/// Hands out files of the repository, at the commit of the pipeline.
pub trait Include {
    /// The text of a file, by its path from the root and without a slash before it; nothing if it is not there.
    fn local(&self, path: &str) -> Option<String>;
}

/// A repository without files to include.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl Include for NoFiles {
    fn local(&self, _path: &str) -> Option<String> {
        None
    }
}

/// Loads a file with everything that it includes.
pub(crate) fn load(text: &str, files: &dyn Include, budget: &mut Budget) -> Result<Map, Invalid> {
    let mut includes = Includes { files, budget, count: 0, open: Vec::new() };
    includes.load(text)
}

struct Includes<'a> {
    files: &'a dyn Include,
    budget: &'a mut Budget,
    count: usize,
    /// The files that are being read, outermost first.
    open: Vec<String>,
}

impl Includes<'_> {
    fn load(&mut self, text: &str) -> Result<Map, Invalid> {
        let loaded = yaml::load(text, self.budget).map_err(|error| self.name_file(error))?;
        let Value::Map(mut root) = loaded else {
            return Err(self.name_file(Invalid::new("Invalid configuration format")));
        };
        let Some(include) = root.remove("include").filter(|value| *value != Value::Null) else { return Ok(root) };
        let mut merged = Map::default();
        for path in paths(&include)? {
            merged.merge_deeply(self.open(path)?);
        }
        merged.merge_deeply(root);
        Ok(merged)
    }

    fn open(&mut self, written: String) -> Result<Map, Invalid> {
        let path = written.trim_start_matches('/').to_owned();
        if self.open.contains(&path) {
            let mut chain = self.open.clone();
            chain.push(path);
            return Err(Invalid::new(format!("Include `{written}` includes itself: {}", chain.join(" -> "))));
        }
        if self.open.len() == MAX_CHAIN {
            return Err(Invalid::new(format!("Includes nest too deep: at most {MAX_CHAIN} levels are allowed")));
        }
        self.count += 1;
        if self.count > MAX_INCLUDES {
            return Err(Invalid::new(format!("Maximum of {MAX_INCLUDES} nested includes are allowed!")));
        }
        if !(path.ends_with(".yml") || path.ends_with(".yaml")) {
            return Err(Invalid::new(format!("Included file `{written}` does not have YAML extension!")));
        }
        if path.contains('*') || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(Invalid::new(format!(
                "Included file `{written}` must be named by its plain path from the root of the repository"
            )));
        }
        let text =
            self.files.local(&path).ok_or_else(|| Invalid::new(format!("Local file `{written}` does not exist!")))?;
        // Comments cost nothing in memory but are read all the same.
        self.budget.charge(Weight { nodes: 0, bytes: text.len(), height: 0 })?;
        self.open.push(path);
        let loaded = self.load(&text);
        self.open.pop();
        loaded
    }

    /// Tells which file an error is about, unless it is the first one.
    fn name_file(&self, error: Invalid) -> Invalid {
        match self.open.last() {
            Some(path) => Invalid::new(format!("Included file `{path}`: {}", error.text)),
            None => error,
        }
    }
}

fn paths(include: &Value) -> Result<Vec<String>, Invalid> {
    match include {
        Value::List(items) => items.iter().map(path).collect(),
        one => Ok(vec![path(one)?]),
    }
}

fn path(item: &Value) -> Result<String, Invalid> {
    match item {
        Value::Text(path) if path.starts_with("http://") || path.starts_with("https://") => Err(Invalid::new(format!(
            "Include `{path}` is refused: only files of the same repository can be included, with `local`"
        ))),
        Value::Text(path) => Ok(path.clone()),
        Value::Map(map) => match (map.get("local").and_then(Value::as_text), map.len()) {
            (Some(path), 1) => Ok(path.to_owned()),
            (Some(path), _) => Err(Invalid::new(format!(
                "Include `{path}` has keys that are not supported: only `local` is, without rules or inputs"
            ))),
            (None, _) => Err(Invalid::new(format!(
                "Include with `{}` is refused: only files of the same repository can be included, with `local`",
                map.iter().map(|(key, _)| key.text.as_str()).collect::<Vec<_>>().join("`, `")
            ))),
        },
        _ => Err(Invalid::new("Include should be a path, a hash with `local`, or a list of these")),
    }
}
