//! Files with old keywords, shared parts and empty values.

use ci::{AllowFailure, When};

use crate::{load, names, planned, push};

#[test]
fn a_file_from_2016() {
    let text = r#"
image: ruby:2.1
services:
  - postgres

types:
  - build
  - test
  - deploy

before_script:
  - bundle_install

variables:
  DB_NAME: postgres

.job_template: &job_definition
  tags:
    - ruby
  only:
    - master
    - triggers

build:
  type: build
  script: "execute-script-for-build"
  <<: *job_definition

rspec:
  <<: *job_definition
  script:
    - rake spec
  except:
    - /^issue-.*$/@gitlab-org/gitlab-ce

deploy:
  stage: deploy
  script: cap deploy
  environment: production
  when: on_failure
  allow_failure: true
"#;
    let config = load(text);
    assert_eq!(config.stages, [".pre", "build", "test", "deploy", ".post"]);
    let plan = planned(text, &push("master"));
    let [build, rspec, deploy] = plan.jobs.as_slice() else { panic!("three jobs") };
    assert_eq!(build.script, ["bundle_install", "execute-script-for-build"]);
    assert_eq!(build.services[0].name, "postgres");
    assert_eq!(rspec.tags, ["ruby"]);
    assert_eq!(rspec.stage, "test");
    assert_eq!((deploy.when, &deploy.allow_failure), (When::OnFailure, &AllowFailure::Yes));
    assert_eq!(deploy.environment.as_ref().map(|environment| environment.name.as_str()), Some("production"));
    assert_eq!(names(text, &push("other")), "deploy");
}

#[test]
fn a_matrix_of_hidden_parts_and_references() {
    let text = "
.rules:
  main: {if: '$CI_COMMIT_BRANCH == \"main\"'}
  never: {when: never}
.scripts:
  login: [login]
  push:
    - !reference [.scripts, login]
    - push
image:
  name: $REGISTRY/tools:latest
a:
  script:
    - !reference [.scripts, push]
    - done
  rules:
    - !reference [.rules, main]
    - !reference [.rules, never]
b:
  extends: a
  stage: deploy
  after_script: !reference [.scripts, login]
";
    let plan = planned(text, &push("main"));
    assert_eq!(plan.jobs[0].script, ["login", "push", "done"]);
    assert_eq!(plan.jobs[1].after_script, ["login"]);
    assert_eq!(names(text, &push("x")), "No builds for this pipeline.");
}

#[test]
fn an_empty_value_counts_as_absent() {
    let text = "
image:
variables:
a:
  script: a
  image:
  tags:
  only:
  artifacts:
  when:
";
    let plan = planned(text, &push("main"));
    assert_eq!(plan.jobs[0].image, None);
    assert_eq!(plan.jobs[0].artifacts, None);
}
