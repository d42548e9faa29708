//! Walks over commits and their ancestors.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet, hash_map::Entry},
    sync::Arc,
};

use gix::{
    ObjectId,
    commitgraph::{Graph, Position},
    hashtable::hash::Builder,
    objs::Kind,
};
use model::Oid;

use crate::{
    Error, Repository, Result,
    decode::CommitParts,
    file_stamps::FileStamps,
    repository::{gix_id, oid},
};

/// A map by commit.
pub(crate) type CommitMap<T> = HashMap<ObjectId, T, Builder>;
/// A set of commits.
pub(crate) type CommitSet = HashSet<ObjectId, Builder>;

/// The generation of a commit that is not in the commit-graph.
const UNKNOWN_GENERATION: u32 = u32::MAX;
/// How many commits are visited beyond the point where dates suggest that the result is complete; dates may be wrong.
const SLOP: usize = 64;

/// The maximum number of commits and parents that are cached during a walk: about ten megabytes.
const MAX_CACHED_LINKS: usize = 200_000;

/// The data of a commit that walks need.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) tree: Option<ObjectId>,
    pub(crate) parents: Vec<ObjectId>,
    pub(crate) seconds: i64,
    /// Greater than that of all its ancestors, if known.
    pub(crate) generation: u32,
}

/// A commit-graph, with the stamps of its files.
pub(crate) struct GraphFile {
    graph: Option<Arc<Graph>>,
    stamps: FileStamps,
}

/// The commits of a repository that were visited so far.
pub(crate) struct History<'a> {
    repository: &'a Repository,
    graph: Option<Arc<Graph>>,
    nodes: CommitMap<Arc<Node>>,
    /// The number of cached commits and parents.
    links: usize,
    buffer: Vec<u8>,
}

/// A queue of commits, newest first; commits of the same time in the order of insertion.
#[derive(Default)]
pub(crate) struct CommitQueue {
    pending: BinaryHeap<(i64, Reverse<usize>, ObjectId)>,
    seen: CommitSet,
}

impl CommitQueue {
    /// Adds a commit, unless it was added before.
    pub(crate) fn push(&mut self, id: ObjectId, seconds: i64) {
        if self.seen.insert(id) {
            self.pending.push((seconds, Reverse(self.seen.len()), id));
        }
    }

    pub(crate) fn pop(&mut self) -> Option<ObjectId> {
        self.pending.pop().map(|(_, _, id)| id)
    }
}

/// The state of a commit while the excluded part of a history is determined.
#[derive(Clone, Copy, Default)]
struct Paint {
    excluded: bool,
    popped: bool,
}

/// The state of a commit while common ancestors are searched.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Reached {
    from_one: bool,
    from_other: bool,
    /// Whether it is an ancestor of a common ancestor.
    is_below_base: bool,
}

impl Repository {
    pub(crate) fn history(&self) -> History<'_> {
        History {
            repository: self,
            graph: self.commit_graph(),
            nodes: CommitMap::default(),
            links: 0,
            buffer: Vec::new(),
        }
    }

    /// Returns the commit-graph, which makes walks fast, if there is one. An outdated one does no harm, because commits
    /// never change.
    pub(crate) fn commit_graph(&self) -> Option<Arc<Graph>> {
        let mut cached = self.handle.graph();
        if let Some(file) = &*cached
            && file.stamps.are_current()
        {
            return file.graph.clone();
        }
        let mut stamps = FileStamps::new();
        let info = self.path().join("objects/info");
        stamps.record(&info.join("commit-graph")).ok()?;
        stamps.record(&info.join("commit-graphs/commit-graph-chain")).ok()?;
        // Not through gix's repository, whose allocation limit would refuse a graph with many merges; the graph is
        // memory-mapped.
        let graph = match Graph::at(&info, gix::hash::Kind::Sha1, None) {
            Ok(graph) => Some(graph),
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                tracing::warn!(path = %self.path().display(), %error, "cannot read the commit-graph; walks are slower without it");
                None
            }
        };
        let graph = graph.map(Arc::new);
        *cached = Some(GraphFile { graph: graph.clone(), stamps });
        graph
    }
}

impl History<'_> {
    /// Returns a commit; an error if it does not exist.
    pub(crate) fn node(&mut self, id: ObjectId) -> Result<Arc<Node>> {
        self.find(id)?.ok_or_else(|| Error::corrupt(format!("the commit {id} is missing")))
    }

    /// Returns a commit; `None` if it does not exist.
    pub(crate) fn find(&mut self, id: ObjectId) -> Result<Option<Arc<Node>>> {
        if let Some(node) = self.nodes.get(&id) {
            return Ok(Some(Arc::clone(node)));
        }
        let known = self.graph.as_deref().and_then(|graph| node_from_graph(graph, &id));
        let node = match known {
            Some(node) => node,
            None => match self.repository.read_bounded(&id, Kind::Commit, &mut self.buffer)? {
                Some(commit) => {
                    let parts = CommitParts::parse(commit.data);
                    let seconds = parts.seconds();
                    Node { tree: parts.tree, parents: parts.parents, seconds, generation: UNKNOWN_GENERATION }
                }
                None => return Ok(None),
            },
        };
        let node = Arc::new(node);
        self.links += 1 + node.parents.len();
        if self.links > MAX_CACHED_LINKS {
            // They can be read again.
            self.nodes.clear();
            self.links = 1 + node.parents.len();
        }
        self.nodes.insert(id, Arc::clone(&node));
        Ok(Some(node))
    }

    /// Returns for each of these commits whether it is the tip or an ancestor of it.
    pub(crate) fn which_are_ancestors(&mut self, candidates: &[Oid], of: Oid) -> Result<Vec<bool>> {
        self.which_are_ancestors_of(candidates, &[of])
    }

    /// Returns for each of these commits whether it is one of the tips or an ancestor of one.
    pub(crate) fn which_are_ancestors_of(&mut self, candidates: &[Oid], tips: &[Oid]) -> Result<Vec<bool>> {
        Ok(self.which_are_ancestors_bounded(candidates, tips, usize::MAX)?.unwrap_or_default())
    }

    /// Like [`Self::which_are_ancestors_of`]; `None` if more than `max_reads` commits outside the commit-graph have to
    /// be read.
    pub(crate) fn which_are_ancestors_bounded(
        &mut self,
        candidates: &[Oid],
        tips: &[Oid],
        max_reads: usize,
    ) -> Result<Option<Vec<bool>>> {
        let graph = self.graph.clone();
        let position = |id: &gix::oid| graph.as_deref().and_then(|graph| graph.lookup(id));
        let mut found = CommitSet::default();
        let mut wanted: CommitSet = candidates.iter().map(|id| gix_id(*id)).collect();
        // Commits outside the commit-graph are read. The graph contains all ancestors of its commits, so from there on
        // the walk stays within it.
        let mut pending: Vec<ObjectId> = tips.iter().map(|tip| gix_id(*tip)).collect();
        let mut seen = CommitSet::default();
        let (mut start_positions, mut read) = (Vec::new(), 0);
        while let Some(id) = pending.pop() {
            if wanted.is_empty() {
                break;
            }
            if !seen.insert(id) {
                continue;
            }
            if let Some(position) = position(&id) {
                start_positions.push(position);
                continue;
            }
            if wanted.remove(&id) {
                found.insert(id);
            }
            read += 1;
            if read > max_reads {
                return Ok(None);
            }
            pending.extend(self.node(id)?.parents.iter().copied());
        }
        if let Some(graph) = graph.as_deref() {
            let wanted = wanted.iter().filter_map(|id| graph.lookup(id));
            found.extend(
                reachable_positions(graph, start_positions, wanted.collect())?
                    .into_iter()
                    .map(|position| graph.id_at(position).to_owned()),
            );
        }
        Ok(Some(candidates.iter().map(|candidate| found.contains(&gix_id(*candidate))).collect()))
    }

    /// Returns the commits that are reachable from `tip` but not from the others, newest first.
    pub(crate) fn excluding(&mut self, tip: Oid, excluded_tips: &[Oid]) -> Result<Vec<ObjectId>> {
        let tip = gix_id(tip);
        let excluded: Vec<_> = excluded_tips.iter().map(|id| gix_id(*id)).collect();
        let paint = self.paint(tip, &excluded)?;
        let is_wanted = |id: &ObjectId| paint.get(id).is_some_and(|paint| paint.popped && !paint.excluded);
        let mut queue = CommitQueue::default();
        if is_wanted(&tip) {
            queue.push(tip, self.node(tip)?.seconds);
        }
        let mut found = Vec::new();
        while let Some(id) = queue.pop() {
            found.push(id);
            for parent in self.node(id)?.parents.iter().filter(|id| is_wanted(id)) {
                queue.push(*parent, self.node(*parent)?.seconds);
            }
        }
        Ok(found)
    }

    /// Returns the best common ancestor: one that is not an ancestor of another one, and the newest if there are
    /// several.
    pub(crate) fn merge_base(&mut self, one: Oid, other: Oid) -> Result<Option<ObjectId>> {
        let mut found: Vec<(i64, ObjectId)> = Vec::new();
        for id in self.common(gix_id(one), gix_id(other))? {
            found.push((self.node(id)?.seconds, id));
        }
        found.sort_by_key(|(seconds, _)| Reverse(*seconds));
        let ids: Vec<Oid> = found.iter().map(|(_, id)| oid(id)).collect();
        for (position, id) in ids.iter().enumerate() {
            let is_below = |this: &mut Self, above: &Oid| Ok(this.which_are_ancestors(&[*id], *above)? == [true]);
            let others = ids[..position].iter().chain(&ids[position + 1..]);
            if !others.map(|above| is_below(self, above)).collect::<Result<Vec<_>>>()?.contains(&true) {
                return Ok(Some(gix_id(*id)));
            }
        }
        Ok(None)
    }

    /// Returns common ancestors, among them all that are best. With wrong dates and without a commit-graph, some may be
    /// ancestors of others.
    fn common(&mut self, one: ObjectId, other: ObjectId) -> Result<Vec<ObjectId>> {
        let mut reached: CommitMap<Reached> = CommitMap::default();
        let mut pending = BinaryHeap::new();
        let mut candidates = Vec::new();
        // The number of pending commits that may still lead to a new candidate.
        let mut open = 0_usize;
        let starts = [
            (one, Reached { from_one: true, ..Reached::default() }),
            (other, Reached { from_other: true, ..Reached::default() }),
        ];
        let mut next: Vec<(ObjectId, Reached)> = starts.to_vec();
        loop {
            for (id, more) in next.drain(..) {
                let node = self.node(id)?;
                let known = reached.entry(id).or_default();
                let now = Reached {
                    from_one: known.from_one || more.from_one,
                    from_other: known.from_other || more.from_other,
                    is_below_base: known.is_below_base || more.is_below_base,
                };
                if *known != now {
                    *known = now;
                    open += usize::from(!now.is_below_base);
                    pending.push((node.generation, node.seconds, id, now.is_below_base));
                }
            }
            if open == 0 {
                break;
            }
            let Some((_, _, id, was_below_base)) = pending.pop() else { break };
            open -= usize::from(!was_below_base);
            let mut state = reached.get(&id).copied().unwrap_or_default();
            if state.from_one && state.from_other && !state.is_below_base {
                if !candidates.contains(&id) {
                    candidates.push(id);
                }
                state.is_below_base = true;
            }
            next.extend(self.node(id)?.parents.iter().map(|parent| (*parent, state)));
        }
        candidates.retain(|id| reached.get(id).is_none_or(|state| !state.is_below_base));
        Ok(candidates)
    }

    /// Separates the ancestors of `tip` from those of the excluded commits. Children are visited before their parents
    /// as far as that is known, so most commits are known to be excluded when they are visited; otherwise their
    /// ancestors are painted again.
    fn paint(&mut self, tip: ObjectId, excluded: &[ObjectId]) -> Result<CommitMap<Paint>> {
        let mut paints: CommitMap<Paint> = CommitMap::default();
        let mut pending = BinaryHeap::new();
        // The number of pending commits that are not excluded.
        let mut wanted = 0;
        for id in excluded {
            let node = self.node(*id)?;
            if paints.insert(*id, Paint { excluded: true, popped: false }).is_none() {
                pending.push((node.generation, node.seconds, *id));
            }
        }
        if let Entry::Vacant(slot) = paints.entry(tip) {
            slot.insert(Paint::default());
            let node = self.node(tip)?;
            pending.push((node.generation, node.seconds, tip));
            wanted += 1;
        }
        let mut lowest = (UNKNOWN_GENERATION, i64::MAX);
        let mut slop = SLOP;
        while let Some((generation, seconds, id)) = pending.pop() {
            if wanted == 0 {
                if generation <= lowest.0 && generation != UNKNOWN_GENERATION {
                    break;
                }
                if generation == UNKNOWN_GENERATION && lowest.0 == UNKNOWN_GENERATION && seconds < lowest.1 {
                    slop -= 1;
                    if slop == 0 {
                        break;
                    }
                }
            }
            let at = paints.entry(id).or_default();
            let first = !std::mem::replace(&mut at.popped, true);
            let is_excluded = at.excluded;
            if !is_excluded && first {
                wanted -= 1;
                lowest = (lowest.0.min(generation), lowest.1.min(seconds));
            }
            for parent in &self.node(id)?.parents {
                let node = self.node(*parent)?;
                match paints.entry(*parent) {
                    Entry::Vacant(entry) => {
                        entry.insert(Paint { excluded: is_excluded, popped: false });
                        wanted += usize::from(!is_excluded);
                        pending.push((node.generation, node.seconds, *parent));
                    }
                    Entry::Occupied(mut entry) if is_excluded && !entry.get().excluded => {
                        entry.get_mut().excluded = true;
                        if entry.get().popped {
                            pending.push((node.generation, node.seconds, *parent));
                        } else {
                            wanted -= 1;
                        }
                    }
                    Entry::Occupied(_) => {}
                }
            }
        }
        Ok(paints)
    }
}

/// Returns which of the wanted commits are reachable from the start positions, within the commit-graph. Commits of a
/// lower generation than all wanted ones are skipped, because they cannot lead to them.
fn reachable_positions(
    graph: &Graph,
    start_positions: Vec<Position>,
    mut wanted: HashSet<Position>,
) -> Result<Vec<Position>> {
    let Some(min_generation) = wanted.iter().map(|position| graph.commit_at(*position).generation()).min() else {
        return Ok(Vec::new());
    };
    let mut seen = vec![false; graph.num_commits() as usize];
    let mut pending = start_positions;
    let mut found = Vec::new();
    while let Some(position) = pending.pop() {
        if std::mem::replace(&mut seen[position.0 as usize], true) {
            continue;
        }
        let commit = graph.commit_at(position);
        if commit.generation() < min_generation {
            continue;
        }
        if wanted.remove(&position) {
            found.push(position);
            if wanted.is_empty() {
                break;
            }
        }
        for parent in commit.iter_parents() {
            pending.push(parent.map_err(Error::corrupt)?);
        }
    }
    Ok(found)
}

fn node_from_graph(graph: &Graph, id: &gix::oid) -> Option<Node> {
    let commit = graph.commit_by_id(id)?;
    let parents =
        commit.iter_parents().map(|parent| Some(graph.id_at(parent.ok()?).to_owned())).collect::<Option<_>>()?;
    let generation = match commit.generation() {
        // Very old versions of git did not store it.
        0 => UNKNOWN_GENERATION,
        generation => generation,
    };
    let seconds = i64::try_from(commit.committer_timestamp()).ok()?;
    Some(Node { tree: Some(commit.root_tree_id().to_owned()), parents, seconds, generation })
}
