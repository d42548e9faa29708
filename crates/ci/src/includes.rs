//! Resolves `include`: other files of the same repository, merged below the including file.

use crate::budget::{Budget, MAX_CHAIN_LENGTH, MAX_INCLUDES, ValueSize};
use crate::config_error::ConfigError;
use crate::value::{Map, Value};
use crate::yaml;

/// The files of the repository at the commit of the pipeline.
pub trait LocalFiles {
    /// Returns the content of a file by its path from the root, without a leading slash; `None` if it does not exist.
    fn read(&self, path: &str) -> Option<String>;
}

/// A repository without files to include.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl LocalFiles for NoFiles {
    fn read(&self, _path: &str) -> Option<String> {
        None
    }
}

/// Loads a file with all its includes.
pub(crate) fn load(text: &str, files: &dyn LocalFiles, budget: &mut Budget) -> Result<Map, ConfigError> {
    let mut includes = IncludeLoader { files, budget, count: 0, stack: Vec::new() };
    includes.load(text)
}

struct IncludeLoader<'a> {
    files: &'a dyn LocalFiles,
    budget: &'a mut Budget,
    count: usize,
    /// The files being read, outermost first.
    stack: Vec<String>,
}

impl IncludeLoader<'_> {
    fn load(&mut self, text: &str) -> Result<Map, ConfigError> {
        let loaded = yaml::load(text, self.budget).map_err(|error| self.name_file(error))?;
        let Value::Map(mut root) = loaded else {
            return Err(self.name_file(ConfigError::new("Invalid configuration format")));
        };
        let Some(include) = root.remove("include").filter(|value| *value != Value::Null) else { return Ok(root) };
        let mut merged = Map::default();
        for path in paths(&include)? {
            merged.deep_merge(self.load_file(path)?);
        }
        merged.deep_merge(root);
        Ok(merged)
    }

    fn load_file(&mut self, raw_path: String) -> Result<Map, ConfigError> {
        let path = raw_path.trim_start_matches('/').to_owned();
        if self.stack.contains(&path) {
            let mut chain = self.stack.clone();
            chain.push(path);
            return Err(ConfigError::new(format!("Include `{raw_path}` includes itself: {}", chain.join(" -> "))));
        }
        if self.stack.len() == MAX_CHAIN_LENGTH {
            return Err(ConfigError::new(format!(
                "Includes nest too deep: at most {MAX_CHAIN_LENGTH} levels are allowed"
            )));
        }
        self.count += 1;
        if self.count > MAX_INCLUDES {
            return Err(ConfigError::new(format!("Maximum of {MAX_INCLUDES} nested includes are allowed!")));
        }
        if !(path.ends_with(".yml") || path.ends_with(".yaml")) {
            return Err(ConfigError::new(format!("Included file `{raw_path}` does not have YAML extension!")));
        }
        if path.contains('*') || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(ConfigError::new(format!(
                "Included file `{raw_path}` must be named by its plain path from the root of the repository"
            )));
        }
        let text = self
            .files
            .read(&path)
            .ok_or_else(|| ConfigError::new(format!("Local file `{raw_path}` does not exist!")))?;
        // Comments use no memory but take time to parse.
        self.budget.charge(ValueSize { nodes: 0, bytes: text.len(), depth: 0 })?;
        self.stack.push(path);
        let loaded = self.load(&text);
        self.stack.pop();
        loaded
    }

    /// Adds the name of the file to an error, unless it is the main file.
    fn name_file(&self, error: ConfigError) -> ConfigError {
        match self.stack.last() {
            Some(path) => ConfigError::new(format!("Included file `{path}`: {}", error.text)),
            None => error,
        }
    }
}

fn paths(include: &Value) -> Result<Vec<String>, ConfigError> {
    match include {
        Value::List(items) => items.iter().map(path).collect(),
        one => Ok(vec![path(one)?]),
    }
}

fn path(item: &Value) -> Result<String, ConfigError> {
    match item {
        Value::Text(path) if path.starts_with("http://") || path.starts_with("https://") => Err(ConfigError::new(
            format!("Include `{path}` is refused: only files of the same repository can be included, with `local`"),
        )),
        Value::Text(path) => Ok(path.clone()),
        Value::Map(map) => match (map.get("local").and_then(Value::as_text), map.len()) {
            (Some(path), 1) => Ok(path.to_owned()),
            (Some(path), _) => Err(ConfigError::new(format!(
                "Include `{path}` has keys that are not supported: only `local` is, without rules or inputs"
            ))),
            (None, _) => Err(ConfigError::new(format!(
                "Include with `{}` is refused: only files of the same repository can be included, with `local`",
                map.iter().map(|(key, _)| key.text.as_str()).collect::<Vec<_>>().join("`, `")
            ))),
        },
        _ => Err(ConfigError::new("Include should be a path, a hash with `local`, or a list of these")),
    }
}
