//! Who and what is where in a seeded data set: the same for the same number of projects and the same seed, so that
//! whoever asks the service afterwards knows what to expect without reading it.

use crate::{
    landscape,
    town::{Dice, capital},
};

/// How many projects each group has.
pub(crate) const PROJECTS_OF_A_GROUP: u64 = 10;
/// The project with the large repository and all the issues.
pub(crate) const LARGE: u64 = 1;
/// The administrator.
pub(crate) const ROOT: u64 = 1;
/// How many different small repositories there are; all others are copies.
pub(crate) const TEMPLATES: u64 = 4;
/// The number of a group or a user counts up from here.
const FIRST_USER: u64 = 2;

/// A data set, as far as it follows from its size and its seed.
pub(crate) struct World {
    pub(crate) seed: u64,
    /// As many as there are projects.
    pub(crate) users: u64,
    pub(crate) groups: Vec<Group>,
    pub(crate) sites: Vec<Site>,
}

/// A group.
pub(crate) struct Group {
    pub(crate) id: u64,
    pub(crate) path: String,
    pub(crate) visibility: u64,
    pub(crate) owner: u64,
}

/// A project.
pub(crate) struct Site {
    pub(crate) id: u64,
    pub(crate) group: usize,
    /// Two words; the path has them too.
    pub(crate) words: (&'static str, &'static str),
    pub(crate) visibility: u64,
    pub(crate) archived: bool,
    pub(crate) content: Content,
}

/// What a project's repository holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Nothing,
    /// One of the templates.
    Small(u64),
    Large,
}

/// What a project is used for by the load, by the last digit of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Only read.
    Shelf,
    /// Changed through the interface, by the owner of its group.
    Yard,
    /// Pushed to, by the owner of its group.
    Dock,
    /// Merged branches are removed from it, by the owner of its group.
    Mill,
}

impl World {
    pub(crate) fn new(projects: u64, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let users = projects;
        let groups: Vec<Group> = (0..projects.div_ceil(PROJECTS_OF_A_GROUP))
            .map(|number| {
                let visibility = match dice.below(20) {
                    _ if number == 0 => 20,
                    0..14 => 20,
                    14..17 => 10,
                    _ => 0,
                };
                let path = format!("{}-{}", dice.word(), number + 1);
                Group { id: FIRST_USER + users + number, path, visibility, owner: FIRST_USER + number % users }
            })
            .collect();
        let sites = (1..=projects)
            .map(|id| {
                let group = usize::try_from((id - 1) / PROJECTS_OF_A_GROUP).unwrap_or(0);
                let drawn = [0, 0, 0, 0, 10, 10, 20, 20, 20, 20][usize::try_from(dice.below(10)).unwrap_or(0)];
                let visibility = if id == LARGE { 20 } else { drawn.min(groups[group].visibility) };
                let archived = dice.below(20) == 0 && use_of(id) == Use::Shelf && id != LARGE;
                let content = match id {
                    LARGE => Content::Large,
                    _ if id % 2 == 0 => Content::Small(id / 2 % TEMPLATES),
                    _ => Content::Nothing,
                };
                Site { id, group, words: (dice.word(), dice.word()), visibility, archived, content }
            })
            .collect();
        Self { seed, users, groups, sites }
    }

    /// The first and the last user beside the administrator.
    pub(crate) fn people(&self) -> (u64, u64) {
        (FIRST_USER, FIRST_USER + self.users - 1)
    }

    pub(crate) fn group_of(&self, site: &Site) -> &Group {
        &self.groups[site.group]
    }

    /// Where a project is found, by words.
    pub(crate) fn full_path(&self, site: &Site) -> String {
        format!("{}/{}", self.group_of(site).path, site.path())
    }

    /// How large the large repository is: full size where there are enough projects around it.
    pub(crate) fn scale(&self) -> landscape::Scale {
        let seed = usize::try_from(self.seed % (1 << 20)).unwrap_or(0);
        if self.sites.len() >= 1000 {
            landscape::Scale { commits: 20_000, streets: 80, crowd: 2000, branches: 500, tags: 500, seed }
        } else {
            landscape::Scale { commits: 300, streets: 10, crowd: 20, branches: 20, tags: 20, seed }
        }
    }

    /// How many issues the large project has.
    pub(crate) fn issues(&self) -> u64 {
        if self.sites.len() >= 1000 { 6700 } else { 100 }
    }
}

impl Site {
    pub(crate) fn name(&self) -> String {
        format!("{} {} {}", capital(self.words.0), capital(self.words.1), self.id)
    }

    pub(crate) fn path(&self) -> String {
        format!("{}-{}-{}", self.words.0, self.words.1, self.id)
    }

    pub(crate) fn purpose(&self) -> Use {
        use_of(self.id)
    }

    pub(crate) fn branch(&self) -> &'static str {
        if self.content == Content::Large { "main" } else { "master" }
    }
}

fn use_of(project: u64) -> Use {
    match project % 10 {
        4 => Use::Yard,
        8 => Use::Dock,
        6 => Use::Mill,
        _ => Use::Shelf,
    }
}

/// The token of somebody.
pub(crate) fn token_of(user: u64) -> String {
    if user == ROOT { crate::server::TOKEN.into() } else { format!("load-somebody-{user:07}") }
}

/// The name of somebody.
pub(crate) fn username(user: u64) -> String {
    if user == ROOT { "root".into() } else { format!("user{user}") }
}
