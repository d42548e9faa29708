//! A client that clones and fetches, and expects every push that was acknowledged before.

use std::{path::PathBuf, sync::Arc};

use super::Shared;
use crate::{checker::parse_refs, git::git, rng::Rng};

/// Clones and fetches projects until clients are stopped.
pub(super) async fn run(shared: Arc<Shared>, folder: PathBuf, mut rng: Rng) {
    // The project that is cloned at the moment.
    let mut cloned: Option<usize> = None;
    loop {
        let Some(operation) = shared.next_operation().await else { break };
        let number = cloned.unwrap_or_else(|| rng.below(shared.projects.pushed.len()));
        let project = &shared.projects.pushed[number];
        let expected: Vec<_> = shared.ledger.refs().into_iter().filter(|((id, _), _)| *id == project.id).collect();
        if expected.iter().any(|(_, history)| history.acknowledged().is_some()) {
            let read = if cloned.is_some() {
                git(&folder, &["fetch", "-q", "--prune", "origin"], b"").await
            } else {
                let _ = tokio::fs::remove_dir_all(&folder).await;
                let path = folder.display().to_string();
                git(&std::env::temp_dir(), &["clone", "-q", "--mirror", &shared.url(project), &path], b"").await
            };
            match read {
                Ok(_) => {
                    let listed = git(&folder, &["for-each-ref", "--format=%(objectname) %(refname)"], b"").await;
                    let found = parse_refs(&listed.unwrap_or_default());
                    // Attempts that started since are allowed too, so the newest history counts for targets.
                    let newest = shared.ledger.refs();
                    for (key, history) in &expected {
                        let target = found.get(&key.1).map(String::as_str);
                        let is_later = newest.get(key).is_some_and(|newest| newest.allows_after(history, target));
                        if !is_later {
                            shared.ledger.violation(format!(
                                "stale read: {} of project {} is {target:?} after {:?} was acknowledged",
                                key.1,
                                key.0,
                                history.acknowledged()
                            ));
                        }
                    }
                    cloned = if cloned.is_none() { Some(number) } else { None };
                }
                Err(messages) => {
                    shared.ledger.git_failed("clone", &messages);
                    cloned = None;
                }
            }
        }
        drop(operation);
        shared.think(300).await;
    }
    let _ = tokio::fs::remove_dir_all(&folder).await;
}
