//! Complete files as used by current projects.

use ci::durations::Lifetime;
use ci::{AllowFailure, CacheKey, CachePolicy, EnvironmentAction, PipelineContext, UploadWhen, When};

use crate::{names, planned, push};

#[test]
fn a_rust_project() {
    let text = r#"
image: rust:1.89

stages:
  - check
  - test
  - release

variables:
  CARGO_HOME: $CI_PROJECT_DIR/.cargo
  RUSTFLAGS: "-D warnings"

cache: &cargo_cache
  key:
    files: [Cargo.lock]
    prefix: $CI_JOB_NAME
  paths:
    - .cargo/
    - target/
  policy: pull-push

fmt:
  stage: check
  cache: []
  script:
    - rustup component add rustfmt
    - cargo fmt --check

clippy:
  stage: check
  script: cargo clippy --all-targets
  cache:
    <<: *cargo_cache
    policy: pull

test:
  stage: test
  script:
    - |
      cargo test --workspace
      cargo test --doc
  coverage: '/^\d+\.\d+% coverage/'
  retry:
    max: 2
    when: [runner_system_failure, stuck_or_timeout_failure]
  timeout: 1h 30m
  interruptible: true

release:
  stage: release
  script: [cargo build --release]
  artifacts:
    name: "$CI_COMMIT_REF_SLUG"
    paths: [target/release/app]
    expire_in: 3 mos
  only:
    - tags
    - /^release-.*$/
"#;
    let plan = planned(text, &push("release-2"));
    let [format, clippy, unit, release] = plan.jobs.as_slice() else { panic!("four jobs") };
    assert!(format.cache.is_empty());
    assert_eq!(clippy.cache[0].policy, CachePolicy::Pull);
    let key = CacheKey::Files { files: vec!["Cargo.lock".into()], prefix: Some("$CI_JOB_NAME".into()) };
    assert_eq!(unit.cache[0].key, Some(key));
    assert_eq!(unit.script, ["cargo test --workspace\ncargo test --doc\n"]);
    assert_eq!(unit.coverage.as_deref(), Some(r"/^\d+\.\d+% coverage/"));
    assert_eq!((unit.retry.max, unit.timeout, unit.interruptible), (2, Some(5400), true));
    assert!(unit.retry.allows(1, "runner_system_failure", None));
    let artifacts = release.artifacts.as_ref().expect("artifacts");
    assert_eq!(artifacts.lifetime(), Some(Lifetime::Seconds(90 * 86_400)));
    assert_eq!(names(text, &push("main")), "fmt, clippy, test");
}

#[test]
fn a_node_project_with_defaults() {
    let text = "
default:
  image:
    name: node:24-alpine
    entrypoint: ['']
  before_script:
    - npm ci --cache .npm
  cache:
    - key: $CI_COMMIT_REF_SLUG
      paths: [.npm/]
      when: always
    - key: eslint
      paths: [.eslintcache]
  tags: [docker]
  interruptible: true
  retry: 1

lint:
  script: npm run lint
  allow_failure: true

unit:
  script: npm test
  services:
    - postgres:17
    - name: redis:8
      alias: cache
      command: [redis-server, --save, '']
  variables:
    POSTGRES_PASSWORD: secret
  artifacts:
    when: on_failure
    paths: [screenshots/]
    exclude: ['**/*.tmp']
    public: false
    reports:
      junit: junit.xml
      coverage_report: {coverage_format: cobertura, path: cov.xml}
  allow_failure:
    exit_codes: [137, 255]
";
    let plan = planned(text, &push("main"));
    let [lint, unit] = plan.jobs.as_slice() else { panic!("two jobs") };
    assert_eq!(lint.image.as_ref().and_then(|image| image.entrypoint.clone()), Some(vec![String::new()]));
    assert_eq!(lint.script, ["npm ci --cache .npm", "npm run lint"]);
    assert_eq!(lint.cache.len(), 2);
    assert_eq!(lint.cache[0].when, UploadWhen::Always);
    assert_eq!((lint.tags.as_slice(), lint.interruptible, lint.retry.max), (["docker".to_owned()].as_slice(), true, 1));
    assert_eq!(unit.services[0].name, "postgres:17");
    assert_eq!(unit.services[1].alias.as_deref(), Some("cache"));
    assert_eq!(unit.allow_failure, AllowFailure::ExitCodes(vec![137, 255]));
    assert!(unit.allow_failure.tolerates(Some(137)) && !unit.allow_failure.tolerates(Some(1)));
    let artifacts = unit.artifacts.as_ref().expect("artifacts");
    assert_eq!(artifacts.when, UploadWhen::OnFailure);
    assert_eq!(artifacts.access, Some(ci::ArtifactAccess::Developer));
    assert_eq!(artifacts.reports["coverage_report"], ["cov.xml"]);
}

#[test]
fn an_image_that_is_built_and_deployed_manually() {
    let text = "
stages: [build, deploy]

build image:
  stage: build
  image: docker:29
  services: ['docker:29-dind']
  script:
    - docker build -t $CI_REGISTRY_IMAGE:$CI_COMMIT_SHA .
    - docker push $CI_REGISTRY_IMAGE:$CI_COMMIT_SHA
  rules:
    - exists: [Dockerfile]

review:
  stage: deploy
  script: ./deploy
  environment:
    name: review/$CI_COMMIT_REF_SLUG
    url: https://$CI_COMMIT_REF_SLUG.example.com
    on_stop: stop review
    auto_stop_in: 1 week
  rules:
    - if: $CI_COMMIT_BRANCH && $CI_COMMIT_BRANCH != $CI_DEFAULT_BRANCH

stop review:
  stage: deploy
  script: ./stop
  variables: {GIT_STRATEGY: none}
  environment: {name: review/$CI_COMMIT_REF_SLUG, action: stop}
  when: manual
  rules:
    - if: $CI_COMMIT_BRANCH && $CI_COMMIT_BRANCH != $CI_DEFAULT_BRANCH
      when: manual

production:
  stage: deploy
  script: ./deploy
  environment: {name: production, deployment_tier: production}
  rules:
    - if: $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH
      when: manual
";
    let context = PipelineContext { exists: &|glob| glob.literal() == Some("Dockerfile"), ..push("Feature/X") };
    let plan = planned(text, &context);
    let [build, review, stop] = plan.jobs.as_slice() else { panic!("three jobs") };
    assert_eq!(build.services[0].name, "docker:29-dind");
    let environment = review.environment.as_ref().expect("an environment");
    assert_eq!(environment.auto_stop_in, Some(Lifetime::Seconds(604_800)));
    let slug = ci::slug("Feature/X");
    let url = ci::expand(environment.url.as_deref().expect("a url"), |name| {
        (name == "CI_COMMIT_REF_SLUG").then_some(slug.as_str())
    });
    assert_eq!(url.as_deref(), Some("https://feature-x.example.com"));
    assert_eq!(stop.when, When::Manual);
    assert_eq!(stop.environment.as_ref().map(|environment| environment.action), Some(EnvironmentAction::Stop));
    let main = PipelineContext { ref_name: "main".into(), ..context };
    assert_eq!(names(text, &main), "build image, production");
}

#[test]
fn a_library_with_a_test_matrix() {
    let text = "
test:
  image: python:$PYTHON
  script: tox
  parallel:
    matrix:
      - PYTHON: ['3.12', '3.13']
        DJANGO: ['5.2']
      - PYTHON: '3.14'
        DJANGO: ['5.2', '6.0']
publish:
  stage: deploy
  needs: [test]
  script: twine upload
";
    assert_eq!(
        names(text, &push("main")),
        "test: [3.12, 5.2], test: [3.13, 5.2], test: [3.14, 5.2], test: [3.14, 6.0], publish"
    );
}

#[test]
fn a_monorepo() {
    let text = "
workflow:
  name: $CI_COMMIT_TITLE
  auto_cancel: {on_new_commit: interruptible}
  rules:
    - if: $CI_PIPELINE_SOURCE == 'merge_request_event'
    - if: $CI_COMMIT_BRANCH && $CI_OPEN_MERGE_REQUESTS
      when: never
    - if: $CI_COMMIT_BRANCH

.service:
  script:
    - cd services/$SERVICE
    - make
  rules:
    - if: $BUILD_ALL == 'true'
    - changes:
        - services/$SERVICE/**/*
        - shared/**/*.{go,mod}

users:
  extends: .service
  variables: {SERVICE: users}
billing:
  extends: .service
  variables: {SERVICE: billing}
docs:
  script: mkdocs
  rules:
    - changes: ['**/*.md']
      when: on_success
    - when: manual
      allow_failure: true
";
    let after = |paths: &[&str]| PipelineContext {
        changes: Some(paths.iter().map(|path| (*path).to_owned()).collect()),
        ..push("main")
    };
    assert_eq!(names(text, &after(&["services/users/main.go"])), "users, docs");
    assert_eq!(names(text, &after(&["shared/log/log.go"])), "users, billing, docs");
    assert_eq!(names(text, &after(&["shared/README.md"])), "docs");
    let all = PipelineContext { variables: [("BUILD_ALL".into(), "true".into())].into(), ..after(&[]) };
    assert_eq!(names(text, &all), "users, billing, docs");
    assert_eq!(planned(text, &after(&["services/billing/a"])).jobs[1].when, When::Manual);
    assert_eq!(planned(text, &after(&["a/b.md"])).jobs[0].when, When::OnSuccess);
}

#[test]
fn a_directed_acyclic_graph_of_jobs() {
    let text = "
stages: [build, test, package]
build a: {stage: build, script: a, artifacts: {paths: [a]}}
build b: {stage: build, script: b}
test a:
  stage: test
  script: a
  needs: [build a]
test b:
  stage: test
  script: b
  needs:
    - job: build b
      artifacts: false
    - {job: build c, optional: true}
package:
  stage: package
  script: c
  needs: ['test a', 'test b', 'build a']
  dependencies: [build a]
";
    let plan = planned(text, &push("main"));
    let needs: Vec<Option<Vec<usize>>> = plan
        .jobs
        .iter()
        .map(|job| job.needs.as_ref().map(|needs| needs.iter().map(|need| need.job).collect()))
        .collect();
    assert_eq!(needs, [None, None, Some(vec![0]), Some(vec![1]), Some(vec![0, 2, 3])]);
    assert_eq!(plan.jobs[4].dependencies, Some(vec![0]));
    let sources: Vec<Vec<usize>> = (0..5).map(|index| plan.artifact_sources(index)).collect();
    assert_eq!(sources, [vec![], vec![], vec![0], vec![], vec![0]]);
}

#[test]
fn pages_and_scheduled_jobs() {
    let text = "
pages:
  stage: deploy
  script: [mkdocs build -d public]
  artifacts: {paths: [public], expire_in: never}
  rules: [{if: '$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH'}]
nightly:
  script: fuzz
  only: [schedules]
weekly:
  script: audit
  only: {refs: [schedules], variables: ['$KIND == \"weekly\"']}
";
    let plan = planned(text, &push("main"));
    assert_eq!(plan.jobs[0].artifacts.as_ref().and_then(ci::Artifacts::lifetime), Some(Lifetime::Never));
    let scheduled = PipelineContext {
        source: ci::PipelineSource::Schedule,
        variables: [("KIND".into(), "weekly".into())].into(),
        ..push("main")
    };
    assert_eq!(names(text, &scheduled), "nightly, weekly, pages");
}
