//! Variables that a project gives its jobs, and those that a trigger gives along. Both are stored sealed.

use model::{Page, Project, Slice, Violations, runners::Variable, text::has_control, tokens::Secret};
use store::variables::SealedVariable;
use tracing::warn;

use crate::{Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx};

const WHAT: &str = "Variable";
/// How many characters a name may have.
const LONGEST_KEY: usize = 255;
/// How many characters a value may have.
const LONGEST_VALUE: usize = 10_000;
/// How many variables a project may have, and a trigger give along.
pub(crate) const MOST: usize = 1000;

/// A variable as somebody describes it.
#[derive(Clone)]
pub struct VariableText {
    /// Its name.
    pub key: String,
    /// What it shall hold.
    pub value: Secret,
}

/// A variable as it may be shown.
#[derive(Clone, Debug)]
pub struct ShownVariable {
    /// Its name.
    pub key: String,
    /// What it holds; nothing if that was sealed with another instance key.
    pub value: Option<Secret>,
}

fn open(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    tx.open(project, ProjectAbility::AdministerBuilds)
}

/// The variables of a project, oldest first.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Slice<ShownVariable>> {
    let project = open(tx, project)?;
    let found = store::variables::list(tx.db(), project.id, *page.get()?)?;
    Ok(found.map(|variable| shown(tx, project.id, variable)))
}

/// One variable of a project.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, key: &str) -> Result<ShownVariable> {
    let project = open(tx, project)?;
    let found = find(tx, project.id, key)?;
    Ok(shown(tx, project.id, found))
}

/// Adds a variable.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, text: &Unvalidated<VariableText>) -> Result<ShownVariable> {
    let project = open(tx, project)?;
    let VariableText { key, value } = text.get()?;
    let mut violations = Violations::new();
    check_key(&mut violations, "key", key);
    check_value(&mut violations, value.reveal());
    violations.into_result()?;
    // How many there are is judged while nobody adds another one.
    store::projects::lock(tx.db(), project.id)?;
    if store::variables::find(tx.db(), project.id, key)?.is_some() {
        return Err(Violations::one("key", "has already been taken").into());
    }
    if usize::try_from(store::variables::count(tx.db(), project.id)?).is_ok_and(|count| count >= MOST) {
        return Err(Violations::one("base", format!("Maximum number of variables ({MOST}) reached")).into());
    }
    let sealed = seal(tx, project.id, value.reveal().as_bytes());
    store::variables::insert(tx.db(), project.id, key, &sealed)?;
    Ok(ShownVariable { key: key.clone(), value: Some(value.clone()) })
}

/// Gives a variable another value; without one it stays as it is.
pub fn update(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    key: &str,
    value: &Unvalidated<Option<Secret>>,
) -> Result<ShownVariable> {
    let project = open(tx, project)?;
    let value = value.get()?;
    let found = find(tx, project.id, key)?;
    let Some(value) = value else { return Ok(shown(tx, project.id, found)) };
    let mut violations = Violations::new();
    check_value(&mut violations, value.reveal());
    violations.into_result()?;
    let sealed = seal(tx, project.id, value.reveal().as_bytes());
    if !store::variables::update(tx.db(), project.id, key, &sealed)? {
        return Err(Error::not_found(WHAT));
    }
    Ok(ShownVariable { key: found.key, value: Some(value.clone()) })
}

/// Removes a variable; answers it as it was.
pub fn delete(tx: &mut WriteTx<'_>, project: &ProjectRef, key: &str) -> Result<ShownVariable> {
    let project = open(tx, project)?;
    if has_control(key) {
        return Err(Error::not_found(WHAT));
    }
    let removed = store::variables::delete(tx.db(), project.id, key)?.ok_or(Error::not_found(WHAT))?;
    Ok(shown(tx, project.id, removed))
}

/// All variables of a project with their values, oldest first, for planning and for the jobs themselves. Whoever calls
/// this has judged that it may be. What was sealed with another instance key is left out, as nobody can know it.
pub(crate) fn of_project(tx: &mut ReadTx<'_>, project: i64) -> Result<Vec<Variable>> {
    let found = store::variables::all(tx.db(), project)?;
    let readable = |variable: SealedVariable| {
        let ShownVariable { key, value } = shown(tx, project, variable);
        if value.is_none() {
            warn!(project.id = project, key, "a variable was sealed with another instance key; set its value anew");
        }
        value.map(|value| Variable { key, value })
    };
    Ok(found.into_iter().filter_map(readable).collect())
}

/// Seals what a trigger gives along, to be stored with the pipeline; nothing if it gives nothing.
pub(crate) fn seal_all(tx: &ReadTx<'_>, project: i64, variables: &ci::Variables) -> Option<Vec<u8>> {
    if variables.is_empty() {
        return None;
    }
    Some(seal(tx, project, &write_all(variables)))
}

/// Opens what [`seal_all`] has sealed; nothing if that was done with another instance key.
pub(crate) fn open_all(tx: &ReadTx<'_>, project: i64, sealed: &[u8]) -> ci::Variables {
    let opened = tx.shared().instance_key.open(project, sealed).and_then(|plain| read_all(&plain));
    if opened.is_none() {
        warn!(
            project.id = project,
            "what a trigger gave along was sealed with another instance key and cannot be used"
        );
    }
    opened.unwrap_or_default()
}

/// Each text with its length before it, because any character may be part of a value.
fn write_all(variables: &ci::Variables) -> Vec<u8> {
    let mut plain = Vec::new();
    for text in variables.iter().flat_map(|(key, value)| [key, value]) {
        plain.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
        plain.extend(text.as_bytes());
    }
    plain
}

fn read_all(mut plain: &[u8]) -> Option<ci::Variables> {
    let mut next = || -> Option<Option<String>> {
        if plain.is_empty() {
            return Some(None);
        }
        let (length, rest) = plain.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        plain = rest;
        Some(Some(String::from_utf8(text.to_vec()).ok()?))
    };
    let mut variables = ci::Variables::new();
    while let Some(key) = next()? {
        variables.insert(key, next()??);
    }
    Some(variables)
}

/// Notes what is wrong with the name of a variable, as the original says it.
pub(crate) fn check_key(violations: &mut Violations, field: &str, key: &str) {
    violations.unless(!key.is_empty(), field, "can't be blank");
    violations.longest(field, key, LONGEST_KEY);
    let fits = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    violations.unless(fits, field, "can contain only letters, digits and '_'.");
}

/// Notes what is wrong with the value of a variable.
pub(crate) fn check_value(violations: &mut Violations, value: &str) {
    violations.longest("value", value, LONGEST_VALUE);
}

fn find(tx: &mut ReadTx<'_>, project: i64, key: &str) -> Result<SealedVariable> {
    // No name has one, and PostgreSQL refuses to look for NUL.
    let found = if has_control(key) { None } else { store::variables::find(tx.db(), project, key)? };
    found.ok_or(Error::not_found(WHAT))
}

fn seal(tx: &ReadTx<'_>, project: i64, plain: &[u8]) -> Vec<u8> {
    let shared = tx.shared();
    shared.instance_key.seal(project, plain, &*shared.secrets)
}

fn shown(tx: &ReadTx<'_>, project: i64, variable: SealedVariable) -> ShownVariable {
    let SealedVariable { key, value } = variable;
    let opened = tx.shared().instance_key.open(project, &value);
    ShownVariable { key, value: opened.and_then(|plain| String::from_utf8(plain).ok()).map(Secret::new) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_whole_or_not_at_all() {
        let given = [("A", "x\n"), ("B", ""), ("C", "ä = \"=\"\r\n")];
        let given: ci::Variables = given.map(|(key, value)| (key.into(), value.into())).into();
        let plain = write_all(&given);
        assert_eq!(read_all(&plain), Some(given.clone()));
        assert_eq!(read_all(b""), Some(ci::Variables::new()));
        // Cut between two variables, it reads as if the rest had never been there; sealing sees to that.
        let cuts = (0..plain.len()).filter(|cut| read_all(&plain[..*cut]).is_some());
        assert_eq!(cuts.collect::<Vec<_>>(), [0, 11, 20]);
    }

    #[test]
    fn a_name_has_letters_digits_and_underscores() {
        let check = |key: &str, expected: &str| {
            let mut violations = Violations::new();
            check_key(&mut violations, "key", key);
            assert_eq!(violations.to_string(), expected, "{key}");
        };
        check("API_KEY_2", "");
        check("2", "");
        check("", "key can't be blank");
        check(&"x".repeat(255), "");
        check(&"x".repeat(256), "key is too long (maximum is 255 characters)");
        for bad in ["a-b", "a b", "a=b", "ä", "a\n", "$A"] {
            check(bad, "key can contain only letters, digits and '_'.");
        }
    }
}
