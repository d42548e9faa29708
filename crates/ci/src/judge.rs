//! Whether `rules`, `only` and `except` hold under given circumstances.

use std::collections::HashMap;

use crate::budget::MAX_GLOBS;
use crate::circumstances::Circumstances;
use crate::expression::Expression;
use crate::globs::{self, Glob};
use crate::jobs::{AllowFailure, Job, Selection};
use crate::patterns::Patterns;
use crate::plan::PlanRefusal;
use crate::refs::Policy;
use crate::rules::{Rule, Verdict, When};
use crate::variables::{Variables, expand};

/// Sets of variables, the strongest first.
pub(crate) type Layers<'a> = &'a [&'a Variables];

/// How a job is made.
pub(crate) struct Decision {
    pub(crate) when: When,
    pub(crate) allow_failure: AllowFailure,
    /// What the rule adds to the variables.
    pub(crate) variables: Variables,
}

/// Answers questions about one pipeline, and remembers answers that cost something.
pub(crate) struct Judge<'a> {
    circumstances: &'a Circumstances<'a>,
    patterns: Patterns,
    changed: HashMap<String, bool>,
    existing: HashMap<String, bool>,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(circumstances: &'a Circumstances<'a>) -> Self {
        Self { circumstances, patterns: Patterns::default(), changed: HashMap::new(), existing: HashMap::new() }
    }

    /// Finds the first rule that fits.
    pub(crate) fn first<'r>(
        &mut self,
        rules: &'r [Rule],
        layers: Layers<'_>,
        whose: &str,
    ) -> Result<Option<&'r Rule>, PlanRefusal> {
        for rule in rules {
            if self.fits(rule, layers, whose)? {
                return Ok(Some(rule));
            }
        }
        Ok(None)
    }

    /// Decides whether and how a job is made.
    pub(crate) fn decide(&mut self, job: &Job, layers: Layers<'_>) -> Result<Option<Decision>, PlanRefusal> {
        let plain = Decision { when: job.when, allow_failure: job.allow_failure.clone(), variables: Variables::new() };
        let rules = match &job.selection {
            Selection::Rules(rules) => rules,
            Selection::Policies { only, except } => {
                let wanted = match only {
                    Some(policy) => self.includes(policy, layers, &job.name)?,
                    None => true,
                };
                let unwanted = match except {
                    Some(policy) if wanted => self.excludes(policy, layers, &job.name)?,
                    _ => false,
                };
                return Ok((wanted && !unwanted).then_some(plain));
            }
        };
        let Some(rule) = self.first(rules, layers, &job.name)? else { return Ok(None) };
        let when = match rule.verdict {
            Some(Verdict::Never) => return Ok(None),
            Some(Verdict::When(when)) => when,
            None => job.when,
        };
        let allow_failure = match rule.allow_failure {
            Some(true) => AllowFailure::Yes,
            Some(false) => AllowFailure::No,
            None => plain.allow_failure,
        };
        Ok(Some(Decision { when, allow_failure, variables: rule.variables.clone() }))
    }

    fn fits(&mut self, rule: &Rule, layers: Layers<'_>, whose: &str) -> Result<bool, PlanRefusal> {
        if rule.condition.as_ref().is_some_and(|condition| !self.holds(condition, layers)) {
            return Ok(false);
        }
        if let Some(paths) = &rule.changes
            && !self.any_changed(paths, layers, whose)?
        {
            return Ok(false);
        }
        match &rule.exists {
            Some(paths) => self.any_exists(paths, layers, whose),
            None => Ok(true),
        }
    }

    /// `only`: everything that it names must fit.
    fn includes(&mut self, policy: &Policy, layers: Layers<'_>, whose: &str) -> Result<bool, PlanRefusal> {
        let refs = policy
            .refs
            .as_ref()
            .is_none_or(|refs| refs.is_empty() || refs.iter().any(|entry| entry.fits(self.circumstances)));
        let variables = policy
            .variables
            .as_ref()
            .is_none_or(|conditions| conditions.iter().any(|condition| self.holds(condition, layers)));
        match &policy.changes {
            Some(paths) if refs && variables => self.any_changed(paths, layers, whose),
            _ => Ok(refs && variables),
        }
    }

    /// `except`: anything that it names suffices.
    fn excludes(&mut self, policy: &Policy, layers: Layers<'_>, whose: &str) -> Result<bool, PlanRefusal> {
        let refs = policy.refs.iter().flatten().any(|entry| entry.fits(self.circumstances));
        let variables = policy.variables.iter().flatten().any(|condition| self.holds(condition, layers));
        match &policy.changes {
            Some(paths) if !refs && !variables => self.any_changed(paths, layers, whose),
            _ => Ok(refs || variables),
        }
    }

    fn holds(&mut self, condition: &Expression, layers: Layers<'_>) -> bool {
        condition.holds(&|name| find(layers, name), &mut self.patterns)
    }

    fn any_changed(&mut self, globs: &[String], layers: Layers<'_>, whose: &str) -> Result<bool, PlanRefusal> {
        let Some(paths) = self.circumstances.changes.as_deref() else { return Ok(true) };
        for glob in globs {
            let glob = self.expand(glob, layers, whose)?;
            let found = match self.changed.get(&glob) {
                Some(known) => *known,
                None => self.look_for_change(glob, paths, whose)?,
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn look_for_change(&mut self, glob: String, paths: &[String], whose: &str) -> Result<bool, PlanRefusal> {
        make_room(&self.changed, whose)?;
        let folder = globs::folder(&glob);
        let mut compiled = None;
        let mut found = false;
        for path in paths.iter().filter(|path| path.starts_with(folder)) {
            if !self.patterns.spend(path.len()) {
                break;
            }
            let compiled = match &compiled {
                Some(compiled) => compiled,
                None => compiled.insert(Glob::compile(&glob).ok_or_else(|| refuse(whose, &glob))?),
            };
            if compiled.matches(path) {
                found = true;
                break;
            }
        }
        self.changed.insert(glob, found);
        Ok(found)
    }

    fn any_exists(&mut self, globs: &[String], layers: Layers<'_>, whose: &str) -> Result<bool, PlanRefusal> {
        for glob in globs {
            let glob = self.expand(glob, layers, whose)?;
            let found = match self.existing.get(&glob) {
                Some(known) => *known,
                None => self.look_for_file(glob, whose)?,
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn look_for_file(&mut self, glob: String, whose: &str) -> Result<bool, PlanRefusal> {
        make_room(&self.existing, whose)?;
        let compiled = Glob::compile(&glob).ok_or_else(|| refuse(whose, &glob))?;
        let found = (self.circumstances.exists)(&compiled);
        self.existing.insert(glob, found);
        Ok(found)
    }

    /// Puts variables into a path; paths are relative to the root, with or without a slash before them.
    fn expand(&mut self, glob: &str, layers: Layers<'_>, whose: &str) -> Result<String, PlanRefusal> {
        let expanded = expand(glob, |name| find(layers, name)).ok_or_else(|| refuse(whose, glob))?;
        self.patterns.spend(expanded.len());
        Ok(expanded.strip_prefix('/').map_or_else(|| expanded.clone(), ToOwned::to_owned))
    }

    /// Tells what there was too much of, if anything; then no answer counts.
    pub(crate) fn excess(&self) -> Option<PlanRefusal> {
        self.patterns.excess().map(|excess| PlanRefusal::Invalid(excess.to_owned()))
    }
}

fn find<'a>(layers: &[&'a Variables], name: &str) -> Option<&'a str> {
    layers.iter().find_map(|layer| layer.get(name)).map(String::as_str)
}

fn refuse(whose: &str, glob: &str) -> PlanRefusal {
    PlanRefusal::Invalid(format!("{whose} job: `{glob}` is not a valid pattern for paths"))
}

fn make_room(known: &HashMap<String, bool>, whose: &str) -> Result<(), PlanRefusal> {
    if known.len() < MAX_GLOBS {
        return Ok(());
    }
    Err(PlanRefusal::Invalid(format!("{whose} job: too many different paths in one file (maximum is {MAX_GLOBS})")))
}
