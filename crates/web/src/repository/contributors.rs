//! The authors of a revision, and how many commits were made when.

use askama::Template;
use forge::{browse::InProject, history_pages};
use model::{
    Time,
    objects::{Activity, ContributorActivity},
};

use crate::{
    context::PageCx,
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    response, text,
};

const WEEK: i64 = 7 * 24 * 60 * 60;
/// The maximum number of bars; with more weeks, a bar stands for several.
const MAX_BARS: i64 = 104;
/// The size of the plot in its own units.
const PLOT_WIDTH: i64 = 832;
const PLOT_HEIGHT: i64 = 100;

#[derive(Template)]
#[template(path = "repository/contributors.html")]
struct ContributorsTemplate {
    layout: Layout,
    head: ProjectHead,
    revision: String,
    commits: usize,
    contributor_count: usize,
    is_truncated: bool,
    plot: Option<Plot>,
    contributors: Vec<ContributorView>,
}

impl ContributorsTemplate {
    /// Returns whether not all contributors are listed.
    fn is_shortened(&self) -> bool {
        self.contributors.len() < self.contributor_count
    }
}

struct ContributorView {
    name: String,
    commits: usize,
    first: Time,
    last: Time,
}

/// A plot of the number of commits over time.
struct Plot {
    width: i64,
    height: i64,
    bars: Vec<Bar>,
    first: String,
    last: String,
    /// The largest number of commits of a bar.
    highest: usize,
    /// The number of weeks that a bar stands for.
    weeks_per_bar: i64,
}

struct Bar {
    x: i64,
    y: i64,
    width: i64,
    height: i64,
    title: String,
}

/// Shows the contributors of a revision.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, location) = (cx.project(), cx.params.location.clone());
    let (viewer, found) = cx.run_blocking(move |cx| history_pages::activity(cx, &project, &location)).await?;
    let InProject { project, value: (revision, activity) } = found;
    response::page(&ContributorsTemplate {
        head: ProjectHead::new(&project, Tab::Commits, &viewer),
        layout: Layout::new(&cx, viewer, format!("Contributors · {} · {}", revision.name, project.full_path())),
        revision: revision.name,
        commits: activity.commits,
        contributor_count: activity.contributor_count,
        is_truncated: activity.is_truncated,
        plot: Plot::new(&activity),
        contributors: activity.contributors.iter().map(ContributorView::new).collect(),
    })
}

impl ContributorView {
    fn new(contributor: &ContributorActivity) -> Self {
        Self {
            name: contributor.name.clone(),
            commits: contributor.commits,
            first: time(contributor.first),
            last: time(contributor.last),
        }
    }
}

fn time(seconds: i64) -> Time {
    Time::from_second(seconds).unwrap_or(Time::UNIX_EPOCH)
}

fn day(seconds: i64) -> String {
    time(seconds).strftime("%-d %b %Y").to_string()
}

impl Plot {
    /// Creates the plot; `None` if there are no commits.
    fn new(activity: &Activity) -> Option<Self> {
        let (first, last) = (activity.weeks.first()?.0, activity.weeks.last()?.0);
        let weeks = (last.saturating_sub(first) / WEEK).saturating_add(1);
        let weeks_per_bar = (weeks - 1) / MAX_BARS + 1;
        let count = (weeks - 1) / weeks_per_bar + 1;
        let mut counts = vec![0_usize; usize::try_from(count).ok()?];
        for (week, commits) in &activity.weeks {
            let index = usize::try_from(week.saturating_sub(first) / WEEK / weeks_per_bar).ok()?;
            *counts.get_mut(index)? += commits;
        }
        let highest = counts.iter().copied().max().unwrap_or_default().max(1);
        let width = (PLOT_WIDTH / count).min(32);
        let bar = |(index, commits): (i64, &usize)| {
            let height = i64::try_from(commits * 100 / highest).unwrap_or_default().max(1) * PLOT_HEIGHT / 100;
            let start = first.saturating_add((index * weeks_per_bar).saturating_mul(WEEK));
            let noun = if *commits == 1 { "commit" } else { "commits" };
            Bar {
                x: index * width,
                y: PLOT_HEIGHT - height,
                width: (width - 1).max(1),
                height,
                title: format!("{commits} {noun} from {}", day(start)),
            }
        };
        let bars = (0..).zip(&counts).filter(|(_, commits)| **commits > 0).map(bar).collect();
        Some(Self {
            width: (width * count).max(1),
            height: PLOT_HEIGHT,
            bars,
            first: day(first),
            last: day(last),
            highest,
            weeks_per_bar,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_a_bar_for_each_week_with_commits() {
        let activity = |weeks: Vec<(i64, usize)>| Activity { weeks, ..Activity::default() };
        assert!(Plot::new(&activity(Vec::new())).is_none());
        let plot = Plot::new(&activity(vec![(0, 4), (2 * WEEK, 1)])).expect("a plot");
        let bars: Vec<_> = plot.bars.iter().map(|bar| (bar.x, bar.y, bar.height)).collect();
        assert_eq!((bars, plot.highest, plot.width), (vec![(0, 0, 100), (64, 75, 25)], 4, 96));
        assert_eq!(plot.bars[1].title, "1 commit from 15 Jan 1970");
        let plot = Plot::new(&activity(vec![(0, 1), (1000 * WEEK, 1)])).expect("a plot");
        assert_eq!((plot.weeks_per_bar, plot.bars.len()), (10, 2));
        // Dates of commits can be anything.
        assert!(Plot::new(&activity(vec![(i64::MIN / 2, 1), (i64::MAX / 2, 1)])).is_some());
    }
}
