//! The `parallel` keyword: several jobs created from one, by number or by a matrix of variables.

use crate::budget::{MAX_NAME_LENGTH, MAX_PARALLEL};
use crate::config_error::{ConfigError, KeyPath};
use crate::fields::{expect_map, reject_unknown_keys};
use crate::value::{Map, Value};
use crate::variables::Variables;

/// How many jobs are created from one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Parallel {
    /// One.
    #[default]
    One,
    /// A number of equal jobs.
    Count(usize),
    /// One job per combination of variables, named by their values.
    Matrix(Vec<Combination>),
}

/// One job of a matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combination {
    /// The values in the order of the file, as they appear in the name.
    pub label: String,
    /// The variables.
    pub variables: Variables,
}

/// One of the jobs created from a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) variables: Variables,
}

impl Parallel {
    /// Returns the number of jobs.
    pub fn count(&self) -> usize {
        match self {
            Self::One => 1,
            Self::Count(count) => *count,
            Self::Matrix(combinations) => combinations.len(),
        }
    }

    /// Returns the jobs with their names and the variables that distinguish them.
    pub(crate) fn instances(&self, name: &str) -> Vec<Instance> {
        let total = self.count();
        match self {
            Self::One => vec![Instance { name: name.to_owned(), variables: Variables::new() }],
            Self::Count(_) => (1..=total)
                .map(|number| Instance { name: format!("{name} {number}/{total}"), variables: numbers(number, total) })
                .collect(),
            Self::Matrix(combinations) => combinations
                .iter()
                .zip(1..)
                .map(|(combination, number)| {
                    let mut variables = numbers(number, total);
                    variables.extend(combination.variables.clone());
                    Instance { name: format!("{name}: [{}]", combination.label), variables }
                })
                .collect(),
        }
    }
}

fn numbers(number: usize, total: usize) -> Variables {
    [("CI_NODE_INDEX".to_owned(), number.to_string()), ("CI_NODE_TOTAL".to_owned(), total.to_string())].into()
}

/// Reads `parallel`: a number, or a mapping with `matrix`.
pub(crate) fn read(value: &Value, key_path: KeyPath<'_>) -> Result<Parallel, ConfigError> {
    match value {
        Value::Int(number) if *number < 1 => Err(key_path.error("config must be greater than or equal to 1")),
        Value::Int(number) => usize::try_from(*number)
            .ok()
            .filter(|count| *count <= MAX_PARALLEL)
            .map(Parallel::Count)
            .ok_or_else(|| key_path.error(format_args!("config must be less than or equal to {MAX_PARALLEL}"))),
        Value::Map(map) => {
            reject_unknown_keys(map, key_path, &["matrix"])?;
            let key_path = key_path.child("matrix");
            let items = map
                .get("matrix")
                .and_then(Value::as_list)
                .filter(|items| !items.is_empty())
                .ok_or_else(|| key_path.error("config should be an array of hashes"))?;
            let mut combinations = Vec::new();
            for item in items {
                combine(expect_map(item, key_path)?, key_path, &mut combinations)?;
            }
            Ok(Parallel::Matrix(combinations))
        }
        _ => Err(key_path.error("config should be an integer or a hash")),
    }
}

fn combine(map: &Map, key_path: KeyPath<'_>, combinations: &mut Vec<Combination>) -> Result<(), ConfigError> {
    let error = || key_path.error("config should be a hash of key value pairs");
    let mut axes: Vec<(&str, Vec<String>)> = Vec::new();
    // Counted before anything is built: the product of lists grows quickly.
    let mut count: usize = 1;
    for (key, value) in map.iter() {
        let values = match value {
            Value::List(items) => items.iter().map(Value::scalar_text).collect::<Option<Vec<_>>>(),
            other => other.scalar_text().map(|text| vec![text]),
        };
        let values = values.filter(|values| !values.is_empty()).ok_or_else(error)?;
        count = count.saturating_mul(values.len());
        axes.push((key.text.as_str(), values));
    }
    if axes.is_empty() {
        return Err(error());
    }
    if count.saturating_add(combinations.len()) > MAX_PARALLEL {
        return Err(key_path.error(format_args!("config generates too many jobs (maximum is {MAX_PARALLEL})")));
    }
    for number in 0..count {
        let mut rest = number;
        let mut chosen: Vec<(&str, &str)> = Vec::with_capacity(axes.len());
        for (key, values) in axes.iter().rev() {
            chosen.push((key, &values[rest % values.len()]));
            rest /= values.len();
        }
        chosen.reverse();
        let label = chosen.iter().map(|(_, value)| *value).collect::<Vec<_>>().join(", ");
        // The label becomes part of a name; the limit also bounds the memory of two hundred copies.
        if label.len() > MAX_NAME_LENGTH || chosen.iter().any(|(key, _)| key.len() > MAX_NAME_LENGTH) {
            return Err(
                key_path.error(format_args!("config values are too long (maximum is {MAX_NAME_LENGTH} characters)"))
            );
        }
        combinations.push(Combination {
            label,
            variables: chosen.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        });
    }
    Ok(())
}
