//! Reading any file ends in a configuration or in one error, never in a panic.

use ci::{Config, NoFiles, plan};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::push;

const WORDS: [&str; 64] = [
    "a",
    "b",
    "1",
    "-1",
    "0x",
    "\n",
    "\n  ",
    "\n    ",
    " ",
    ": ",
    ":",
    "- ",
    "-",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "\"",
    "'",
    "&a ",
    "*a",
    "!reference ",
    "!",
    "<<: ",
    "? ",
    "|",
    ">",
    "# ",
    "%",
    "@",
    "`",
    "---\n",
    "...\n",
    "\t",
    "\\",
    "~",
    "yes",
    "script: ",
    "rules: ",
    "if: ",
    "$A",
    "==",
    "=~",
    "/a/",
    "needs: ",
    "extends: ",
    "stage: ",
    "build",
    ".pre",
    "only: ",
    "parallel: ",
    "matrix: ",
    "image: ",
    "variables: ",
    "artifacts: ",
    "expire_in: ",
    "1 day",
    "cache: ",
    "é",
    "\u{feff}",
    "\u{2028}",
    "job: ",
    "\r\n",
];

const FILE: &str = "
stages: [build, test]
.base: &base {tags: [a], retry: 1}
variables: {A: b, C: {value: d}}
build:
  <<: *base
  stage: build
  script: [a, b]
  artifacts: {paths: [x], expire_in: 1 week}
test:
  extends: build
  stage: test
  needs: [build]
  parallel: {matrix: [{X: [1, 2]}]}
  rules:
    - if: $A == 'b' && $CI_COMMIT_BRANCH =~ /^ma/
      changes: ['**/*.rs']
    - !reference [.rules, all]
.rules: {all: {when: manual}}
";

fn load_and_plan(text: &str) {
    match Config::load(text, &NoFiles) {
        Ok(config) => {
            let _ = plan(&config, &push("main"));
        }
        Err(config_error) => assert!(!config_error.text.is_empty()),
    }
}

#[test]
fn the_unmodified_file_is_valid() {
    assert_eq!(crate::names(FILE, &push("main")), "build, test: [1], test: [2]");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_words_do_not_panic(words in vec(select(WORDS.to_vec()), 0..40)) {
        load_and_plan(&words.concat());
    }

    #[test]
    fn random_text_does_not_panic(text in any::<String>()) {
        load_and_plan(&text);
    }

    #[test]
    fn damaged_files_do_not_panic(
        index in 0..FILE.len(),
        cut in 0..20_usize,
        word in select(WORDS.to_vec()),
        other in 0..FILE.len(),
    ) {
        let end = (index + cut).min(FILE.len());
        let mut text = format!("{}{word}{}", &FILE[..index], &FILE[end..]);
        if text.is_char_boundary(other) && other < text.len() {
            text.insert_str(other, word);
        }
        load_and_plan(&text);
    }
}
