//! Files that try to use too much time or memory.

use std::fmt::Write;

use ci::{Config, NoFiles, PipelineContext, PlanError, plan};

use crate::{Files, error, load, names, push};

fn check(text: &str, expected: &str) {
    let found = error(text);
    assert!(found.contains(expected), "{found}");
}

#[test]
fn a_file_of_ten_megabytes_is_rejected_unread() {
    let text = format!("a: {{script: \"{}\"}}", "x".repeat(10 * 1024 * 1024));
    check(&text, "The file is too large: it has 10485775 bytes, at most 1048576 are allowed");
}

#[test]
fn a_billion_laughs_attack_is_rejected() {
    let mut text = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..20 {
        let alias = format!("*a{}", level - 1);
        writeln!(text, "a{level}: &a{level} [{}]", [alias.as_str(); 9].join(", "))
            .expect("writing to a string cannot fail");
    }
    check(&text, "The configuration is too large");
}

#[test]
fn a_billion_laughs_attack_with_mappings_is_rejected() {
    let mut text = String::from("a0: &a0 {x: y}\n");
    for level in 1..40 {
        let below = level - 1;
        writeln!(text, "a{level}: &a{level} {{l: *a{below}, r: *a{below}}}").expect("writing to a string cannot fail");
    }
    check(&text, "The configuration is too large");
}

#[test]
fn a_large_text_is_not_copied_a_thousand_times() {
    let mut text = format!("a: &a \"{}\"\n", "x".repeat(500_000));
    for number in 0..1000 {
        writeln!(text, "j{number}: {{script: *a}}").expect("writing to a string cannot fail");
    }
    check(&text, "The configuration is too large");
}

#[test]
fn a_text_that_all_jobs_inherit_is_counted_for_each() {
    let mut text = format!("before_script: [\"{}\"]\n", "x".repeat(500_000));
    for number in 0..1000 {
        writeln!(text, "j{number}: {{script: a}}").expect("writing to a string cannot fail");
    }
    check(&text, "The configuration is too large");
}

#[test]
fn extends_is_charged_to_the_budget() {
    let mut text = format!(".base: {{script: \"{}\"}}\n", "x".repeat(500_000));
    for number in 0..1000 {
        writeln!(text, "j{number}: {{extends: .base}}").expect("writing to a string cannot fail");
    }
    check(&text, "The configuration is too large");
}

#[test]
fn global_variables_are_counted_for_each_job_of_a_plan() {
    let mut text = format!("variables: {{A: \"{}\"}}\n", "x".repeat(900_000));
    for number in 0..100 {
        writeln!(text, "j{number}: {{script: a}}").expect("writing to a string cannot fail");
    }
    let plan_error = plan(&load(&text), &push("main")).expect_err("too much");
    assert!(plan_error.to_string().contains("bytes of scripts and variables (maximum is 16777216)"), "{plan_error}");
}

#[test]
fn deep_nesting_is_rejected() {
    check(&format!("a: {}{}", "{a: ".repeat(1000), "}".repeat(1000)), "nest too deep");
    check(&format!("a: {}x{}", "[".repeat(70), "]".repeat(70)), "nest too deep");
    // The scanner has its own recursion limit for brackets.
    check(&format!("a: {}{}", "[".repeat(1000), "]".repeat(1000)), "recursion limit exceeded at line 1");
    check(&format!("a: {}", "[".repeat(1_000_000)), "recursion limit exceeded at line 1");
    check(&"? ".repeat(500_000), "nest too deep");
    check(&"- ".repeat(500_000), "nest too deep");
    let mut block = String::new();
    for depth in 0..1000 {
        writeln!(block, "{}a:", " ".repeat(depth)).expect("writing to a string cannot fail");
    }
    check(&block, "nest too deep");
}

#[test]
fn aliases_do_not_nest_deeper_than_brackets() {
    let mut text = String::from("a0: &a0 [x]\n");
    for level in 1..200 {
        writeln!(text, "a{level}: &a{level} [*a{}]", level - 1).expect("writing to a string cannot fail");
    }
    check(&text, "nest too deep");
}

#[test]
fn an_alias_may_not_refer_to_a_value_that_contains_it() {
    check("a: &a [*a]", "an alias refers to a value that contains it at line 1 column 8");
    check("a: &a {<<: *a}", "an alias refers to a value that contains it");
}

#[test]
fn many_keys_are_read_in_linear_time() {
    let mut text = String::from("variables:\n");
    for number in 0..60_000 {
        writeln!(text, "  K{number}: v").expect("writing to a string cannot fail");
    }
    text.push_str("a: {script: a}\n");
    assert_eq!(load(&text).variables.len(), 60_000);
}

#[test]
fn odd_texts_are_rejected_or_read_and_never_hang() {
    for text in [
        "a: \"\\0\"",
        "a: {? [x] : y}",
        "a: {<<: 1}",
        "a: !reference x",
        "a: !reference [[x]]",
        "\u{feff}a: b",
        "%YAML 1.1\n---\na: b",
        "a: |\n  x\n y",
        "? a\n: b",
        "'",
        "&a",
        "*a",
        "!",
        "a: !!binary x",
        "{",
        "]",
        ":",
        "- - - a",
        "a: >-\n\n\n",
    ] {
        let _ = Config::load(text, &NoFiles);
    }
    for sign in ["&a ", "*a ", "!a ", "'", "\"", "# ", ": ", "? ", ", ", "|\n", "%", "a: b\n", "{}", "\n", "\t", "<<: "]
    {
        let _ = Config::load(&sign.repeat(1_000_000 / sign.len()), &NoFiles);
    }
    assert_eq!(error("a: \"\\0\""), "a text must not contain the character NUL at line 1 column 4");
}

#[test]
fn cycles_are_rejected() {
    assert_eq!(error("a: {extends: b}\nb: {extends: a}"), "a: circular dependency detected in `extends`");
    assert_eq!(error("a: {extends: a, script: x}"), "a: circular dependency detected in `extends`");
    assert_eq!(
        error("a: {script: x, needs: [b]}\nb: {script: x, needs: [c]}\nc: {script: x, needs: [a]}\nd: {script: x}"),
        "The pipeline has circular dependencies in `needs`: a, b, c"
    );
    assert_eq!(error("a: {script: x, needs: [a]}"), "The pipeline has circular dependencies in `needs`: a");
    assert_eq!(
        error("a: {script: !reference [b, script]}\nb: {script: !reference [a, script]}"),
        "!reference [b, script] is part of a circular or too long chain"
    );
    let files = Files::new(&[("a.yml", "include: b.yml"), ("b.yml", "include: a.yml")]);
    let config_error = Config::load("include: a.yml", &files).expect_err("a cycle");
    assert_eq!(config_error.text, "Include `a.yml` includes itself: a.yml -> b.yml -> a.yml");
}

#[test]
fn chains_have_at_most_ten_links() {
    let chain = |length: usize| {
        let mut text = String::from("j0: {script: x}\n");
        for number in 1..=length {
            writeln!(text, "j{number}: {{extends: j{}}}", number - 1).expect("writing to a string cannot fail");
        }
        text
    };
    load(&chain(10));
    assert!(error(&chain(11)).ends_with(": nesting too deep in `extends`"));
    // In the other direction the first job meets the whole chain at once.
    let mut backwards = String::new();
    for number in (1..=50).rev() {
        writeln!(backwards, "j{number}: {{extends: j{}}}", number - 1).expect("writing to a string cannot fail");
    }
    backwards.push_str("j0: {script: x}\n");
    assert_eq!(error(&backwards), "j50: nesting too deep in `extends`");

    let files: Vec<(String, String)> =
        (0..20).map(|number| (format!("f{number}.yml"), format!("include: f{}.yml", number + 1))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let config_error = Config::load("include: f0.yml", &Files::new(&files)).expect_err("a chain");
    assert_eq!(config_error.text, "Includes nest too deep: at most 10 levels are allowed");
}

#[test]
fn the_number_of_included_files_is_limited() {
    let files = Files::new(&[
        ("a.yml", "x: {script: a}"),
        ("large.yml", &format!("#{}\nx: {{script: a}}", " ".repeat(900_000))),
    ]);
    let many = |name: &str, count: usize| format!("include: [{}]", vec![name; count].join(", "));
    Config::load(&many("a.yml", 150), &files).expect("just enough");
    let config_error = Config::load(&many("a.yml", 151), &files).expect_err("one too many");
    assert_eq!(config_error.text, "Maximum of 150 nested includes are allowed!");
    let config_error = Config::load(&many("large.yml", 20), &files).expect_err("too large together");
    assert!(config_error.text.starts_with("The configuration is too large"), "{config_error}");
}

#[test]
fn the_number_of_planned_jobs_is_limited() {
    let lines = |count: usize, more: &str| {
        let lines: Vec<String> = (0..count).map(|number| format!("j{number}: {{script: a{more}}}\n")).collect();
        lines.concat()
    };
    load(&lines(1000, ""));
    assert_eq!(error(&lines(10_000, "")), "jobs config contains 10000 jobs (maximum is 1000)");
    let split = lines(11, ", parallel: 200");
    assert_eq!(names(&split, &push("main")), "The pipeline would have 2200 jobs (maximum is 1000)");
}

#[test]
fn a_matrix_is_counted_before_it_is_built() {
    let axes = (0..30).map(|axis| format!("V{axis}: [a, b, c, d, e, f, g, h]")).collect::<Vec<_>>().join(", ");
    check(
        &format!("a: {{script: a, parallel: {{matrix: [{{{axes}}}]}}}}"),
        "jobs:a:parallel:matrix config generates too many jobs (maximum is 200)",
    );
    let long = format!("a: {{script: a, parallel: {{matrix: [{{V: [\"{}\"]}}]}}}}", "x".repeat(1000));
    check(&long, "config values are too long");
}

#[test]
fn long_names_and_many_stages_are_rejected() {
    let name = "n".repeat(256);
    check(&format!("{name}: {{script: a}}"), "name is too long (maximum is 255 characters)");
    check(&format!("{}: {{script: a, parallel: 2}}", "n".repeat(250)), "name is too long (maximum is 255 characters)");
    check(&format!("stages: [{name}]\na: {{script: a}}"), "stages config name is too long");
    let stages = (0..201).map(|number| format!("s{number}")).collect::<Vec<_>>().join(", ");
    check(&format!("stages: [{stages}]\na: {{script: a}}"), "stages config contains 201 stages (maximum is 200)");
    let needs = (0..51).map(|number| format!("j{number}")).collect::<Vec<_>>().join(", ");
    check(&format!("a: {{script: a, needs: [{needs}]}}"), "jobs:a:needs config lists 51 jobs (maximum is 50)");
}

#[test]
fn the_number_of_globs_is_limited() {
    let mut text = String::new();
    for number in 0..900 {
        writeln!(text, "j{number}: {{script: a, rules: [{{changes: [a{number}, b{number}, c{number}*]}}]}}")
            .expect("writing to a string cannot fail");
    }
    let context = PipelineContext { changes: Some(vec!["x".into()]), ..push("main") };
    let plan_error = plan(&load(&text), &context).expect_err("too many");
    assert!(
        matches!(&plan_error, PlanError::Invalid(text) if text.contains("too many different paths")),
        "{plan_error}"
    );
    let broken = "a: {script: a, rules: [{changes: ['[']}]}";
    assert_eq!(names(broken, &context), "a job: `[` is not a valid pattern for paths");
}

#[test]
fn the_number_of_regular_expressions_is_limited() {
    let mut text = String::new();
    for number in 0..301 {
        writeln!(text, "j{number}: {{script: a, only: [/a{number}/]}}").expect("writing to a string cannot fail");
    }
    assert_eq!(error(&text), "There are too many different regular expressions (maximum is 300)");
}

#[test]
fn the_bytes_that_rules_scan_are_limited() {
    let rules = vec!["{if: '$A == $B'}"; 5000].join(", ");
    let text = format!("a: {{script: a, rules: [{rules}]}}\nb: {{script: a}}");
    let large = "x".repeat(1_000_000);
    let variables = [("A".into(), format!("{large}a")), ("B".into(), format!("{large}b"))].into();
    let context = PipelineContext { variables, ..push("main") };
    assert_eq!(names(&text, &context), "The rules of the file compare or match too much text: simplify them");
}
