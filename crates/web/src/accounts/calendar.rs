//! The calendar of activities: one square for each day of the last year, as a drawing with a summary.

use jiff::civil::{Date, Weekday};
use model::Time;

/// The distance of squares, in pixels.
const STEP: i64 = 12;
/// The height of the names of months above the squares.
const TOP: i64 = 16;
/// From how many activities on a day a square is darker.
const LEVELS: [i64; 4] = [1, 3, 8, 20];

/// The calendar of a user.
pub(crate) struct Calendar {
    pub(crate) width: i64,
    pub(crate) height: i64,
    /// The path of the squares of days without activities.
    pub(crate) quiet_days: String,
    /// The squares of the other days.
    pub(crate) days: Vec<CalendarDay>,
    /// The horizontal position and the name of each month.
    pub(crate) months: Vec<(i64, String)>,
    pub(crate) summary: String,
}

/// A day with activities.
pub(crate) struct CalendarDay {
    pub(crate) x: i64,
    pub(crate) y: i64,
    /// From 1 to 4.
    pub(crate) level: usize,
    pub(crate) title: String,
}

impl Calendar {
    /// Draws the numbers of activities by the number of the day since 1970; `weeks` are before the current one.
    pub(crate) fn new(counts: &[(i64, i64)], weeks: i64, now: Time) -> Self {
        let today = now.strftime("%Y-%m-%d").to_string().parse::<Date>().unwrap_or(Date::ZERO);
        let today_number = now.as_second().div_euclid(86_400);
        let weekday = i64::from(today.weekday().since(Weekday::Monday));
        let first_number = today_number - weekday - weeks * 7;
        let (mut quiet_days, mut days, mut months) = (String::new(), Vec::new(), Vec::new());
        let (mut total, mut active_days) = (0, 0);
        let mut busiest: Option<(i64, String)> = None;
        for number in first_number..=today_number {
            let (column, row) = ((number - first_number) / 7, (number - first_number) % 7);
            let (x, y) = (column * STEP, TOP + row * STEP);
            let date = today.saturating_sub(jiff::Span::new().days(today_number - number));
            if date.day() <= 7 && row == 0 && column < weeks {
                months.push((x, date.strftime("%b").to_string()));
            }
            let count = counts.iter().find(|(day, _)| *day == number).map_or(0, |(_, count)| *count);
            if count == 0 {
                quiet_days.push_str(&format!("M{x} {y}h10v10h-10z"));
                continue;
            }
            let name = date.strftime("%-d %b %Y").to_string();
            total += count;
            active_days += 1;
            if busiest.as_ref().is_none_or(|(most, _)| count > *most) {
                busiest = Some((count, name.clone()));
            }
            let level = LEVELS.iter().filter(|from| count >= **from).count();
            days.push(CalendarDay { x, y, level, title: format!("{name}: {}", activities(count)) });
        }
        let summary = match busiest {
            None => "No activities in the last year that you can see.".to_owned(),
            Some((most, name)) => {
                let on_days = if active_days == 1 { "on 1 day".to_owned() } else { format!("on {active_days} days") };
                format!("{} in the last year, {on_days}; most on {name} ({most}).", activities(total))
            }
        };
        let width = (weeks + 1) * STEP - 2;
        Self { width, height: TOP + 7 * STEP - 2, quiet_days, days, months, summary }
    }
}

fn activities(count: i64) -> String {
    if count == 1 { "1 activity".to_owned() } else { format!("{count} activities") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calendar_has_a_square_for_each_day_up_to_today() {
        // Wednesday, 7 January 1970.
        let now = Time::from_second(6 * 86_400 + 3600).expect("a time");
        let calendar = Calendar::new(&[(6, 20), (4, 1), (-30, 5), (7, 9)], 1, now);
        assert_eq!(calendar.quiet_days.matches('M').count(), 8, "{}", calendar.quiet_days);
        let days: Vec<(i64, i64, usize, &str)> =
            calendar.days.iter().map(|day| (day.x, day.y, day.level, day.title.as_str())).collect();
        assert_eq!(
            days,
            [(12, TOP, 1, "5 Jan 1970: 1 activity"), (12, TOP + 2 * STEP, 4, "7 Jan 1970: 20 activities")]
        );
        assert_eq!(calendar.summary, "21 activities in the last year, on 2 days; most on 7 Jan 1970 (20).");
        assert_eq!(Calendar::new(&[], 52, now).summary, "No activities in the last year that you can see.");
    }
}
