//! Activity in a seeded data set: issues, notes, events, pipelines, hooks and uploads.

use std::{fs, path::Path, sync::Mutex};

use anyhow::{Context as _, Result, anyhow};
use ci::{Config, NoFiles, PipelineContext, Plan};
use forge::{InstanceKey, clock::Secrets, outbound_addresses::Destination};
use model::{ProjectId, text::hex};

use crate::{
    issues::{self, IssueDataset},
    rng::Rng,
    seed::{
        SqlRows,
        dataset::{Dataset, LARGE_PROJECT, ProjectUse, RepositoryContent, SeededProject},
        repositories::{CI_FILE, Histories},
        users_and_projects::key,
    },
    sql::{MINUTE, START, bool_literal},
};

pub(crate) const LABELS: u64 = 200;
/// The labels of each project that the load test changes.
pub(crate) const WRITE_PROJECT_LABELS: [&str; 3] = ["bug", "idea", "later"];
const MILESTONES: u64 = 20;
const NOTES_PER_ISSUE: u64 = 3;
/// The number of lists on the board of the large project.
pub(crate) const BOARD_LISTS: u64 = 10;
/// The number of lists on the boards of projects that the load test changes.
pub(crate) const WRITE_PROJECT_LISTS: u64 = 2;
const LARGE_PROJECT_PIPELINES: u64 = 1000;
const LARGE_PROJECT_PUSHES: u64 = 2000;
/// A hook URL that the server refuses, because it is in the local network.
const UNREACHABLE_URL: &str = "http://127.0.0.1:9/hook";

/// Adds issues of the large project with labels, milestones and notes, and labels and board lists.
pub(super) fn add_issues(rows: &mut SqlRows, dataset: &Dataset, rng: &mut Rng) {
    let (first, last) = dataset.user_ids();
    let issues = dataset.issues();
    let issue_dataset = IssueDataset {
        issues,
        labels: LABELS,
        milestones: MILESTONES,
        known_author: (first, issues / 20),
        others: (first, last),
        seed: dataset.seed,
    };
    rows.statements.extend(issues::statements(rows.kind, &issue_dataset));
    let (mut notes, mut events) = (vec![], vec![]);
    for issue in 1..=issues {
        let at = START + issue * MINUTE;
        for number in 1..=NOTES_PER_ISSUE {
            let (id, author) = ((issue - 1) * NOTES_PER_ISSUE + number, rng.range(first, last));
            let body = format!("It happens to me as well, with {} and {}.", rng.word(), rng.word());
            let at = at + number * MINUTE;
            notes.push(format!("({id},{LARGE_PROJECT},{issue},{author},'{body}',{at},{at})"));
            if number == 1 {
                events.push(format!("({LARGE_PROJECT},{author},6,'Note',{id},{issue},{id},{at})"));
            }
        }
        events.push(format!(
            "({LARGE_PROJECT},(SELECT author_id FROM issues WHERE id = {issue}),1,'Issue',{issue},{issue},NULL,{at})"
        ));
    }
    rows.insert("notes", "id,project_id,issue_id,author_id,body,created_at,updated_at", &notes);
    let columns = "project_id,author_id,action,target_type,target_id,issue_id,note_id,created_at";
    rows.insert("events", columns, &events);
    let list_row = |project: u64, label: u64, position: u64| {
        format!("((SELECT id FROM boards WHERE project_id = {project}),{label},{position},{START})")
    };
    let mut lists: Vec<String> =
        (0..BOARD_LISTS).map(|position| list_row(LARGE_PROJECT, 1 + position, position)).collect();
    let mut labels = vec![];
    for seeded in dataset.projects.iter().filter(|seeded| seeded.used_for() == ProjectUse::ApiWrites) {
        for (position, title) in (0..).zip(WRITE_PROJECT_LABELS) {
            let (id, project) = (LABELS + 1 + labels.len() as u64, seeded.id);
            if position < WRITE_PROJECT_LISTS {
                lists.push(list_row(project, id, position));
            }
            labels.push(format!("({id},{project},'{title}','{title}','#428BCA',{START},{START})"));
        }
    }
    rows.insert("labels", "id,project_id,title,title_key,color,created_at,updated_at", &labels);
    rows.insert("board_lists", "board_id,label_id,position,created_at", &lists);
}

/// Adds events of pushes and of joined members.
pub(super) fn add_events(rows: &mut SqlRows, dataset: &Dataset, rng: &mut Rng, histories: &Histories) {
    let (first, last) = dataset.user_ids();
    let (mut events, mut pushes, mut commits) = (vec![], vec![], vec![]);
    let join_events: Vec<String> = dataset
        .projects
        .iter()
        .map(|seeded| format!("({},{},8,{})", seeded.id, rng.range(first, last), START + seeded.id * MINUTE))
        .collect();
    rows.insert("events", "project_id,author_id,action,created_at", &join_events);
    // Pushes refer to their events by id, so these ids must not collide with generated ones.
    let mut id = 1_000_000;
    let mut push = |seeded: &SeededProject, author: u64, history: &[String], at: u64| {
        id += 1;
        let Some((before, new)) = history.split_first() else { return };
        let Some(after) = new.last() else { return };
        events.push(format!("({id},{},{author},5,{at})", seeded.id));
        pushes.push(format!("({id},'refs/heads/{}','{before}','{after}',{})", seeded.branch(), new.len()));
        for (position, sha) in new.iter().enumerate() {
            let seconds = at / 1_000_000;
            commits.push(format!("({id},{position},'{sha}','Change it\n','Ann','ann@example.org',{seconds},3600)"));
        }
    };
    for seeded in &dataset.projects {
        let at = START + seeded.id * MINUTE;
        match seeded.content {
            RepositoryContent::Empty => {}
            RepositoryContent::Template(template) => {
                let history = &histories.templates[usize::try_from(template).unwrap_or(0)];
                push(seeded, dataset.group_of(seeded).owner, &history[history.len() - 4..], at);
            }
            RepositoryContent::Large => {
                for number in 0..LARGE_PROJECT_PUSHES.min(dataset.issues()) {
                    let from = usize::try_from(number).unwrap_or(0) % (histories.large.len() - 4);
                    let author = rng.range(first, last);
                    push(seeded, author, &histories.large[from..from + 3], START + (100_000 + number) * MINUTE);
                }
            }
        }
    }
    rows.insert("events", "id,project_id,author_id,action,created_at", &events);
    rows.insert("push_events", "event_id,ref_name,before,after,total_commits", &pushes);
    let columns = "event_id,position,sha,message,author_name,author_email,seconds,offset_seconds";
    rows.insert("push_commits", columns, &commits);
}

/// Adds finished pipelines with their builds.
pub(super) fn add_pipelines(rows: &mut SqlRows, dataset: &Dataset, rng: &mut Rng, histories: &Histories) -> Result<()> {
    let plan = plan()?;
    let (mut pipelines, mut specs, mut builds) = (vec![], vec![], vec![]);
    let stages = plan.stages.join("\n");
    for seeded in &dataset.projects {
        let (history, count) = match seeded.content {
            RepositoryContent::Empty => continue,
            RepositoryContent::Template(template) => (&histories.templates[usize::try_from(template).unwrap_or(0)], 2),
            RepositoryContent::Large => (&histories.large, LARGE_PROJECT_PIPELINES.min(dataset.issues())),
        };
        for number in 0..count {
            let (id, project, user) = (pipelines.len() + 1, seeded.id, dataset.group_of(seeded).owner);
            let sha = &history[history.len() - 1 - usize::try_from(number).unwrap_or(0) % history.len().min(5)];
            let failed = rng.below(5) == 0;
            let at = START + (seeded.id + 10 * number) * MINUTE;
            let (started, ended) = (at + MINUTE, at + 3 * MINUTE);
            pipelines.push(format!(
                "({id},{project},'{}',FALSE,'{sha}','push','{}','{stages}',{user},{at},{ended},{started},{ended},120)",
                seeded.branch(),
                if failed { "failed" } else { "success" },
            ));
            for (position, job) in plan.jobs.iter().enumerate() {
                let spec = plan.spec(position).context("job without spec")?.to_json();
                specs.push(format!("({},{project},'{}')", specs.len() + 1, spec.replace('\'', "''")));
                let status = if failed && position + 1 == plan.jobs.len() { "failed" } else { "success" };
                builds.push(format!(
                    "({project},{id},0,'{}','{}',{},'{status}','{}',FALSE,{user},{},'',{at},{at},{started},{ended})",
                    job.name,
                    job.stage,
                    job.stage_index,
                    job.when.as_str(),
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

fn plan() -> Result<Plan> {
    let config = Config::load(CI_FILE, &NoFiles).map_err(|error| anyhow!("invalid CI file: {}", error.text))?;
    let pipeline_context = PipelineContext { ref_name: "master".into(), ..PipelineContext::default() };
    ci::plan(&config, &pipeline_context).context("cannot plan")
}

/// Adds hooks with an unreachable URL, and deploy keys.
pub(super) fn add_hooks(rows: &mut SqlRows, dataset: &Dataset, rng: &mut Rng, instance: &InstanceKey) -> Result<()> {
    let receiver = Destination::for_hook(UNREACHABLE_URL).map_err(|refused| anyhow!("{refused:?}"))?.receiver();
    let secrets = SeededSecrets(Mutex::new(Rng::new(dataset.seed)));
    let mut hooks = vec![];
    let mut hook = |project: u64| {
        let owner = ProjectId::new(i64::try_from(project).unwrap_or(0));
        let url = rows.bytes(&instance.encrypt(owner, UNREACHABLE_URL.as_bytes(), &secrets));
        let project = if project == 0 { "NULL".into() } else { project.to_string() };
        // System hooks receive pushes, project hooks only tags, which are rarer.
        let pushes = bool_literal(owner.get() == 0);
        hooks.push(format!("({project},{url},'{receiver}',TRUE,{pushes},TRUE,{START},{START})"));
    };
    hook(0);
    for seeded in dataset
        .projects
        .iter()
        .filter(|seeded| seeded.id == LARGE_PROJECT || seeded.used_for() == ProjectUse::ApiWrites)
    {
        hook(seeded.id);
    }
    let columns = "project_id,url,receiver,enable_ssl_verification,push_events,tag_push_events,created_at,updated_at";
    rows.insert("hooks", columns, &hooks);
    let projects_with_key: Vec<&SeededProject> = dataset.projects.iter().filter(|seeded| seeded.id % 10 == 6).collect();
    let keys = (1..).zip(&projects_with_key).map(|(id, _)| Ok(format!("({id},{},{START})", key(rng, "deployer")?)));
    let keys = keys.collect::<Result<Vec<_>>>()?;
    let links: Vec<String> =
        (1..).zip(&projects_with_key).map(|(id, seeded)| format!("({id},{},{START})", seeded.id)).collect();
    rows.insert("deploy_keys", "id,title,key,fingerprint,created_at", &keys);
    rows.insert("deploy_key_projects", "key_id,project_id,created_at", &links);
    Ok(())
}

/// Adds uploads: the rows, and the files in the folder.
pub(super) fn add_uploads(rows: &mut SqlRows, dataset: &Dataset, rng: &mut Rng, files: &Path) -> Result<()> {
    let mut uploads = vec![];
    for seeded in dataset.projects.iter().filter(|seeded| seeded.id % 20 == 1) {
        let (id, project, owner) = (uploads.len() + 1, seeded.id, dataset.group_of(seeded).owner);
        let content = format!("{} and {}\n", rng.word(), rng.word()).repeat(50);
        let secret = hex(&rng.bytes());
        let folder = files.join("uploads").join(project.to_string());
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join(id.to_string()), &content));
        written.with_context(|| format!("cannot write to {}", folder.display()))?;
        uploads.push(format!("({id},{project},{owner},'{secret}','notes.txt',{},TRUE,{START})", content.len()));
    }
    rows.insert("uploads", "id,project_id,user_id,secret,name,size,complete,created_at", &uploads);
    Ok(())
}

/// A deterministic source of secrets, for test data only.
struct SeededSecrets(Mutex<Rng>);

impl Secrets for SeededSecrets {
    fn fill(&self, bytes: &mut [u8]) {
        let mut rng = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for piece in bytes.chunks_mut(16) {
            piece.copy_from_slice(&rng.bytes()[..piece.len()]);
        }
    }
}

/// Returns the instance key.
pub(super) fn instance_key(seed: u64) -> InstanceKey {
    InstanceKey::generate(&SeededSecrets(Mutex::new(Rng::new(seed ^ 0x006b_6579))))
}
