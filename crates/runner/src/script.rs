//! The shell script of a job.

use std::path::Path;

use crate::{
    isolation::Program,
    variables::{Variables, quote},
};

/// Renders a complete script: shell options, variables, and each line of the job preceded by a command that prints it.
pub(crate) fn render(
    shell: Program,
    variables: &Variables,
    status: Option<&str>,
    project: &Path,
    lines: &[String],
) -> String {
    let mut script = String::new();
    script += if shell == Program::Bash { "set -eo pipefail\nset +o noclobber\n" } else { "set -e\n" };
    script += &variables.exports();
    if let Some(status) = status {
        script += &format!("export CI_JOB_STATUS={}\n", quote(status));
    }
    script += &format!("cd {}\n", quote(&project.display().to_string()));
    for line in lines {
        let line = line.trim_end();
        if line.trim_start().is_empty() {
            continue;
        }
        let shown = match line.trim_start().split_once('\n') {
            Some((first, _)) => format!("$ {first} # collapsed multi-line command"),
            None => format!("$ {}", line.trim_start()),
        };
        script += &format!("printf '%s\\n' {}\n{line}\n", quote(&format!("\x1b[32;1m{shown}\x1b[0;m")));
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_printed_before_it_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let variables = Variables::new(&[], &[("A", "it's".to_owned())], folder.path(), None).expect("made");
        let lines = ["echo one".to_owned(), String::new(), "if true\nthen echo two; fi\n".to_owned()];
        let script = render(Program::Bash, &variables, Some("success"), Path::new("/builds/1/x"), &lines);
        assert_eq!(
            script,
            "set -eo pipefail\nset +o noclobber\nexport A='it'\\''s'\nexport CI_JOB_STATUS='success'\ncd '/builds/1/x'\n\
             printf '%s\\n' '\x1b[32;1m$ echo one\x1b[0;m'\necho one\n\
             printf '%s\\n' '\x1b[32;1m$ if true # collapsed multi-line command\x1b[0;m'\nif true\nthen echo two; fi\n"
        );
    }
}
