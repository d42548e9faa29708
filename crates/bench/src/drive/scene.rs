//! What can be asked for in a seeded data set, and by whom.

use serde_json::Value;

use crate::{
    seed::{
        LABELS, LISTS, YARD_LABELS, YARD_LISTS,
        world::{Content, Group, LARGE, ROOT, Site, Use, World, token_of},
    },
    town::Dice,
};

/// One request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    pub(crate) method: &'static str,
    /// Below `/api/v3`, unless it begins with something else than a route.
    pub(crate) target: String,
    pub(crate) token: String,
    /// With its type.
    pub(crate) body: Option<(&'static str, String)>,
}

/// What was made before the clock started: the last request, and its answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prepared {
    pub(crate) ask: Ask,
    pub(crate) answer: Value,
}

/// Facts about the large repository, asked for once.
#[derive(Default)]
pub(crate) struct Facts {
    /// The newest commits, newest first.
    pub(crate) commits: Vec<String>,
    /// Files of the folder that is read.
    pub(crate) blobs: Vec<String>,
}

/// Draws requests.
pub(crate) struct Scene<'a> {
    pub(crate) world: &'a World,
    pub(crate) facts: Facts,
    pub(crate) dice: Dice,
    /// Keeps names of several runs on one data set apart.
    run: u64,
    made: u64,
    yards: Vec<&'a Site>,
    mills: Vec<&'a Site>,
    pub(crate) docks: Vec<&'a Site>,
    /// What everybody may read and holds a small repository.
    shelves: Vec<&'a Site>,
    /// What everybody may read.
    open: Vec<&'a Site>,
    open_groups: Vec<&'a Group>,
}

impl<'a> Scene<'a> {
    pub(crate) fn new(world: &'a World, run: u64) -> Self {
        let with = |wanted: Use| world.sites.iter().filter(move |site| site.purpose() == wanted).collect();
        let open: Vec<&Site> = world.sites.iter().filter(|site| site.visibility > 0).collect();
        let is_shelf = |site: &&&Site| site.purpose() == Use::Shelf && matches!(site.content, Content::Small(_));
        let shelves = open.iter().filter(is_shelf).copied().collect();
        let open_groups = world.groups.iter().filter(|group| group.visibility > 0).collect();
        let (yards, mills, docks) = (with(Use::Yard), with(Use::Mill), with(Use::Dock));
        let (dice, facts) = (Dice::new(run), Facts::default());
        Self { world, facts, dice, run, made: 0, yards, mills, docks, shelves, open, open_groups }
    }

    /// A name that nothing had before.
    pub(crate) fn name(&mut self) -> String {
        self.made += 1;
        format!("load-{}-{}", self.run, self.made)
    }

    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.place_in(all.len())]
    }

    /// A place among so many.
    pub(crate) fn place_in(&mut self, count: usize) -> usize {
        usize::try_from(self.dice.below(count.max(1) as u64)).unwrap_or(0)
    }

    /// Somebody, by number; those who are blocked and unblocked now and then are left out.
    pub(crate) fn person(&mut self) -> u64 {
        let (first, last) = self.world.people();
        self.dice.within(first, last - self.world.users / 10)
    }

    /// Somebody's token.
    pub(crate) fn somebody(&mut self) -> String {
        token_of(self.person())
    }

    /// One of those who are blocked and unblocked; not the same again for long.
    pub(crate) fn blockable(&mut self) -> u64 {
        self.made += 1;
        self.world.people().1 - self.made % (self.world.users / 10)
    }

    /// A project that may be changed, not the same again for long.
    pub(crate) fn yard(&mut self) -> &'a Site {
        self.made += 1;
        self.yards[usize::try_from(self.made).unwrap_or(0) % self.yards.len()]
    }

    pub(crate) fn mill(&mut self) -> &'a Site {
        self.made += 1;
        self.mills[usize::try_from(self.made).unwrap_or(0) % self.mills.len()]
    }

    pub(crate) fn shelf(&mut self) -> &'a Site {
        let shelves = std::mem::take(&mut self.shelves);
        let drawn = self.pick(&shelves);
        self.shelves = shelves;
        drawn
    }

    /// A project that everybody may see.
    pub(crate) fn open(&mut self) -> &'a Site {
        let open = std::mem::take(&mut self.open);
        let drawn = self.pick(&open);
        self.open = open;
        drawn
    }

    pub(crate) fn open_group(&mut self) -> &'a Group {
        let groups = std::mem::take(&mut self.open_groups);
        let drawn = self.pick(&groups);
        self.open_groups = groups;
        drawn
    }

    /// The large project two times out of three, or else a small one.
    pub(crate) fn read_from(&mut self) -> u64 {
        if self.dice.below(3) < 2 { LARGE } else { self.shelf().id }
    }

    /// The owner of a project's group.
    pub(crate) fn owner(&self, site: &Site) -> String {
        token_of(self.world.group_of(site).owner)
    }

    /// The number of one of the labels of a project that may be changed.
    pub(crate) fn label_of(site: &Site, title: &str) -> u64 {
        let place = YARD_LABELS.iter().position(|label| *label == title).unwrap_or(0) as u64;
        LABELS + 1 + (site.id - 4) / 10 * YARD_LABELS.len() as u64 + place
    }

    /// The number of the second list on the board of a project that may be changed.
    pub(crate) fn list_of(site: &Site) -> u64 {
        LISTS + YARD_LISTS * ((site.id - 4) / 10) + 2
    }

    /// The number of the hook that a project which may be changed came with: after that of the instance and that of the
    /// large project.
    pub(crate) fn hook_of(site: &Site) -> u64 {
        3 + (site.id - 4) / 10
    }

    /// Somebody who came with a key, and its number.
    pub(crate) fn keyed(&mut self) -> (u64, u64) {
        let user = self.dice.within(1, self.world.users * 9 / 10 / 5) * 5;
        (user, user / 5)
    }

    /// Somebody who came with a second address, and its number.
    pub(crate) fn addressed(&mut self) -> (u64, u64) {
        let user = self.dice.within(1, self.world.users * 9 / 10 / 3) * 3;
        (user, self.world.people().1 + user / 3)
    }

    pub(crate) fn key(&mut self) -> String {
        crate::seed::key_line([self.dice.bytes(), self.dice.bytes()].concat().as_slice())
    }
}

impl Ask {
    pub(crate) fn get(token: String, target: String) -> Self {
        Self { method: "GET", target, token, body: None }
    }

    pub(crate) fn delete(token: String, target: String) -> Self {
        Self { method: "DELETE", target, token, body: None }
    }

    pub(crate) fn post(token: String, target: String, body: &Value) -> Self {
        Self { method: "POST", target, token, body: Some(("application/json", body.to_string())) }
    }

    pub(crate) fn put(token: String, target: String, body: &Value) -> Self {
        Self { method: "PUT", ..Self::post(token, target, body) }
    }

    /// The same place and the same caller, one step further.
    pub(crate) fn below(&self, method: &'static str, step: &str) -> Self {
        Self { method, target: format!("{}/{step}", self.target), token: self.token.clone(), body: None }
    }

    /// The same place and the same caller, another way.
    pub(crate) fn with(&self, method: &'static str) -> Self {
        Self { method, body: None, ..self.clone() }
    }

    /// The place that this one is beneath.
    pub(crate) fn above(&self) -> Self {
        let target = self.target.rsplit_once('/').map_or("", |(above, _)| above).to_owned();
        Self { target, body: None, ..self.clone() }
    }
}

/// The administrator's token.
pub(crate) fn root() -> String {
    token_of(ROOT)
}

/// A number as it stands in an answer.
pub(crate) fn number(value: &Value) -> String {
    value.as_u64().unwrap_or(0).to_string()
}
