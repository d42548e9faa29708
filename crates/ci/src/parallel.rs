//! One job that becomes several: a number of equal ones, or one for each combination of variables.

use crate::budget::{MAX_NAME, MAX_PARALLEL};
use crate::entries::{known_keys, mapping};
use crate::invalid::{Invalid, Place};
use crate::value::{Map, Value};
use crate::variables::Variables;

/// Into how many jobs one job is split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Parallel {
    /// It stays one.
    #[default]
    One,
    /// So many equal ones.
    Count(usize),
    /// One for each set of variables, named by the values.
    Matrix(Vec<Combination>),
}

/// One job of a matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combination {
    /// The values, in the order of the file, as they appear in the name.
    pub label: String,
    /// The variables.
    pub variables: Variables,
}

/// One of the jobs that a job becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) variables: Variables,
}

impl Parallel {
    /// How many jobs there will be.
    pub fn count(&self) -> usize {
        match self {
            Self::One => 1,
            Self::Count(count) => *count,
            Self::Matrix(combinations) => combinations.len(),
        }
    }

    /// The jobs that come out, with the variables that tell them apart.
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
pub(crate) fn read(value: &Value, place: Place<'_>) -> Result<Parallel, Invalid> {
    match value {
        Value::Int(number) if *number < 1 => Err(place.invalid("config must be greater than or equal to 1")),
        Value::Int(number) => usize::try_from(*number)
            .ok()
            .filter(|count| *count <= MAX_PARALLEL)
            .map(Parallel::Count)
            .ok_or_else(|| place.invalid(format_args!("config must be less than or equal to {MAX_PARALLEL}"))),
        Value::Map(map) => {
            known_keys(map, place, &["matrix"])?;
            let place = place.at("matrix");
            let items = map
                .get("matrix")
                .and_then(Value::as_list)
                .filter(|items| !items.is_empty())
                .ok_or_else(|| place.invalid("config should be an array of hashes"))?;
            let mut combinations = Vec::new();
            for item in items {
                combine(mapping(item, place)?, place, &mut combinations)?;
            }
            Ok(Parallel::Matrix(combinations))
        }
        _ => Err(place.invalid("config should be an integer or a hash")),
    }
}

fn combine(map: &Map, place: Place<'_>, combinations: &mut Vec<Combination>) -> Result<(), Invalid> {
    let refuse = || place.invalid("config should be a hash of key value pairs");
    let mut axes: Vec<(&str, Vec<String>)> = Vec::new();
    // Counted before anything is made: a product of lists grows faster than any file.
    let mut count: usize = 1;
    for (key, value) in map.iter() {
        let values = match value {
            Value::List(items) => items.iter().map(Value::scalar_text).collect::<Option<Vec<_>>>(),
            other => other.scalar_text().map(|text| vec![text]),
        };
        let values = values.filter(|values| !values.is_empty()).ok_or_else(refuse)?;
        count = count.saturating_mul(values.len());
        axes.push((key.text.as_str(), values));
    }
    if axes.is_empty() {
        return Err(refuse());
    }
    if count.saturating_add(combinations.len()) > MAX_PARALLEL {
        return Err(place.invalid(format_args!("config generates too many jobs (maximum is {MAX_PARALLEL})")));
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
        // The label becomes part of a name; the limit also keeps two hundred copies of the values small.
        if label.len() > MAX_NAME || chosen.iter().any(|(key, _)| key.len() > MAX_NAME) {
            return Err(place.invalid(format_args!("config values are too long (maximum is {MAX_NAME} characters)")));
        }
        combinations.push(Combination {
            label,
            variables: chosen.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        });
    }
    Ok(())
}
