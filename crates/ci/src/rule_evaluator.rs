//! Evaluates `rules`, `only` and `except` in the context of a pipeline.

use std::collections::HashMap;

use crate::budget::MAX_GLOBS;
use crate::expression::Expression;
use crate::globs::{self, Glob, GlobSemantics};
use crate::jobs::{AllowFailure, Job, JobSelection};
use crate::only_except::JobPolicy;
use crate::patterns::PatternCache;
use crate::pipeline_context::PipelineContext;
use crate::plan::PlanError;
use crate::rules::{Rule, RuleOutcome, When};
use crate::variables::{Variables, expand};

/// Sets of variables, highest precedence first.
pub(crate) type Layers<'a> = &'a [&'a Variables];

/// How a job is added to the pipeline.
pub(crate) struct Decision {
    pub(crate) when: When,
    pub(crate) allow_failure: AllowFailure,
    /// The variables that the rule adds.
    pub(crate) variables: Variables,
}

/// Evaluates rules for one pipeline and caches the results of globs.
pub(crate) struct RuleEvaluator<'a> {
    context: &'a PipelineContext<'a>,
    patterns: PatternCache,
    changed: HashMap<String, bool>,
    existing: HashMap<String, bool>,
}

impl<'a> RuleEvaluator<'a> {
    pub(crate) fn new(context: &'a PipelineContext<'a>) -> Self {
        Self { context, patterns: PatternCache::default(), changed: HashMap::new(), existing: HashMap::new() }
    }

    /// Returns the first matching rule.
    pub(crate) fn first_match<'r>(
        &mut self,
        rules: &'r [Rule],
        layers: Layers<'_>,
        job_name: &str,
    ) -> Result<Option<&'r Rule>, PlanError> {
        for rule in rules {
            if self.matches(rule, layers, job_name)? {
                return Ok(Some(rule));
            }
        }
        Ok(None)
    }

    /// Decides whether and how a job is added to the pipeline.
    pub(crate) fn decide(&mut self, job: &Job, layers: Layers<'_>) -> Result<Option<Decision>, PlanError> {
        let unconditional =
            Decision { when: job.when, allow_failure: job.allow_failure.clone(), variables: Variables::new() };
        let rules = match &job.selection {
            JobSelection::Rules(rules) => rules,
            JobSelection::Policies { only, except } => {
                let included = match only {
                    Some(policy) => self.only_matches(policy, layers, &job.name)?,
                    None => true,
                };
                let excluded = match except {
                    Some(policy) if included => self.except_matches(policy, layers, &job.name)?,
                    _ => false,
                };
                return Ok((included && !excluded).then_some(unconditional));
            }
        };
        let Some(rule) = self.first_match(rules, layers, &job.name)? else { return Ok(None) };
        let when = match rule.outcome {
            Some(RuleOutcome::Never) => return Ok(None),
            Some(RuleOutcome::When(when)) => when,
            None => job.when,
        };
        let allow_failure = match rule.allow_failure {
            Some(true) => AllowFailure::Yes,
            Some(false) => AllowFailure::No,
            None => unconditional.allow_failure,
        };
        Ok(Some(Decision { when, allow_failure, variables: rule.variables.clone() }))
    }

    fn matches(&mut self, rule: &Rule, layers: Layers<'_>, job_name: &str) -> Result<bool, PlanError> {
        if rule.condition.as_ref().is_some_and(|condition| !self.evaluate(condition, layers)) {
            return Ok(false);
        }
        if let Some(paths) = &rule.changes
            && !self.any_changed(paths, layers, job_name)?
        {
            return Ok(false);
        }
        match &rule.exists {
            Some(paths) => self.any_exists(paths, layers, job_name),
            None => Ok(true),
        }
    }

    /// Evaluates `only`: every given condition must match.
    fn only_matches(&mut self, policy: &JobPolicy, layers: Layers<'_>, job_name: &str) -> Result<bool, PlanError> {
        let refs = policy
            .refs
            .as_ref()
            .is_none_or(|refs| refs.is_empty() || refs.iter().any(|entry| entry.matches(self.context)));
        let variables = policy
            .variables
            .as_ref()
            .is_none_or(|conditions| conditions.iter().any(|condition| self.evaluate(condition, layers)));
        match &policy.changes {
            Some(paths) if refs && variables => self.any_changed(paths, layers, job_name),
            _ => Ok(refs && variables),
        }
    }

    /// Evaluates `except`: any given condition suffices.
    fn except_matches(&mut self, policy: &JobPolicy, layers: Layers<'_>, job_name: &str) -> Result<bool, PlanError> {
        let refs = policy.refs.iter().flatten().any(|entry| entry.matches(self.context));
        let variables = policy.variables.iter().flatten().any(|condition| self.evaluate(condition, layers));
        match &policy.changes {
            Some(paths) if !refs && !variables => self.any_changed(paths, layers, job_name),
            _ => Ok(refs || variables),
        }
    }

    fn evaluate(&mut self, condition: &Expression, layers: Layers<'_>) -> bool {
        condition.evaluate(&|name| find(layers, name), &mut self.patterns)
    }

    fn any_changed(&mut self, globs: &[String], layers: Layers<'_>, job_name: &str) -> Result<bool, PlanError> {
        let Some(paths) = self.context.changes.as_deref() else { return Ok(true) };
        for glob in globs {
            let glob = self.expand(glob, layers, job_name)?;
            let matched = match self.changed.get(&glob) {
                Some(cached) => *cached,
                None => self.search_changes(glob, paths, job_name)?,
            };
            if matched {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn search_changes(&mut self, glob: String, paths: &[String], job_name: &str) -> Result<bool, PlanError> {
        check_glob_limit(&self.changed, job_name)?;
        let folder = globs::folder(&glob);
        let mut compiled = None;
        let mut matched = false;
        for path in paths.iter().filter(|path| path.starts_with(folder)) {
            if !self.patterns.charge_bytes(path.len()) {
                break;
            }
            let compiled = match &compiled {
                Some(compiled) => compiled,
                None => compiled.insert(compile(&glob, job_name)?),
            };
            if compiled.matches(path) {
                matched = true;
                break;
            }
        }
        self.changed.insert(glob, matched);
        Ok(matched)
    }

    fn any_exists(&mut self, globs: &[String], layers: Layers<'_>, job_name: &str) -> Result<bool, PlanError> {
        for glob in globs {
            let glob = self.expand(glob, layers, job_name)?;
            let matched = match self.existing.get(&glob) {
                Some(cached) => *cached,
                None => self.search_files(glob, job_name)?,
            };
            if matched {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn search_files(&mut self, glob: String, job_name: &str) -> Result<bool, PlanError> {
        check_glob_limit(&self.existing, job_name)?;
        let compiled = compile(&glob, job_name)?;
        let matched = (self.context.exists)(&compiled);
        self.existing.insert(glob, matched);
        Ok(matched)
    }

    /// Expands variables in a path and removes a leading slash.
    fn expand(&mut self, glob: &str, layers: Layers<'_>, job_name: &str) -> Result<String, PlanError> {
        let expanded = expand(glob, |name| find(layers, name)).ok_or_else(|| invalid_glob(job_name, glob))?;
        self.patterns.charge_bytes(expanded.len());
        Ok(expanded.strip_prefix('/').map_or_else(|| expanded.clone(), ToOwned::to_owned))
    }

    /// Returns which limit was exceeded, if any; previous results are then meaningless.
    pub(crate) fn limit_error(&self) -> Option<PlanError> {
        self.patterns.limit_error().map(|message| PlanError::Invalid(message.to_owned()))
    }
}

fn find<'a>(layers: &[&'a Variables], name: &str) -> Option<&'a str> {
    layers.iter().find_map(|layer| layer.get(name)).map(String::as_str)
}

fn compile(glob: &str, job_name: &str) -> Result<Glob, PlanError> {
    Glob::compile(glob, GlobSemantics::Fnmatch).ok_or_else(|| invalid_glob(job_name, glob))
}

fn invalid_glob(job_name: &str, glob: &str) -> PlanError {
    PlanError::Invalid(format!("{job_name} job: `{glob}` is not a valid pattern for paths"))
}

fn check_glob_limit(cached: &HashMap<String, bool>, job_name: &str) -> Result<(), PlanError> {
    if cached.len() < MAX_GLOBS {
        return Ok(());
    }
    Err(PlanError::Invalid(format!("{job_name} job: too many different paths in one file (maximum is {MAX_GLOBS})")))
}
