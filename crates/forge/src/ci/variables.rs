//! CI variables of projects, and variables passed by triggers. Both are stored encrypted.

use model::{Page, Project, ProjectId, Slice, Violations, text::has_control, tokens::Secret, variables::Variable};
use store::variables::EncryptedVariable;
use tracing::warn;

use crate::{Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx};

const RESOURCE: &str = "Variable";
/// The maximum length of a key in characters.
const MAX_KEY_LENGTH: usize = 255;
/// The maximum length of a value in characters.
const MAX_VALUE_LENGTH: usize = 10_000;
/// The maximum number of variables of a project, and of variables passed by a trigger.
pub(crate) const MAX_VARIABLES: usize = 1000;

/// A variable to create.
#[derive(Clone)]
pub struct NewVariable {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Secret,
}

/// A variable with its decrypted value.
#[derive(Clone, Debug)]
pub struct DecryptedVariable {
    /// The key.
    pub key: String,
    /// The value; `None` if it was encrypted with another instance key.
    pub value: Option<Secret>,
}

fn open(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    tx.project(project, ProjectAbility::AdministerCi)
}

/// Returns a page of the variables of a project, oldest first.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Slice<DecryptedVariable>> {
    let project = open(tx, project)?;
    let found = store::variables::list(tx.db(), project.id, *page.validate()?)?;
    Ok(found.map(|variable| decrypt_variable(tx, project.id, variable)))
}

/// Returns a variable of a project.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, key: &str) -> Result<DecryptedVariable> {
    let project = open(tx, project)?;
    let found = find(tx, project.id, key)?;
    Ok(decrypt_variable(tx, project.id, found))
}

/// Creates a variable; the key must be unique within the project.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, new: &Unvalidated<NewVariable>) -> Result<DecryptedVariable> {
    let project = open(tx.read(), project)?;
    let NewVariable { key, value } = new.validate()?;
    let mut violations = Violations::new();
    check_key(&mut violations, "key", key);
    check_value(&mut violations, value.reveal());
    violations.into_result()?;
    // Locked, so that concurrent calls cannot exceed the limit.
    store::projects::lock(tx.db(), project.id)?;
    if store::variables::find(tx.db(), project.id, key)?.is_some() {
        return Err(Violations::one("key", "has already been taken").into());
    }
    if usize::try_from(store::variables::count(tx.db(), project.id)?).is_ok_and(|count| count >= MAX_VARIABLES) {
        return Err(Violations::one("base", format!("Maximum number of variables ({MAX_VARIABLES}) reached")).into());
    }
    let encrypted = encrypt(tx.read(), project.id, value.reveal().as_bytes());
    store::variables::insert(tx.db(), project.id, key, &encrypted)?;
    Ok(DecryptedVariable { key: key.clone(), value: Some(value.clone()) })
}

/// Sets the value of a variable; `None` keeps it.
pub fn update(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    key: &str,
    value: &Unvalidated<Option<Secret>>,
) -> Result<DecryptedVariable> {
    let project = open(tx.read(), project)?;
    let value = value.validate()?;
    let found = find(tx.read(), project.id, key)?;
    let Some(value) = value else { return Ok(decrypt_variable(tx.read(), project.id, found)) };
    let mut violations = Violations::new();
    check_value(&mut violations, value.reveal());
    violations.into_result()?;
    let encrypted = encrypt(tx.read(), project.id, value.reveal().as_bytes());
    if !store::variables::update(tx.db(), project.id, key, &encrypted)? {
        return Err(Error::not_found(RESOURCE));
    }
    Ok(DecryptedVariable { key: found.key, value: Some(value.clone()) })
}

/// Deletes a variable and returns it.
pub fn delete(tx: &mut WriteTx<'_>, project: &ProjectRef, key: &str) -> Result<DecryptedVariable> {
    let project = open(tx.read(), project)?;
    if has_control(key) {
        return Err(Error::not_found(RESOURCE));
    }
    let removed = store::variables::delete(tx.db(), project.id, key)?.ok_or(Error::not_found(RESOURCE))?;
    Ok(decrypt_variable(tx.read(), project.id, removed))
}

/// Returns all variables of a project, oldest first, for planning and for jobs. Leaves out those encrypted with another
/// instance key. The caller checks permissions.
pub(crate) fn of_project(tx: &mut ReadTx<'_>, project: ProjectId) -> Result<Vec<Variable>> {
    let found = store::variables::all(tx.db(), project)?;
    let readable = |variable: EncryptedVariable| {
        let DecryptedVariable { key, value } = decrypt_variable(tx, project, variable);
        if value.is_none() {
            warn!(
                project.id = project.get(),
                key, "a variable was encrypted with another instance key; set its value again"
            );
        }
        value.map(|value| Variable { key, value })
    };
    Ok(found.into_iter().filter_map(readable).collect())
}

/// Encrypts the variables passed by a trigger, to be stored with the pipeline; returns `None` if there are none.
pub(crate) fn encrypt_all(tx: &ReadTx<'_>, project: ProjectId, variables: &ci::Variables) -> Option<Vec<u8>> {
    if variables.is_empty() {
        return None;
    }
    Some(encrypt(tx, project, &encode(variables)))
}

/// Decrypts variables encrypted by [`encrypt_all`]; returns none if they were encrypted with another instance key.
pub(crate) fn decrypt_all(tx: &ReadTx<'_>, project: ProjectId, encrypted: &[u8]) -> ci::Variables {
    let opened = tx.shared().instance_key.decrypt(project, encrypted).and_then(|bytes| decode(&bytes));
    if opened.is_none() {
        warn!(project.id = project.get(), "ignored trigger variables that were encrypted with another instance key");
    }
    opened.unwrap_or_default()
}

/// Encodes each text after its length, because a value may contain any character.
fn encode(variables: &ci::Variables) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in variables.iter().flat_map(|(key, value)| [key, value]) {
        bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

fn decode(mut bytes: &[u8]) -> Option<ci::Variables> {
    let mut next = || -> Option<Option<String>> {
        if bytes.is_empty() {
            return Some(None);
        }
        let (length, rest) = bytes.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        bytes = rest;
        Some(Some(String::from_utf8(text.to_vec()).ok()?))
    };
    let mut variables = ci::Variables::new();
    while let Some(key) = next()? {
        variables.insert(key, next()??);
    }
    Some(variables)
}

/// Validates the key of a variable, with the messages of GitLab.
pub(crate) fn check_key(violations: &mut Violations, field: &str, key: &str) {
    violations.require(!key.is_empty(), field, "can't be blank");
    violations.max_length(field, key, MAX_KEY_LENGTH);
    let is_valid = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    violations.require(is_valid, field, "can contain only letters, digits and '_'.");
}

/// Validates the value of a variable.
pub(crate) fn check_value(violations: &mut Violations, value: &str) {
    violations.max_length("value", value, MAX_VALUE_LENGTH);
}

fn find(tx: &mut ReadTx<'_>, project: ProjectId, key: &str) -> Result<EncryptedVariable> {
    // Keys contain no control characters, and PostgreSQL rejects NUL in queries.
    let found = if has_control(key) { None } else { store::variables::find(tx.db(), project, key)? };
    found.ok_or(Error::not_found(RESOURCE))
}

fn encrypt(tx: &ReadTx<'_>, project: ProjectId, bytes: &[u8]) -> Vec<u8> {
    let shared = tx.shared();
    shared.instance_key.encrypt(project, bytes, &*shared.secrets)
}

fn decrypt_variable(tx: &ReadTx<'_>, project: ProjectId, variable: EncryptedVariable) -> DecryptedVariable {
    let EncryptedVariable { key, value } = variable;
    let opened = tx.shared().instance_key.decrypt(project, &value);
    DecryptedVariable { key, value: opened.and_then(|bytes| String::from_utf8(bytes).ok()).map(Secret::new) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_variables_are_decoded_completely_or_not_at_all() {
        let variables = [("A", "x\n"), ("B", ""), ("C", "ä = \"=\"\r\n")];
        let variables: ci::Variables = variables.map(|(key, value)| (key.into(), value.into())).into();
        let bytes = encode(&variables);
        assert_eq!(decode(&bytes), Some(variables.clone()));
        assert_eq!(decode(b""), Some(ci::Variables::new()));
        // If cut between two variables, the rest is lost silently; the encryption prevents that.
        let cuts = (0..bytes.len()).filter(|cut| decode(&bytes[..*cut]).is_some());
        assert_eq!(cuts.collect::<Vec<_>>(), [0, 11, 20]);
    }

    #[test]
    fn a_key_consists_of_letters_digits_and_underscores() {
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
