//! What people did in a seeded data set: issues, notes, pushes, pipelines, hooks and files.

use std::{fs, path::Path, sync::Mutex};

use ci::{Circumstances, Config, NoFiles, Plan};
use forge::{InstanceKey, clock::Secrets, outgoing::Destination};

use crate::{
    Outcome,
    issues::{self, Stack},
    seed::{
        MINUTE, Rows, START,
        places::key,
        repositories::{CI_FILE, Histories},
        world::{Content, LARGE, Site, Use, World},
    },
    town::Dice,
};

pub(crate) const LABELS: u64 = 200;
/// The labels of each project that is changed.
pub(crate) const YARD_LABELS: [&str; 3] = ["bug", "idea", "later"];
const MILESTONES: u64 = 20;
const NOTES_OF_AN_ISSUE: u64 = 3;
/// How many labels have a list on the board of the large project.
pub(crate) const LISTS: u64 = 10;
/// How many do on that of each project that is changed.
pub(crate) const YARD_LISTS: u64 = 2;
const PIPELINES_OF_THE_LARGE: u64 = 1000;
const PUSHES_TO_THE_LARGE: u64 = 2000;
/// A receiver that messages do not get to: the network of the service itself is closed to hooks.
const NOWHERE: &str = "http://127.0.0.1:9/hook";

/// Issues of the large project with labels, a board, milestones and notes; a few labels elsewhere.
pub(super) fn add_issues(rows: &mut Rows, world: &World, dice: &mut Dice) {
    let (first, last) = world.people();
    let issues = world.issues();
    let stack = Stack {
        issues,
        labels: LABELS,
        milestones: MILESTONES,
        writer: (first, issues / 20),
        others: (first, last),
        seed: world.seed,
    };
    rows.statements.extend(issues::statements(rows.kind, &stack));
    let (mut notes, mut events) = (vec![], vec![]);
    for issue in 1..=issues {
        let at = START + issue * MINUTE;
        for number in 1..=NOTES_OF_AN_ISSUE {
            let (id, author) = ((issue - 1) * NOTES_OF_AN_ISSUE + number, dice.within(first, last));
            let body = format!("It happens to me as well, with {} and {}.", dice.word(), dice.word());
            let at = at + number * MINUTE;
            notes.push(format!("({id},{LARGE},{issue},{author},'{body}',{at},{at})"));
            if number == 1 {
                events.push(format!("({LARGE},{author},6,'Note',{id},{issue},{id},{at})"));
            }
        }
        events.push(format!(
            "({LARGE},(SELECT author_id FROM issues WHERE id = {issue}),1,'Issue',{issue},{issue},NULL,{at})"
        ));
    }
    rows.insert("notes", "id,project_id,issue_id,author_id,body,created_at,updated_at", &notes);
    let columns = "project_id,author_id,action,target_type,target_id,issue_id,note_id,created_at";
    rows.insert("events", columns, &events);
    let column = |project: u64, label: u64, place: u64| {
        format!("((SELECT id FROM boards WHERE project_id = {project}),{label},{place},{START})")
    };
    let mut lists: Vec<String> = (0..LISTS).map(|place| column(LARGE, 1 + place, place)).collect();
    let mut labels = vec![];
    for site in world.sites.iter().filter(|site| site.purpose() == Use::Yard) {
        for (place, title) in (0..).zip(YARD_LABELS) {
            let (id, project) = (LABELS + 1 + labels.len() as u64, site.id);
            if place < YARD_LISTS {
                lists.push(column(project, id, place));
            }
            labels.push(format!("({id},{project},'{title}','{title}','#428BCA',{START},{START})"));
        }
    }
    rows.insert("labels", "id,project_id,title,title_key,color,created_at,updated_at", &labels);
    rows.insert("board_lists", "board_id,label_id,position,created_at", &lists);
}

/// Pushes that have happened, and that people have joined.
pub(super) fn add_events(rows: &mut Rows, world: &World, dice: &mut Dice, histories: &Histories) {
    let (first, last) = world.people();
    let (mut events, mut pushes, mut commits) = (vec![], vec![], vec![]);
    let joined: Vec<String> = world
        .sites
        .iter()
        .map(|site| format!("({},{},8,{})", site.id, dice.within(first, last), START + site.id * MINUTE))
        .collect();
    rows.insert("events", "project_id,author_id,action,created_at", &joined);
    // What was pushed is found by its number, so it has one that nothing before has taken.
    let mut id = 1_000_000;
    let mut push = |site: &Site, author: u64, history: &[String], at: u64| {
        id += 1;
        let Some((before, new)) = history.split_first() else { return };
        let Some(after) = new.last() else { return };
        events.push(format!("({id},{},{author},5,{at})", site.id));
        pushes.push(format!("({id},'refs/heads/{}','{before}','{after}',{})", site.branch(), new.len()));
        for (place, sha) in new.iter().enumerate() {
            let seconds = at / 1_000_000;
            commits.push(format!("({id},{place},'{sha}','Change it\n','Ann','ann@example.org',{seconds},3600)"));
        }
    };
    for site in &world.sites {
        let at = START + site.id * MINUTE;
        match site.content {
            Content::Nothing => {}
            Content::Small(template) => {
                let history = &histories.small[usize::try_from(template).unwrap_or(0)];
                push(site, world.group_of(site).owner, &history[history.len() - 4..], at);
            }
            Content::Large => {
                for number in 0..PUSHES_TO_THE_LARGE.min(world.issues()) {
                    let from = usize::try_from(number).unwrap_or(0) % (histories.large.len() - 4);
                    let author = dice.within(first, last);
                    push(site, author, &histories.large[from..from + 3], START + (100_000 + number) * MINUTE);
                }
            }
        }
    }
    rows.insert("events", "id,project_id,author_id,action,created_at", &events);
    rows.insert("push_events", "event_id,ref_name,before,after,total_commits", &pushes);
    let columns = "event_id,position,sha,message,author_name,author_email,seconds,offset_seconds";
    rows.insert("push_commits", columns, &commits);
}

/// Pipelines that have ended, with their builds.
pub(super) fn add_pipelines(rows: &mut Rows, world: &World, dice: &mut Dice, histories: &Histories) -> Outcome {
    let plan = plan()?;
    let (mut pipelines, mut specs, mut builds) = (vec![], vec![], vec![]);
    let stages = plan.stages.join("\n");
    for site in &world.sites {
        let (history, count) = match site.content {
            Content::Nothing => continue,
            Content::Small(template) => (&histories.small[usize::try_from(template).unwrap_or(0)], 2),
            Content::Large => (&histories.large, PIPELINES_OF_THE_LARGE.min(world.issues())),
        };
        for number in 0..count {
            let (id, project, user) = (pipelines.len() + 1, site.id, world.group_of(site).owner);
            let sha = &history[history.len() - 1 - usize::try_from(number).unwrap_or(0) % history.len().min(5)];
            let failed = dice.below(5) == 0;
            let at = START + (site.id + 10 * number) * MINUTE;
            let (begun, ended) = (at + MINUTE, at + 3 * MINUTE);
            pipelines.push(format!(
                "({id},{project},'{}',FALSE,'{sha}','push','{}','{stages}',{user},{at},{ended},{begun},{ended},120)",
                site.branch(),
                if failed { "failed" } else { "success" },
            ));
            for (place, job) in plan.jobs.iter().enumerate() {
                let spec = plan.spec(place).ok_or("a job without a spec")?.to_text();
                specs.push(format!("({},{project},'{}')", specs.len() + 1, spec.replace('\'', "''")));
                let status = if failed && place + 1 == plan.jobs.len() { "failed" } else { "success" };
                builds.push(format!(
                    "({project},{id},0,'{}','{}',{},'{status}','{}',FALSE,{user},{},'',{at},{at},{begun},{ended})",
                    job.name,
                    job.stage,
                    job.stage_index,
                    job.when.word(),
                    specs.len(),
                ));
            }
        }
    }
    rows.insert(
        "pipelines",
        "id,project_id,ref_name,tag,sha,source,status,stages,user_id,created_at,updated_at,started_at,finished_at,duration",
        &pipelines,
    );
    rows.insert("build_specs", "id,project_id,spec", &specs);
    rows.insert(
        "builds",
        "project_id,pipeline_id,kind,name,stage,stage_index,status,start_when,allow_failure,user_id,spec_id,tags,\
         created_at,queued_at,started_at,finished_at",
        &builds,
    );
    Ok(())
}

fn plan() -> Outcome<Plan> {
    let config = Config::load(CI_FILE, &NoFiles).map_err(|error| format!("the CI file is wrong: {}", error.text))?;
    let circumstances = Circumstances { ref_name: "master".into(), ..Circumstances::default() };
    ci::plan(&config, &circumstances).map_err(|error| format!("no plan: {error}"))
}

/// Hooks that lead nowhere, and deploy keys.
pub(super) fn add_hooks(rows: &mut Rows, world: &World, dice: &mut Dice, instance: &InstanceKey) -> Outcome {
    let receiver = Destination::for_hook(NOWHERE).map_err(|refused| format!("{refused:?}"))?.receiver();
    let secrets = Drawn(Mutex::new(Dice::new(world.seed)));
    let mut hooks = vec![];
    let mut hook = |project: u64| {
        let owner = i64::try_from(project).unwrap_or(0);
        let url = rows.bytes(&instance.seal(owner, NOWHERE.as_bytes(), &secrets));
        let project = if project == 0 { "NULL".into() } else { project.to_string() };
        // Those of the instance hear of pushes, those of projects of tags, which are rarer.
        let pushes = crate::town::keyword(owner == 0);
        hooks.push(format!("({project},{url},'{receiver}',TRUE,{pushes},TRUE,{START},{START})"));
    };
    hook(0);
    for site in world.sites.iter().filter(|site| site.id == LARGE || site.purpose() == Use::Yard) {
        hook(site.id);
    }
    let columns = "project_id,url,receiver,enable_ssl_verification,push_events,tag_push_events,created_at,updated_at";
    rows.insert("hooks", columns, &hooks);
    let keyed: Vec<&Site> = world.sites.iter().filter(|site| site.id % 10 == 6).collect();
    let keys = (1..).zip(&keyed).map(|(id, _)| Ok(format!("({id},{},{START})", key(dice, "deployer")?)));
    let keys = keys.collect::<Outcome<Vec<_>>>()?;
    let links: Vec<String> = (1..).zip(&keyed).map(|(id, site)| format!("({id},{},{START})", site.id)).collect();
    rows.insert("deploy_keys", "id,title,key,fingerprint,created_at", &keys);
    rows.insert("deploy_key_projects", "key_id,project_id,created_at", &links);
    Ok(())
}

/// Files that were sent to projects: the rows, and beneath the folder of files what they hold.
pub(super) fn add_uploads(rows: &mut Rows, world: &World, dice: &mut Dice, files: &Path) -> Outcome {
    let mut uploads = vec![];
    for site in world.sites.iter().filter(|site| site.id % 20 == 1) {
        let (id, project, owner) = (uploads.len() + 1, site.id, world.group_of(site).owner);
        let content = format!("{} and {}\n", dice.word(), dice.word()).repeat(50);
        let secret = dice.bytes().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        let folder = files.join("uploads").join(project.to_string());
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join(id.to_string()), &content));
        written.map_err(|error| format!("cannot write to {}: {error}", folder.display()))?;
        uploads.push(format!("({id},{project},{owner},'{secret}','notes.txt',{},TRUE,{START})", content.len()));
    }
    rows.insert("uploads", "id,project_id,user_id,secret,name,size,complete,created_at", &uploads);
    Ok(())
}

/// Randomness that is the same each time; good for nothing but data that everybody may know.
struct Drawn(Mutex<Dice>);

impl Secrets for Drawn {
    fn fill(&self, bytes: &mut [u8]) {
        let mut dice = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for piece in bytes.chunks_mut(16) {
            piece.copy_from_slice(&dice.bytes()[..piece.len()]);
        }
    }
}

/// The key of the instance.
pub(super) fn instance_key(seed: u64) -> InstanceKey {
    InstanceKey::generate(&Drawn(Mutex::new(Dice::new(seed ^ 0x006b_6579))))
}
