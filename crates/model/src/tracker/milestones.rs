//! Milestones: what shall be done until when.

use jiff::civil::Date;

use crate::{Change, Time, Violations, issues::LONGEST_TITLE, notes::LONGEST, text::has_control};

/// A milestone of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Milestone {
    /// Number of the milestone.
    pub id: i64,
    /// The same, counted in the project.
    pub iid: i64,
    /// The project that it belongs to.
    pub project: i64,
    /// What it is called; unique in the project.
    pub title: String,
    /// What it stands for.
    pub description: Option<String>,
    /// Whether it is over.
    pub closed: bool,
    /// The first day.
    pub start_on: Option<Date>,
    /// The last day.
    pub due_on: Option<Date>,
    /// When it was made.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
}

impl Milestone {
    /// The same milestone after an edit; that the outcome is in order is another question.
    #[must_use]
    pub fn changed_by(&self, edit: &MilestoneChanges) -> Self {
        let mut changed = self.clone();
        if let Some(title) = &edit.title {
            title.trim().clone_into(&mut changed.title);
        }
        if let Some(closed) = edit.closed {
            changed.closed = closed;
        }
        apply(&edit.description, &mut changed.description);
        apply(&edit.start_on, &mut changed.start_on);
        apply(&edit.due_on, &mut changed.due_on);
        changed
    }

    /// Looks whether it keeps the rules.
    pub fn check(&self) -> Result<(), Violations> {
        check(&self.title, self.description.as_deref(), self.start_on, self.due_on)
    }
}

fn apply<T: Clone>(change: &Change<T>, field: &mut Option<T>) {
    match change {
        Change::Keep => {}
        Change::Clear => *field = None,
        Change::Set(value) => *field = Some(value.clone()),
    }
}

fn check(title: &str, description: Option<&str>, start: Option<Date>, due: Option<Date>) -> Result<(), Violations> {
    let mut violations = Violations::new();
    violations.unless(!title.is_empty(), "title", "can't be blank");
    violations.unless(!has_control(title), "title", "is invalid");
    violations.longest("title", title, LONGEST_TITLE);
    violations.longest("description", description.unwrap_or_default(), LONGEST);
    let in_order = start.zip(due).is_none_or(|(start, due)| start <= due);
    violations.unless(in_order, "start_date", "must not be after due date");
    violations.into_result()
}

/// A milestone that is about to be made.
#[derive(Clone, Debug)]
pub struct NewMilestone {
    /// What it shall be called.
    pub title: String,
    /// What it stands for.
    pub description: Option<String>,
    /// The first day.
    pub start_on: Option<Date>,
    /// The last day.
    pub due_on: Option<Date>,
}

impl NewMilestone {
    /// The same without blanks around the title, if it keeps the rules.
    pub fn checked(&self) -> Result<Self, Violations> {
        let new = Self { title: self.title.trim().to_owned(), ..self.clone() };
        check(&new.title, new.description.as_deref(), new.start_on, new.due_on)?;
        Ok(new)
    }
}

/// What an edit changes about a milestone.
#[derive(Clone, Debug, Default)]
pub struct MilestoneChanges {
    /// What it shall be called.
    pub title: Option<String>,
    /// What it stands for.
    pub description: Change<String>,
    /// The first day.
    pub start_on: Change<Date>,
    /// The last day.
    pub due_on: Change<Date>,
    /// Whether it shall be over.
    pub closed: Option<bool>,
}

/// Which milestones of a project are wanted.
#[derive(Clone, Debug, Default)]
pub struct MilestoneFilter {
    /// Only those that are over, or only those that are not.
    pub closed: Option<bool>,
    /// Only those with these numbers in the project; all if there are none.
    pub iids: Vec<i64>,
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    fn milestone() -> Milestone {
        Milestone {
            id: 1,
            iid: 1,
            project: 1,
            title: "1.0".into(),
            description: Some("first".into()),
            closed: false,
            start_on: Some(date(2026, 1, 1)),
            due_on: Some(date(2026, 2, 1)),
            created_at: Time::UNIX_EPOCH,
            updated_at: Time::UNIX_EPOCH,
        }
    }

    #[test]
    fn an_edit_changes_what_it_names_and_nothing_else() {
        assert_eq!(milestone().changed_by(&MilestoneChanges::default()), milestone());
        let changes = MilestoneChanges {
            title: Some(" 1.1 ".into()),
            description: Change::Clear,
            start_on: Change::Set(date(2026, 1, 2)),
            due_on: Change::Keep,
            closed: Some(true),
        };
        let expected = Milestone {
            title: "1.1".into(),
            description: None,
            start_on: Some(date(2026, 1, 2)),
            closed: true,
            ..milestone()
        };
        assert_eq!(milestone().changed_by(&changes), expected);
    }

    #[test]
    fn a_milestone_has_a_title_and_ends_no_earlier_than_it_begins() {
        let check = |milestone: Milestone, expected: &str| {
            let faults = milestone.check().err().map(|faults| faults.to_string());
            assert_eq!(faults.unwrap_or_default(), expected);
        };
        check(milestone(), "");
        check(Milestone { title: String::new(), ..milestone() }, "title can't be blank");
        check(Milestone { title: "ä".repeat(255), ..milestone() }, "");
        check(Milestone { title: "ä".repeat(256), ..milestone() }, "title is too long (maximum is 255 characters)");
        let long = Some("x".repeat(LONGEST + 1));
        let text = "description is too long (maximum is 100000 characters)";
        check(Milestone { description: long, ..milestone() }, text);
        check(Milestone { due_on: Some(date(2026, 1, 1)), ..milestone() }, "");
        check(Milestone { due_on: Some(date(2025, 1, 1)), ..milestone() }, "start_date must not be after due date");
        check(Milestone { due_on: None, ..milestone() }, "");
    }
}
