//! Walks over commits and what they build upon.

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
    decode::Parts,
    marks::Marks,
    repository::{gix_id, oid},
};

/// A map from commits.
pub(crate) type CommitMap<T> = HashMap<ObjectId, T, Builder>;
/// A set of commits.
pub(crate) type CommitSet = HashSet<ObjectId, Builder>;

/// The generation of a commit that the commit-graph does not know.
const UNKNOWN: u32 = u32::MAX;
/// How many commits are looked at beyond the point where dates say that all is known; dates may lie.
const SLOP: usize = 64;

/// How many commits and parents of commits are remembered while a history is walked: some ten megabytes.
const MOST_LINKS: usize = 200_000;

/// What a walk has to know about a commit.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) tree: Option<ObjectId>,
    pub(crate) parents: Vec<ObjectId>,
    pub(crate) seconds: i64,
    /// More than that of every commit in its past, if known.
    generation: u32,
}

/// A commit-graph, with the marks of the files it came from.
pub(crate) struct GraphFile {
    graph: Option<Arc<Graph>>,
    marks: Marks,
}

/// The commits of a repository, as far as they have been looked at.
pub(crate) struct History<'a> {
    repository: &'a Repository,
    graph: Option<Arc<Graph>>,
    nodes: CommitMap<Arc<Node>>,
    /// How many commits and parents of commits are remembered.
    links: usize,
    buffer: Vec<u8>,
}

/// Commits that wait to be looked at, the newest first; of equally new ones, that which came first.
#[derive(Default)]
pub(crate) struct Newest {
    waiting: BinaryHeap<(i64, Reverse<usize>, ObjectId)>,
    seen: CommitSet,
}

impl Newest {
    /// Adds a commit, unless it was added before.
    pub(crate) fn push(&mut self, id: ObjectId, seconds: i64) {
        if self.seen.insert(id) {
            self.waiting.push((seconds, Reverse(self.seen.len()), id));
        }
    }

    pub(crate) fn pop(&mut self) -> Option<ObjectId> {
        self.waiting.pop().map(|(_, _, id)| id)
    }
}

/// What is known about a commit while two sides of a history are told apart.
#[derive(Clone, Copy, Default)]
struct Paint {
    hidden: bool,
    popped: bool,
}

/// What is known about a commit while the past that two commits have in common is looked for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Reached {
    by_one: bool,
    by_other: bool,
    /// Whether a commit was found above it that both have.
    below: bool,
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

    /// The commit-graph, which makes walks fast, if there is one. An outdated one does no harm: what it knows about a
    /// commit never changes.
    pub(crate) fn commit_graph(&self) -> Option<Arc<Graph>> {
        let mut kept = self.handle.graph();
        if let Some(file) = &*kept
            && file.marks.stand()
        {
            return file.graph.clone();
        }
        let mut marks = Marks::new();
        let info = self.path().join("objects/info");
        marks.note(&info.join("commit-graph")).ok()?;
        marks.note(&info.join("commit-graphs/commit-graph-chain")).ok()?;
        // Not through the repository, which would refuse one with many merges: it lies mapped and takes no memory.
        let graph = match Graph::at(&info, gix::hash::Kind::Sha1, None) {
            Ok(graph) => Some(graph),
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                tracing::warn!(path = %self.path().display(), %error, "the commit-graph cannot be read");
                None
            }
        };
        let graph = graph.map(Arc::new);
        *kept = Some(GraphFile { graph: graph.clone(), marks });
        graph
    }
}

impl History<'_> {
    /// A commit; an error if there is none.
    pub(crate) fn node(&mut self, id: ObjectId) -> Result<Arc<Node>> {
        self.find(id)?.ok_or_else(|| Error::Broken(format!("the commit {id} is missing")))
    }

    /// A commit; `None` if there is none.
    pub(crate) fn find(&mut self, id: ObjectId) -> Result<Option<Arc<Node>>> {
        if let Some(node) = self.nodes.get(&id) {
            return Ok(Some(Arc::clone(node)));
        }
        let known = self.graph.as_deref().and_then(|graph| node_in(graph, &id));
        let node = match known {
            Some(node) => node,
            None => match self.repository.start_of(&id, Kind::Commit, &mut self.buffer)? {
                Some(commit) => {
                    let parts = Parts::of(commit.data);
                    let seconds = parts.seconds();
                    Node { tree: parts.tree, parents: parts.parents, seconds, generation: UNKNOWN }
                }
                None => return Ok(None),
            },
        };
        let node = Arc::new(node);
        self.links += 1 + node.parents.len();
        if self.links > MOST_LINKS {
            // They can be read again.
            self.nodes.clear();
            self.links = 1 + node.parents.len();
        }
        self.nodes.insert(id, Arc::clone(&node));
        Ok(Some(node))
    }

    /// Which of these commits are the tip or lie in its past, in the order given.
    pub(crate) fn which_are_ancestors(&mut self, candidates: &[Oid], of: Oid) -> Result<Vec<bool>> {
        self.which_are_ancestors_of(candidates, &[of])
    }

    /// Which of these commits are one of the tips or lie in the past of one, in the order given.
    pub(crate) fn which_are_ancestors_of(&mut self, candidates: &[Oid], tips: &[Oid]) -> Result<Vec<bool>> {
        Ok(self.ancestors_within(candidates, tips, usize::MAX)?.unwrap_or_default())
    }

    /// As [`Self::which_are_ancestors_of`]; `None` if that takes reading more commits than `most`, those in the commit-graph
    /// not counted.
    pub(crate) fn ancestors_within(
        &mut self,
        candidates: &[Oid],
        tips: &[Oid],
        most: usize,
    ) -> Result<Option<Vec<bool>>> {
        let graph = self.graph.clone();
        let place = |id: &gix::oid| graph.as_deref().and_then(|graph| graph.lookup(id));
        let mut found = CommitSet::default();
        let mut wanted: CommitSet = candidates.iter().map(|id| gix_id(*id)).collect();
        // What the commit-graph does not know has to be read. It holds with every commit all of its past, so from where
        // it begins the walk stays within it.
        let mut waiting: Vec<ObjectId> = tips.iter().map(|tip| gix_id(*tip)).collect();
        let mut seen = CommitSet::default();
        let (mut starts, mut read) = (Vec::new(), 0);
        while let Some(id) = waiting.pop() {
            if wanted.is_empty() {
                break;
            }
            if !seen.insert(id) {
                continue;
            }
            if let Some(place) = place(&id) {
                starts.push(place);
                continue;
            }
            if wanted.remove(&id) {
                found.insert(id);
            }
            read += 1;
            if read > most {
                return Ok(None);
            }
            waiting.extend(self.node(id)?.parents.iter().copied());
        }
        if let Some(graph) = graph.as_deref() {
            let wanted = wanted.iter().filter_map(|id| graph.lookup(id));
            found.extend(
                reachable(graph, starts, wanted.collect())?.into_iter().map(|place| graph.id_at(place).to_owned()),
            );
        }
        Ok(Some(candidates.iter().map(|candidate| found.contains(&gix_id(*candidate))).collect()))
    }

    /// The commits that one commit has and the others lack, newest first.
    pub(crate) fn beyond(&mut self, tip: Oid, without: &[Oid]) -> Result<Vec<ObjectId>> {
        let tip = gix_id(tip);
        let hidden: Vec<_> = without.iter().map(|id| gix_id(*id)).collect();
        let paint = self.paint(tip, &hidden)?;
        let is_wanted = |id: &ObjectId| paint.get(id).is_some_and(|paint| paint.popped && !paint.hidden);
        let mut newest = Newest::default();
        if is_wanted(&tip) {
            newest.push(tip, self.node(tip)?.seconds);
        }
        let mut found = Vec::new();
        while let Some(id) = newest.pop() {
            found.push(id);
            for parent in self.node(id)?.parents.iter().filter(|id| is_wanted(id)) {
                newest.push(*parent, self.node(*parent)?.seconds);
            }
        }
        Ok(found)
    }

    /// The best of the commits that both have in their past: one that is in the past of no other such, and of several
    /// the newest.
    pub(crate) fn merge_base(&mut self, one: Oid, other: Oid) -> Result<Option<ObjectId>> {
        let mut found: Vec<(i64, ObjectId)> = Vec::new();
        for id in self.common(gix_id(one), gix_id(other))? {
            found.push((self.node(id)?.seconds, id));
        }
        found.sort_by_key(|(seconds, _)| Reverse(*seconds));
        let ids: Vec<Oid> = found.iter().map(|(_, id)| oid(id)).collect();
        for (place, id) in ids.iter().enumerate() {
            let is_below = |this: &mut Self, above: &Oid| Ok(this.which_are_ancestors(&[*id], *above)? == [true]);
            let others = ids[..place].iter().chain(&ids[place + 1..]);
            if !others.map(|above| is_below(self, above)).collect::<Result<Vec<_>>>()?.contains(&true) {
                return Ok(Some(gix_id(*id)));
            }
        }
        Ok(None)
    }

    /// Commits that both have in their past, with none left out that is the best of them. Where clocks lie and there is
    /// no commit-graph, some may lie in the past of others.
    fn common(&mut self, one: ObjectId, other: ObjectId) -> Result<Vec<ObjectId>> {
        let mut reached: CommitMap<Reached> = CommitMap::default();
        let mut waiting = BinaryHeap::new();
        let mut candidates = Vec::new();
        // How many of the waiting ones may still lead to something new.
        let mut open = 0_usize;
        let starts = [
            (one, Reached { by_one: true, ..Reached::default() }),
            (other, Reached { by_other: true, ..Reached::default() }),
        ];
        let mut next: Vec<(ObjectId, Reached)> = starts.to_vec();
        loop {
            for (id, more) in next.drain(..) {
                let node = self.node(id)?;
                let known = reached.entry(id).or_default();
                let now = Reached {
                    by_one: known.by_one || more.by_one,
                    by_other: known.by_other || more.by_other,
                    below: known.below || more.below,
                };
                if *known != now {
                    *known = now;
                    open += usize::from(!now.below);
                    waiting.push((node.generation, node.seconds, id, now.below));
                }
            }
            if open == 0 {
                break;
            }
            let Some((_, _, id, was_below)) = waiting.pop() else { break };
            open -= usize::from(!was_below);
            let mut state = reached.get(&id).copied().unwrap_or_default();
            if state.by_one && state.by_other && !state.below {
                if !candidates.contains(&id) {
                    candidates.push(id);
                }
                state.below = true;
            }
            next.extend(self.node(id)?.parents.iter().map(|parent| (*parent, state)));
        }
        candidates.retain(|id| reached.get(id).is_none_or(|state| !state.below));
        Ok(candidates)
    }

    /// Tells the past of one commit from that of others. Commits are looked at children first, as far as that is known,
    /// so that what is hidden is mostly known to be hidden when its turn comes; where it is not, its past is painted
    /// over.
    fn paint(&mut self, tip: ObjectId, hidden: &[ObjectId]) -> Result<CommitMap<Paint>> {
        let mut painted: CommitMap<Paint> = CommitMap::default();
        let mut waiting = BinaryHeap::new();
        // How many of the waiting ones are wanted.
        let mut wanted = 0;
        for id in hidden {
            let node = self.node(*id)?;
            if painted.insert(*id, Paint { hidden: true, popped: false }).is_none() {
                waiting.push((node.generation, node.seconds, *id));
            }
        }
        if let Entry::Vacant(place) = painted.entry(tip) {
            place.insert(Paint::default());
            let node = self.node(tip)?;
            waiting.push((node.generation, node.seconds, tip));
            wanted += 1;
        }
        let mut lowest = (UNKNOWN, i64::MAX);
        let mut slop = SLOP;
        while let Some((generation, seconds, id)) = waiting.pop() {
            if wanted == 0 {
                if generation <= lowest.0 && generation != UNKNOWN {
                    break;
                }
                if generation == UNKNOWN && lowest.0 == UNKNOWN && seconds < lowest.1 {
                    slop -= 1;
                    if slop == 0 {
                        break;
                    }
                }
            }
            let at = painted.entry(id).or_default();
            let first = !std::mem::replace(&mut at.popped, true);
            let is_hidden = at.hidden;
            if !is_hidden && first {
                wanted -= 1;
                lowest = (lowest.0.min(generation), lowest.1.min(seconds));
            }
            for parent in &self.node(id)?.parents {
                let node = self.node(*parent)?;
                match painted.entry(*parent) {
                    Entry::Vacant(place) => {
                        place.insert(Paint { hidden: is_hidden, popped: false });
                        wanted += usize::from(!is_hidden);
                        waiting.push((node.generation, node.seconds, *parent));
                    }
                    Entry::Occupied(mut place) if is_hidden && !place.get().hidden => {
                        place.get_mut().hidden = true;
                        if place.get().popped {
                            waiting.push((node.generation, node.seconds, *parent));
                        } else {
                            wanted -= 1;
                        }
                    }
                    Entry::Occupied(_) => {}
                }
            }
        }
        Ok(painted)
    }
}

/// Which of the wanted commits lie in the past of others, all of them within the commit-graph. Nothing is looked at that
/// is of a lower generation than all that are wanted, because it cannot lead to them.
fn reachable(graph: &Graph, starts: Vec<Position>, mut wanted: HashSet<Position>) -> Result<Vec<Position>> {
    let Some(floor) = wanted.iter().map(|place| graph.commit_at(*place).generation()).min() else {
        return Ok(Vec::new());
    };
    let mut seen = vec![false; graph.num_commits() as usize];
    let mut waiting = starts;
    let mut found = Vec::new();
    while let Some(place) = waiting.pop() {
        if std::mem::replace(&mut seen[place.0 as usize], true) {
            continue;
        }
        let commit = graph.commit_at(place);
        if commit.generation() < floor {
            continue;
        }
        if wanted.remove(&place) {
            found.push(place);
            if wanted.is_empty() {
                break;
            }
        }
        for parent in commit.iter_parents() {
            waiting.push(parent.map_err(Error::broken)?);
        }
    }
    Ok(found)
}

fn node_in(graph: &Graph, id: &gix::oid) -> Option<Node> {
    let commit = graph.commit_by_id(id)?;
    let parents =
        commit.iter_parents().map(|parent| Some(graph.id_at(parent.ok()?).to_owned())).collect::<Option<_>>()?;
    let generation = match commit.generation() {
        // Very old versions of git did not count.
        0 => UNKNOWN,
        generation => generation,
    };
    let seconds = i64::try_from(commit.committer_timestamp()).ok()?;
    Some(Node { tree: Some(commit.root_tree_id().to_owned()), parents, seconds, generation })
}
