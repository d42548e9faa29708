//! Every row of the error tables of the specification: a file and its exact error.

use crate::{Files, error};
use ci::Config;

/// Returns a job called `rspec` with a script and one more line.
fn job(line: &str) -> String {
    format!("rspec:\n  script: test\n  {line}\n")
}

/// Returns a file with a job and one more line at the top level.
fn top(line: &str) -> String {
    format!("{line}\nrspec:\n  script: test\n")
}

fn check(rows: &[(String, &str)]) {
    for (text, expected) in rows {
        assert_eq!(error(text), *expected, "{text}");
    }
}

#[test]
fn a_file_that_is_not_a_mapping_is_rejected() {
    for text in ["", "# nothing", "- a\n- b", "text", "42", "~"] {
        assert_eq!(error(text), "Invalid configuration format", "{text}");
    }
}

#[test]
fn a_yaml_error_names_line_and_column() {
    for (text, line) in [("a: [1, 2", 2), ("a: b\n c: d: e", 2), ("a:\n\t- b", 2), ("a: \"open", 1), ("a: *missing", 1)]
    {
        let error = error(text);
        assert!(error.contains("at line ") && error.contains(" column "), "{text}: {error}");
        let found: usize = error
            .split("at line ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .and_then(|number| number.parse().ok())
            .expect("a line");
        assert!(found.abs_diff(line) <= 1, "{text}: {error}");
    }
}

#[test]
fn errors_of_top_level_entries_have_the_wording_of_gitlab() {
    check(&[
        (top("image: [ruby]"), "image config should be a string"),
        (top("image: 42"), "image config should be a string"),
        (top("services: mysql"), "services config should be an array of strings"),
        (top("services: [10, mysql]"), "services config should be an array of strings"),
        (top("before_script: bundle update"), "before_script config should be an array of strings"),
        (top("before_script: [10, test]"), "before_script config should be an array of strings"),
        (top("after_script: ls"), "after_script config should be an array of strings"),
        (top("after_script: [1]"), "after_script config should be an array of strings"),
        (top("variables: [a, b]"), "variables config should be a hash of key value pairs"),
        (top("variables: test"), "variables config should be a hash of key value pairs"),
        (top("variables: {A: [1]}"), "variables config should be a hash of key value pairs"),
        (top("variables: {A: {other: 1}}"), "variables config should be a hash of key value pairs"),
        (top("variables: {A: }"), "variables config should be a hash of key value pairs"),
        (top("stages: test"), "stages config should be an array of strings"),
        (top("stages: [true, test]"), "stages config should be an array of strings"),
        (top("types: test"), "types config should be an array of strings"),
        (top("cache: vendor"), "cache config should be a hash"),
        (top("cache: {key: 1}"), "cache:key config should be a string or symbol"),
        (top("cache: {key: [a]}"), "cache:key config should be a string or symbol"),
        (top("cache: {untracked: string}"), "cache:untracked config should be a boolean value"),
        (top("cache: {paths: string}"), "cache:paths config should be an array of strings"),
        (top("cache: {invalid: 1, other: 2}"), "cache config contains unknown keys: invalid, other"),
        (top("default: [a]"), "default config should be a hash"),
        (top("default: {script: a}"), "default config contains unknown keys: script"),
        (top("default: {image: [a]}"), "default:image config should be a string"),
        (top("image: a\ndefault: {image: b}"), "default config image is defined in top-level and `default:` entry"),
        (top("workflow: [a]"), "workflow config should be a hash"),
        (top("workflow: {rules: [{when: manual}]}"), "workflow:rules:rule when should be always or never"),
    ]);
}

#[test]
fn a_file_needs_a_visible_job_and_hidden_ones_need_content() {
    check(&[
        ("stages: [test]".into(), "jobs config should contain at least one visible job"),
        (".hidden: {script: test}".into(), "jobs config should contain at least one visible job"),
        (top(".hidden: {}"), "jobs:.hidden config can't be blank"),
        (top(".hidden:"), "jobs:.hidden config can't be blank"),
    ]);
}

#[test]
fn errors_of_jobs_have_the_wording_of_gitlab() {
    check(&[
        ("rspec: test".into(), "jobs:rspec config should be a hash"),
        ("rspec: [a]".into(), "jobs:rspec config should be a hash"),
        ("rspec: {}".into(), "jobs:rspec config can't be blank"),
        ("rspec:".into(), "jobs:rspec config can't be blank"),
        ("10: {script: test}".into(), "jobs:10 name should be a symbol"),
        ("yes: {script: test}".into(), "jobs:true name should be a symbol"),
        ("RSpec: {stage: test}".into(), "jobs:rspec script can't be blank"),
        ("rspec: {script: ''}".into(), "jobs:rspec script can't be blank"),
        ("rspec: {script: []}".into(), "jobs:rspec script can't be blank"),
        ("rspec: {script: 42}".into(), "jobs:rspec:script config should be a string or an array of strings"),
        ("rspec: {script: [a, 1]}".into(), "jobs:rspec:script config should be a string or an array of strings"),
        ("rspec: {script: {a: b}}".into(), "jobs:rspec:script config should be a string or an array of strings"),
        (job("stage: [a]"), "jobs:rspec:stage config should be a string"),
        (job("type: 1"), "jobs:rspec:type config should be a string"),
        (job("image: [a]"), "jobs:rspec:image config should be a string"),
        (job("image: {entrypoint: [a]}"), "jobs:rspec:image name can't be blank"),
        (job("services: a"), "jobs:rspec:services config should be an array of strings"),
        (job("services: [{alias: a}]"), "jobs:rspec:services:service name can't be blank"),
        (job("before_script: a"), "jobs:rspec:before_script config should be an array of strings"),
        (job("after_script: [1]"), "jobs:rspec:after_script config should be an array of strings"),
        (job("cache: {key: 1}"), "jobs:rspec:cache:key config should be a string or symbol"),
        (job("cache: {untracked: a}"), "jobs:rspec:cache:untracked config should be a boolean value"),
        (job("cache: {paths: a}"), "jobs:rspec:cache:paths config should be an array of strings"),
        (job("variables: a"), "jobs:rspec:variables config should be a hash of key value pairs"),
        (job("only: a"), "jobs:rspec:only config should be an array of strings or regexps"),
        (job("only: [1]"), "jobs:rspec:only config should be an array of strings or regexps"),
        (job("only: [/*/]"), "jobs:rspec:only config should be an array of strings or regexps"),
        (job("except: a"), "jobs:rspec:except config should be an array of strings or regexps"),
        (job("tags: mysql"), "jobs:rspec tags should be an array of strings"),
        (job("tags: [1]"), "jobs:rspec tags should be an array of strings"),
        (job("allow_failure: string"), "jobs:rspec allow failure should be a boolean value"),
        (job("when: 1"), "jobs:rspec when should be on_success, on_failure, always or manual"),
        (job("when: delayed"), "jobs:rspec when should be on_success, on_failure, always or manual"),
        (job("dependencies: a"), "jobs:rspec dependencies should be an array of strings"),
        (job("dependencies: [1]"), "jobs:rspec dependencies should be an array of strings"),
        (job("coverage: 42"), "jobs:rspec:coverage config must be a regular expression"),
        (job("coverage: a"), "jobs:rspec:coverage config must be a regular expression"),
        (job("coverage: /(/"), "jobs:rspec:coverage config must be a regular expression"),
        (job("Invalid: 1\n  trigger: a"), "jobs:rspec config contains unknown keys: invalid, trigger"),
    ]);
}

#[test]
fn errors_of_artifacts_and_environments_have_the_wording_of_gitlab() {
    let name =
        "jobs:rspec:environment name can contain only letters, digits, '-', '_', '/', '$', '{', '}', '.' and spaces";
    check(&[
        (job("artifacts: a"), "jobs:rspec:artifacts config should be a hash"),
        (job("artifacts: {name: 1}"), "jobs:rspec:artifacts name should be a string"),
        (job("artifacts: {when: a}"), "jobs:rspec:artifacts when should be on_success, on_failure or always"),
        (job("artifacts: {expire_in: 1}"), "jobs:rspec:artifacts expire in should be a duration"),
        (job("artifacts: {expire_in: 7 elephants}"), "jobs:rspec:artifacts expire in should be a duration"),
        (job("artifacts: {untracked: a}"), "jobs:rspec:artifacts untracked should be a boolean value"),
        (job("artifacts: {paths: a}"), "jobs:rspec:artifacts paths should be an array of strings"),
        (
            job("artifacts: {public: false, access: none}"),
            "jobs:rspec:artifacts config has both `public` and `access`: keep one of them",
        ),
        (job("artifacts: {a: b}"), "jobs:rspec:artifacts config contains unknown keys: a"),
        (job("environment: [a]"), "jobs:rspec:environment config should be a hash or a string"),
        (job("environment: 'prod:1'"), name),
        (job("environment: {name: 'prod#1'}"), name),
        (job("environment: {url: a}"), "jobs:rspec:environment name can't be blank"),
        (job("environment: {name: a, action: b}"), "jobs:rspec:environment action should be start or stop"),
    ]);
}

#[test]
fn errors_between_jobs_are_not_lower_cased() {
    let two = |first: &str, second: &str| {
        format!("Build: {{script: a, stage: build{first}}}\nRSpec: {{script: a, stage: test{second}}}\n")
    };
    check(&[
        ("RSpec: {script: a, stage: acceptance}".into(), "RSpec job: stage parameter should be build, test, deploy"),
        ("stages: [One, two]\nx: {script: a}".into(), "x job: stage parameter should be One, two"),
        ("types: [One, two]\nx: {script: a}".into(), "x job: stage parameter should be One, two"),
        (two("", ", dependencies: [Other]"), "RSpec job: undefined dependency: Other"),
        (two(", dependencies: [RSpec]", ""), "Build job: dependency RSpec is not defined in prior stages"),
        (two("", ", dependencies: [RSpec]"), "RSpec job: dependency RSpec is not defined in prior stages"),
        (two(", environment: {name: a, on_stop: Other}", ""), "Build job: on_stop job Other is not defined"),
        (
            two(", environment: {name: a, on_stop: RSpec}", ""),
            "Build job: on_stop job RSpec does not have environment defined",
        ),
        (
            two(", environment: {name: a, on_stop: RSpec}", ", environment: b"),
            "Build job: on_stop job RSpec have different environment name",
        ),
        (
            two(", environment: {name: a, on_stop: RSpec}", ", environment: a"),
            "Build job: on_stop job RSpec needs to have action stop defined",
        ),
        (two("", ", needs: [Other]"), "RSpec job: undefined need: Other"),
        (two(", needs: [RSpec]", ""), "Build job: need RSpec is not defined in current or prior stages"),
    ]);
}

#[test]
fn errors_of_later_keywords_are_clear() {
    check(&[
        (job("only: [main]\n  rules: [{when: always}]"), "jobs:rspec config key may not be used with `rules`: only"),
        (
            job("only: [a]\n  except: [b]\n  rules: [{when: always}]"),
            "jobs:rspec config key may not be used with `rules`: only, except",
        ),
        (job("rules: a"), "jobs:rspec:rules config should be an array of hashes"),
        (job("rules: [a]"), "jobs:rspec:rules:rule config should be a hash"),
        (job("rules: [{if: '$A =='}]"), "jobs:rspec:rules:rule if invalid expression syntax"),
        (
            job("rules: [{when: delayed}]"),
            "jobs:rspec:rules:rule when should be on_success, on_failure, always, manual or never",
        ),
        (
            job(&format!("rules: [{{changes: [{}]}}]", vec!["a"; 51].join(", "))),
            "jobs:rspec:rules:rule changes has too many entries (maximum 50)",
        ),
        (job("rules: [{exists: 1}]"), "jobs:rspec:rules:rule exists should be an array of strings"),
        (job("rules: [{needs: [a]}]"), "jobs:rspec:rules:rule config contains unknown keys: needs"),
        (job("only: {kubernetes: active}"), "jobs:rspec:only config contains unknown keys: kubernetes"),
        (
            job("only: {variables: ['$A ==']}"),
            "jobs:rspec:only variables config should be an array of valid expressions",
        ),
        (job("needs: a"), "jobs:rspec:needs config should be an array of job names or hashes"),
        (job("needs: [{pipeline: a}]"), "jobs:rspec:needs:need config contains unknown keys: pipeline"),
        (job("retry: a"), "jobs:rspec:retry config has to be either an integer or a hash"),
        (job("retry: 3"), "jobs:rspec:retry config must be less than or equal to 2"),
        (job("retry: -1"), "jobs:rspec:retry config must be greater than or equal to 0"),
        (job("retry: {when: soon}"), "jobs:rspec:retry when is not one of the known reasons"),
        (job("timeout: soon"), "jobs:rspec timeout should be a duration"),
        (job("timeout: 0"), "jobs:rspec timeout should be a duration"),
        (job("timeout: never"), "jobs:rspec timeout should be a duration"),
        (job("parallel: 0"), "jobs:rspec:parallel config must be greater than or equal to 1"),
        (job("parallel: 201"), "jobs:rspec:parallel config must be less than or equal to 200"),
        (job("parallel: a"), "jobs:rspec:parallel config should be an integer or a hash"),
        (job("parallel: {matrix: []}"), "jobs:rspec:parallel:matrix config should be an array of hashes"),
        (job("interruptible: a"), "jobs:rspec:interruptible config should be a boolean value"),
        (job("extends: .missing"), "rspec: unknown keys in `extends` (`.missing`)"),
        (job("extends: 1"), "jobs:rspec:extends config should be an array of strings or a string"),
        (top(".list: [a]\nx: {extends: .list}"), "x: invalid base hashes in `extends` (`.list`)"),
        (job("image: !reference [.a, b]"), "!reference [.a, b] could not be found"),
        (job("image: !ruby/object {}"), "unknown tag !ruby/object at line 3 column 10"),
        (top("---\na: b\n---\nc: d"), "only one YAML document is allowed in a file at line 3 column 1"),
    ]);
}

#[test]
fn only_local_files_are_included() {
    let files = Files::new(&[("a.yml", "x: [broken"), ("list.yml", "- a"), ("ok.yml", "x: {script: a}")]);
    for (include, expected) in [
        ("include: b.yml", "Local file `b.yml` does not exist!"),
        ("include: {local: /b.yml}", "Local file `/b.yml` does not exist!"),
        ("include: list.yml", "Included file `list.yml`: Invalid configuration format"),
        ("include: b.txt", "Included file `b.txt` does not have YAML extension!"),
        (
            "include: ../b.yml",
            "Included file `../b.yml` must be named by its plain path from the root of the repository",
        ),
        (
            "include: 'ci/*.yml'",
            "Included file `ci/*.yml` must be named by its plain path from the root of the repository",
        ),
        (
            "include: https://example.com/a.yml",
            "Include `https://example.com/a.yml` is refused: only files of the same repository can be included, with `local`",
        ),
        (
            "include: [{project: a/b, file: c.yml}]",
            "Include with `project`, `file` is refused: only files of the same repository can be included, with `local`",
        ),
        (
            "include: [{template: Rust.gitlab-ci.yml}]",
            "Include with `template` is refused: only files of the same repository can be included, with `local`",
        ),
        (
            "include: {local: ok.yml, rules: [{if: $A}]}",
            "Include `ok.yml` has keys that are not supported: only `local` is, without rules or inputs",
        ),
        ("include: [[a]]", "Include should be a path, a hash with `local`, or a list of these"),
    ] {
        let config_error = Config::load(include, &files).expect_err("an error");
        assert_eq!(config_error.text, expected, "{include}");
    }
    let broken = Config::load("include: a.yml", &files).expect_err("an error").text;
    assert!(broken.starts_with("Included file `a.yml`: ") && broken.contains("at line "), "{broken}");
}
