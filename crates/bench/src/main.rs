//! Measures the shipped binary against the goals of the design, on the machine at hand. Started by `cargo xtask bench`.

#![expect(clippy::print_stdout, reason = "a tool talks to the person at the terminal")]

mod disk;
mod floor;
mod load;
mod report;
mod run;
mod server;

use std::{path::PathBuf, process::ExitCode, time::Duration};

/// What ends the program early: one sentence for the person at the terminal.
type Outcome<T = ()> = Result<T, String>;

/// What to measure and for how long.
struct Settings {
    gable: PathBuf,
    folder: PathBuf,
    seconds: u32,
    json: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        // The floor is a process of its own, so that it has a runtime and an allocator of its own.
        [word, answer] if word == floor::WORD => floor::run(answer),
        _ => read(&arguments).and_then(measure),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("bench: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn read(arguments: &[String]) -> Outcome<Settings> {
    let mut settings = Settings { gable: PathBuf::new(), folder: PathBuf::new(), seconds: 40, json: false };
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--gable" => settings.gable = value()?.into(),
            "--folder" => settings.folder = value()?.into(),
            "--seconds" => {
                let seconds = value()?;
                settings.seconds = seconds.parse().map_err(|_| format!("--seconds takes a number, not {seconds}"))?;
            }
            "--json" => settings.json = true,
            other => return Err(format!("bench knows --seconds N and --json, not {other}")),
        }
    }
    if settings.seconds < 4 {
        return Err("fewer than 4 seconds tell nothing".into());
    }
    Ok(settings)
}

fn measure(settings: Settings) -> Outcome {
    let result = run::measure(&settings.gable, &settings.folder, Duration::from_secs(settings.seconds.into()))?;
    let file = report::write(&result, &settings.folder)?;
    if settings.json {
        println!("{}", report::json(&result));
    } else {
        println!("{}\nwritten to {}", report::table(&result), file.display());
    }
    Ok(())
}
