//! Milestones of projects.

use jiff::civil::Date;

use crate::{
    Change, MilestoneId, MilestoneIid, ProjectId, Time, Violations, issues::MAX_TITLE_LENGTH, notes::MAX_TEXT_LENGTH,
    text::has_control,
};

/// A milestone of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Milestone {
    /// The milestone id, unique on the server.
    pub id: MilestoneId,
    /// The number within the project.
    pub iid: MilestoneIid,
    /// The project id.
    pub project: ProjectId,
    /// The title; unique within the project.
    pub title: String,
    /// The description.
    pub description: Option<String>,
    /// Whether the milestone is closed.
    pub closed: bool,
    /// The start date.
    pub start_on: Option<Date>,
    /// The due date.
    pub due_on: Option<Date>,
    /// The time of creation.
    pub created_at: Time,
    /// The time of the last change.
    pub updated_at: Time,
}

impl Milestone {
    /// Returns the milestone with the changes applied, without validating the result.
    #[must_use]
    pub fn with_changes(&self, edit: &MilestoneChanges) -> Self {
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

    /// Validates the fields.
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
    violations.require(!title.is_empty(), "title", "can't be blank");
    violations.require(!has_control(title), "title", "is invalid");
    violations.max_length("title", title, MAX_TITLE_LENGTH);
    violations.max_length("description", description.unwrap_or_default(), MAX_TEXT_LENGTH);
    let in_order = start.zip(due).is_none_or(|(start, due)| start <= due);
    violations.require(in_order, "start_date", "must not be after due date");
    violations.into_result()
}

/// A milestone to create.
#[derive(Clone, Debug)]
pub struct NewMilestone {
    /// The title.
    pub title: String,
    /// The description.
    pub description: Option<String>,
    /// The start date.
    pub start_on: Option<Date>,
    /// The due date.
    pub due_on: Option<Date>,
}

impl NewMilestone {
    /// Returns the milestone with the title trimmed, or the violations.
    pub fn normalized(&self) -> Result<Self, Violations> {
        let new = Self { title: self.title.trim().to_owned(), ..self.clone() };
        check(&new.title, new.description.as_deref(), new.start_on, new.due_on)?;
        Ok(new)
    }
}

/// The fields of a milestone to change.
#[derive(Clone, Debug, Default)]
pub struct MilestoneChanges {
    /// The title.
    pub title: Option<String>,
    /// The description.
    pub description: Change<String>,
    /// The start date.
    pub start_on: Change<Date>,
    /// The due date.
    pub due_on: Change<Date>,
    /// Whether to close or reopen the milestone.
    pub closed: Option<bool>,
}

/// Conditions on the milestones to list.
#[derive(Clone, Debug, Default)]
pub struct MilestoneFilter {
    /// Only closed, or only active milestones.
    pub closed: Option<bool>,
    /// Only milestones with these iids; empty for any.
    pub iids: Vec<MilestoneIid>,
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    fn milestone() -> Milestone {
        Milestone {
            id: MilestoneId::new(1),
            iid: MilestoneIid::new(1),
            project: ProjectId::new(1),
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
    fn changes_apply_to_the_sent_fields_only() {
        assert_eq!(milestone().with_changes(&MilestoneChanges::default()), milestone());
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
        assert_eq!(milestone().with_changes(&changes), expected);
    }

    #[test]
    fn a_milestone_needs_a_title_and_a_due_date_not_before_its_start() {
        let check = |milestone: Milestone, expected: &str| {
            let violations = milestone.check().err().map(|violations| violations.to_string());
            assert_eq!(violations.unwrap_or_default(), expected);
        };
        check(milestone(), "");
        check(Milestone { title: String::new(), ..milestone() }, "title can't be blank");
        check(Milestone { title: "ä".repeat(255), ..milestone() }, "");
        check(Milestone { title: "ä".repeat(256), ..milestone() }, "title is too long (maximum is 255 characters)");
        let long = Some("x".repeat(MAX_TEXT_LENGTH + 1));
        let text = "description is too long (maximum is 100000 characters)";
        check(Milestone { description: long, ..milestone() }, text);
        check(Milestone { due_on: Some(date(2026, 1, 1)), ..milestone() }, "");
        check(Milestone { due_on: Some(date(2025, 1, 1)), ..milestone() }, "start_date must not be after due date");
        check(Milestone { due_on: None, ..milestone() }, "");
    }
}
