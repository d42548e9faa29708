//! Which jobs a pipeline has, and their contents.

use ci::{AllowFailure, Config, Glob, NoFiles, PipelineContext, PipelineSource, PlannedNeed, When, plan};

use crate::{Files, load, names, planned, push};

fn tag(name: &str) -> PipelineContext<'static> {
    PipelineContext { is_tag: true, ..push(name) }
}

fn with_variable(key: &str, value: &str) -> PipelineContext<'static> {
    PipelineContext { variables: [(key.to_owned(), value.to_owned())].into(), ..push("main") }
}

fn with_changes(paths: &[&str]) -> PipelineContext<'static> {
    PipelineContext { changes: Some(paths.iter().map(|path| (*path).to_owned()).collect()), ..push("main") }
}

#[test]
fn only_and_except_choose_by_ref_and_source() {
    let text = "
everywhere: {script: a}
branches: {script: a, only: [branches]}
tags: {script: a, only: [tags]}
main: {script: a, only: [main]}
release: {script: a, only: [/^release-.*$/]}
not main: {script: a, except: [main]}
triggers: {script: a, only: [triggers]}
ours: {script: a, only: [main@group/project]}
theirs: {script: a, only: [main@other/project]}
both: {script: a, only: [branches], except: [/^wip/i]}
";
    assert_eq!(names(text, &push("main")), "everywhere, branches, main, ours, both");
    assert_eq!(names(text, &push("release-1")), "everywhere, branches, release, not main, both");
    assert_eq!(names(text, &push("WIP-1")), "everywhere, branches, not main");
    assert_eq!(names(text, &tag("v1")), "everywhere, tags, not main");
    let triggered = PipelineContext { source: PipelineSource::Trigger, ..push("main") };
    assert_eq!(names(text, &triggered), "everywhere, branches, main, triggers, ours, both");
}

#[test]
fn only_and_except_may_be_mappings() {
    let text = "
a: {script: a, only: {refs: [main], variables: ['$DEPLOY == \"yes\"', '$OTHER']}}
b: {script: a, only: {changes: ['docs/**/*']}}
c: {script: a, except: {refs: [tags], changes: ['*.md']}}
d: {script: a, except: {variables: [$DEPLOY]}}
";
    assert_eq!(names(text, &push("main")), "b, d", "unknown changes count as changed");
    assert_eq!(names(text, &with_changes(&["src/a.rs"])), "c, d");
    assert_eq!(names(text, &with_changes(&["docs/a/b.md", "README.md"])), "b, d");
    let deploy = PipelineContext { changes: Some(vec![]), ..with_variable("DEPLOY", "yes") };
    assert_eq!(names(text, &deploy), "a, c");
}

#[test]
fn a_pipeline_without_jobs_is_not_created() {
    assert_eq!(names("a: {script: a, only: [tags]}", &push("main")), "No builds for this pipeline.");
    let edges = "a: {script: a, stage: .pre}\nb: {script: a, stage: .post}\nc: {script: a, only: [tags]}";
    assert_eq!(names(edges, &push("main")), "No builds for this pipeline.");
    assert_eq!(names(edges, &tag("v1")), "a, c, b");
}

#[test]
fn the_first_matching_rule_decides() {
    let text = "
job:
  script: a
  when: on_failure
  rules:
    - if: $CI_COMMIT_TAG
      when: never
    - if: $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH
      when: manual
      allow_failure: true
      variables: {WHERE: production}
    - if: $CI_COMMIT_BRANCH =~ /^feature/
other: {script: a}
";
    assert_eq!(names(text, &tag("v1")), "other");
    assert_eq!(names(text, &push("else")), "other");
    let main = planned(text, &push("main"));
    assert_eq!(main.jobs[0].when, When::Manual);
    assert_eq!(main.jobs[0].allow_failure, AllowFailure::Yes);
    assert_eq!(main.jobs[0].variables["WHERE"], "production");
    let feature = planned(text, &push("feature-1"));
    assert_eq!(feature.jobs[0].when, When::OnFailure);
    assert!(feature.jobs[0].variables.is_empty());
}

#[test]
fn rules_depend_on_variables_changes_and_files() {
    let text = "
variables: {GLOBAL: global, WHO: file}
by job: {script: a, variables: {OWN: x}, rules: [{if: '$OWN == \"x\" && $GLOBAL == \"global\"'}]}
by project: {script: a, rules: [{if: '$WHO == \"project\"'}]}
by file: {script: a, rules: [{exists: [Dockerfile, '**/*.tf']}]}
by change: {script: a, rules: [{changes: {paths: ['$FOLDER/**/*'], compare_to: main}}]}
all of it: {script: a, rules: [{if: $FOLDER, changes: [a/b], exists: [Dockerfile]}]}
";
    let exists = |glob: &Glob| ["Dockerfile", "x/y.txt"].iter().any(|path| glob.matches(path));
    let context = PipelineContext {
        variables: [("WHO".into(), "project".into()), ("FOLDER".into(), "a".into())].into(),
        changes: Some(vec!["a/b".into()]),
        exists: &exists,
        ..push("main")
    };
    assert_eq!(names(text, &context), "by job, by project, by file, by change, all of it");
    let elsewhere = PipelineContext { changes: Some(vec!["b/c".into()]), ..with_variable("FOLDER", "a") };
    assert_eq!(names(text, &elsewhere), "by job");
}

#[test]
fn the_workflow_may_refuse_a_pipeline_or_add_to_it() {
    let text = "
workflow:
  rules:
    - if: $CI_PIPELINE_SOURCE == 'schedule'
      when: never
    - if: $CI_COMMIT_BRANCH == 'main'
      variables: {KIND: main}
    - if: $CI_COMMIT_BRANCH
variables: {KIND: other}
a: {script: a}
b: {script: a, rules: [{if: '$KIND == \"main\"'}]}
";
    assert_eq!(names(text, &push("main")), "a, b");
    assert_eq!(planned(text, &push("main")).jobs[0].variables["KIND"], "main");
    assert_eq!(names(text, &push("x")), "a");
    assert_eq!(names(text, &tag("v1")), "Pipeline filtered out by workflow rules.");
    let scheduled = PipelineContext { source: PipelineSource::Schedule, ..push("main") };
    assert_eq!(names(text, &scheduled), "Pipeline filtered out by workflow rules.");
}

#[test]
fn a_needed_job_must_exist() {
    let text = "
a: {script: a, stage: build, only: [tags]}
b: {script: a, needs: [a]}
";
    assert_eq!(
        names(text, &push("main")),
        "'b' job needs 'a' job, but 'a' does not exist in the pipeline. This might be because of the only, except, or \
         rules keywords. To need a job that sometimes does not exist in the pipeline, use needs:optional."
    );
    assert_eq!(names(text, &tag("v1")), "a, b");
    let optional = text.replace("[a]", "[{job: a, optional: true, artifacts: false}]");
    assert_eq!(planned(&optional, &push("main")).jobs[0].needs, Some(vec![]));
    let needs = planned(&optional, &tag("v1")).jobs[1].needs.clone();
    assert_eq!(needs, Some(vec![PlannedNeed { job: 0, artifacts: false }]));
}

#[test]
fn dependencies_on_excluded_jobs_are_dropped() {
    let text = "
a: {script: a, stage: build}
b: {script: a, stage: build, only: [tags]}
none: {script: a, dependencies: []}
two: {script: a, dependencies: [a, b]}
all: {script: a}
";
    let plan = planned(text, &push("main"));
    let dependencies: Vec<_> = plan.jobs.iter().map(|job| job.dependencies.clone()).collect();
    assert_eq!(dependencies, [None, Some(vec![]), Some(vec![0]), None]);
    assert_eq!((1..4).map(|index| plan.artifact_sources(index)).collect::<Vec<_>>(), [vec![], vec![0], vec![0]]);
    assert_eq!(plan.artifact_sources(7), Vec::<usize>::new());
}

#[test]
fn a_parallel_job_becomes_several() {
    let text = "
rspec: {script: a, stage: build, parallel: 2}
matrix:
  script: a
  variables: {OS: none, KEEP: 'yes'}
  parallel: {matrix: [{OS: [linux, mac], V: [1, '2']}, {OS: windows}]}
last: {script: a, stage: deploy, needs: [rspec], dependencies: [matrix]}
";
    let plan = planned(text, &push("main"));
    let names: Vec<&str> = plan.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "rspec 1/2",
            "rspec 2/2",
            "matrix: [linux, 1]",
            "matrix: [linux, 2]",
            "matrix: [mac, 1]",
            "matrix: [mac, 2]",
            "matrix: [windows]",
            "last"
        ]
    );
    assert_eq!(plan.jobs[1].variables["CI_NODE_INDEX"], "2");
    assert_eq!(plan.jobs[1].variables["CI_NODE_TOTAL"], "2");
    assert_eq!(plan.jobs[4].variables["OS"], "mac");
    assert_eq!(plan.jobs[4].variables["KEEP"], "yes");
    let needs: Vec<usize> = plan.jobs[7].needs.iter().flatten().map(|need| need.job).collect();
    assert_eq!(needs, [0, 1]);
    assert_eq!(plan.jobs[7].dependencies, Some(vec![2, 3, 4, 5, 6]));
}

#[test]
fn names_stay_unique_when_jobs_are_split() {
    let text = "a: {script: a, parallel: 2}\n'a 1/2': {script: a}";
    assert_eq!(names(text, &push("main")), "Two jobs of the pipeline would be called 'a 1/2'");
    let matrix = "a: {script: a, parallel: {matrix: [{X: [1, 1]}]}}";
    assert_eq!(names(matrix, &push("main")), "Two jobs of the pipeline would be called 'a: [1]'");
}

#[test]
fn jobs_are_ordered_by_stage() {
    let text = "
stages: [one, two]
d: {script: a, stage: .post}
c: {script: a, stage: two}
b: {script: a, type: one}
a: {script: a, stage: .pre}
e: {script: a, stage: one}
";
    let plan = planned(text, &push("main"));
    assert_eq!(plan.stages, [".pre", "one", "two", ".post"]);
    let places: Vec<(&str, usize)> = plan.jobs.iter().map(|job| (job.name.as_str(), job.stage_index)).collect();
    assert_eq!(places, [("a", 0), ("b", 1), ("e", 1), ("c", 2), ("d", 3)]);
}

#[test]
fn scripts_are_concatenated() {
    let text = "
before_script: [one, two]
after_script: [clean]
a: {script: three}
b: {script: [three, four], before_script: [zero], after_script: []}
c: {script: [three], before_script: []}
";
    let plan = planned(text, &push("main"));
    assert_eq!(plan.jobs[0].script, ["one", "two", "three"]);
    assert_eq!(plan.jobs[0].after_script, ["clean"]);
    assert_eq!(plan.jobs[1].script, ["zero", "three", "four"]);
    assert!(plan.jobs[1].after_script.is_empty());
    assert_eq!(plan.jobs[2].script, ["three"]);
}

#[test]
fn aliases_merges_extends_and_references_can_be_combined() {
    let text = "
.setup: &setup
  - one
  - two
.base: &base
  tags: [docker]
  variables: {A: base, B: base}
.lint: {script: [lint], rules: [{if: $CI_COMMIT_BRANCH}]}
anchored:
  <<: *base
  script: [*setup, three]
extended:
  extends: [.base, .lint]
  variables: {B: own}
referenced:
  script: [!reference [.lint, script], four]
  variables: !reference [.base, variables]
  rules: [!reference [.lint, rules], {when: never}]
";
    let plan = planned(text, &push("main"));
    assert_eq!(plan.jobs[0].script, ["one", "two", "three"]);
    assert_eq!(plan.jobs[0].tags, ["docker"]);
    assert_eq!(plan.jobs[1].script, ["lint"]);
    assert_eq!(plan.jobs[1].tags, ["docker"]);
    assert_eq!((plan.jobs[1].variables["A"].as_str(), plan.jobs[1].variables["B"].as_str()), ("base", "own"));
    assert_eq!(plan.jobs[2].script, ["lint", "four"]);
    assert_eq!(plan.jobs[2].variables["B"], "base");
}

#[test]
fn a_merge_key_applies_at_its_position() {
    let text = "
.base: &base {script: base, stage: build}
before: {<<: *base, stage: deploy}
after: {stage: deploy, <<: *base}
list: {<<: [{script: first}, {script: second, stage: deploy}]}
";
    let config = load(text);
    let stages: Vec<&str> = config.jobs.iter().map(|job| job.stage.as_str()).collect();
    assert_eq!(stages, ["deploy", "build", "deploy"]);
    assert_eq!(config.jobs[2].script, ["first"]);
}

#[test]
fn the_file_overrides_included_files() {
    let files = Files::new(&[
        ("ci/base.yml", "include: {local: /ci/deep.yml}\nimage: base\n.job: {tags: [a], variables: {X: base}}"),
        ("ci/deep.yml", "deep: {script: deep}\nimage: deep"),
    ]);
    let text = "include: [{local: ci/base.yml}]\njob: {extends: .job, script: a}\n.job: {variables: {X: own}}";
    let config = Config::load(text, &files).expect("a configuration");
    let jobs: Vec<&str> = config.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(jobs, ["deep", "job"]);
    assert_eq!(config.jobs[1].tags, ["a"]);
    assert_eq!(config.jobs[1].variables["X"], "own");
    assert_eq!(config.jobs[0].image.as_ref().map(|image| image.name.as_str()), Some("base"));
}

#[test]
fn numbers_and_booleans_become_texts() {
    let text = "
variables:
  NUMBER: 42
  OCTAL: 0755
  FLOAT: 1.10
  FLAG: yes
  QUOTED: \"1.10\"
  DESCRIBED: {value: x, description: what it is for, options: [x, y]}
  ASKED: {description: no value}
a: {script: a}
";
    let variables = load(text).variables;
    let pairs: Vec<(&str, &str)> = variables.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(
        pairs,
        [
            ("ASKED", ""),
            ("DESCRIBED", "x"),
            ("FLAG", "true"),
            ("FLOAT", "1.1"),
            ("NUMBER", "42"),
            ("OCTAL", "493"),
            ("QUOTED", "1.10")
        ]
    );
}

#[test]
fn a_branch_and_a_tag_of_the_same_name_are_distinguished() {
    let text = "
branch: {script: a, rules: [{if: $CI_COMMIT_BRANCH}]}
tag: {script: a, rules: [{if: $CI_COMMIT_TAG}]}
";
    assert_eq!(names(text, &push("v1")), "branch");
    assert_eq!(names(text, &tag("v1")), "tag");
}

/// Planning 500 jobs should take at most 50 ms; builds without optimisation may take ten times as long.
#[test]
fn five_hundred_jobs_are_planned() {
    let mut text =
        String::from("stages: [build, test, deploy]\nimage: rust\nbefore_script: [a, b]\nvariables: {A: b}\n");
    for number in 0..500 {
        let stage = ["build", "test", "deploy"][number % 3];
        text.push_str(&format!(
            "job {number}:\n  stage: {stage}\n  script: [make {number}, make test]\n  tags: [docker]\n  \
             artifacts: {{paths: [out/{number}], expire_in: 1 week}}\n  rules:\n    - if: $CI_COMMIT_BRANCH =~ \
             /^feature-{}/\n    - changes: [src/{number}/**/*, Cargo.toml]\n    - if: $CI_COMMIT_BRANCH == \"main\"\n",
            number % 50
        ));
    }
    let changes = (0..200).map(|number| format!("src/{}/a.rs", number * 5)).collect();
    let context = PipelineContext { changes: Some(changes), ..push("main") };
    let config = Config::load(&text, &NoFiles).expect("a configuration");
    assert_eq!(plan(&config, &context).expect("a plan").jobs.len(), 500);
}
