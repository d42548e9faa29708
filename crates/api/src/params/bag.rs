//! What a request brings, by name, before anybody asked for a type: query, form, multipart or JSON.

use std::borrow::Cow;

use jiff::{
    civil::{Date, DateTime},
    tz::Offset,
};
use model::Time;

/// A value as it came, before anybody asked for a type. It may be a password, so it does not print.
#[derive(Clone, PartialEq)]
pub(crate) enum Item {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Item>),
    /// Named values, in their order.
    Object(Vec<(String, Item)>),
    /// A file: never what a plain parameter wants.
    Other,
    /// Not UTF-8.
    Garbled,
    /// Given more than once, with different values.
    Twice,
}

#[cfg(test)]
impl From<serde_json::Value> for Item {
    fn from(value: serde_json::Value) -> Self {
        let fields = crate::json_items::read(serde_json::json!({ "value": value }).to_string().as_bytes());
        fields.expect("valid JSON").fields.remove(0).1
    }
}

impl Item {
    /// A day: a date, or the date of a moment.
    pub(super) fn day(&self) -> Option<Date> {
        let Self::Text(text) = self else { return None };
        let (day, rest) = text.trim().split_at_checked("2016-11-22".len())?;
        let day = day.parse().ok()?;
        (rest.is_empty() || text.trim().parse::<DateTime>().is_ok() || text.trim().parse::<Time>().is_ok())
            .then_some(day)
    }

    /// A moment: with a zone, or in UTC, or the beginning of a day. The calendars of clients begin with the year 0.
    pub(super) fn moment(&self) -> Option<Time> {
        let Self::Text(text) = self else { return None };
        let text = text.trim();
        let in_utc = |moment: DateTime| Offset::UTC.to_timestamp(moment).ok();
        let moment = text
            .parse::<Time>()
            .ok()
            .or_else(|| text.parse::<DateTime>().ok().and_then(in_utc))
            .or_else(|| text.parse::<Date>().ok().and_then(|day| in_utc(day.at(0, 0, 0, 0))))?;
        (Offset::UTC.to_datetime(moment).year() >= 0).then_some(moment)
    }

    pub(super) fn integer(&self) -> Option<i64> {
        match self {
            Self::Text(digits) | Self::Number(digits) => parse_integer(digits),
            _ => None,
        }
    }
}

/// All parameters of a request by name.
#[derive(Clone, Default)]
pub(crate) struct Bag(Vec<(String, Item)>);

/// More parameters than any client sends; looking them up would take longer and longer.
pub(crate) const MOST: usize = 2000;

/// The request has more parameters than are read.
#[derive(Debug)]
pub(crate) struct TooMany;

impl Bag {
    /// The fields of an object, to be read like parameters.
    pub(super) fn of_object(fields: &[(String, Item)]) -> Self {
        Self(fields.to_vec())
    }

    /// Fills a bag.
    pub(crate) fn collect(pairs: impl Iterator<Item = (String, Item)>) -> Result<Self, TooMany> {
        let mut bag = Self::default();
        for (number, (name, item)) in pairs.enumerate() {
            if number == MOST {
                return Err(TooMany);
            }
            bag.add(name, item);
        }
        Ok(bag)
    }

    /// Adds one; `name[]` adds to a list.
    ///
    /// A scalar may come twice only with the same value: a stock client repeats its query when it follows a link, while
    /// two different values are a way to smuggle one past a check.
    fn add(&mut self, name: String, item: Item) {
        if let Some((list, field)) = name.strip_suffix(']').and_then(|name| name.split_once("[][")) {
            return self.add_to_object(list, field, item);
        }
        if let Some(list) = name.strip_suffix("[]") {
            match self.0.iter_mut().find(|(known, _)| known == list) {
                Some((_, Item::List(items))) => items.push(item),
                Some((_, other)) => *other = Item::Twice,
                None => self.0.push((list.to_owned(), Item::List(vec![item]))),
            }
            return;
        }
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) if *known == item => {}
            Some((_, known)) => *known = Item::Twice,
            None => self.0.push((name, item)),
        }
    }

    /// Adds a field of an object in a list, as forms write it: `list[][field]`. A field that the last object has already
    /// begins the next one.
    fn add_to_object(&mut self, list: &str, field: &str, item: Item) {
        let known = self.0.iter().position(|(known, _)| known == list).unwrap_or_else(|| {
            self.0.push((list.to_owned(), Item::List(Vec::new())));
            self.0.len() - 1
        });
        let (_, place) = &mut self.0[known];
        let Item::List(items) = place else {
            *place = Item::Twice;
            return;
        };
        match items.last_mut() {
            Some(Item::Object(fields)) if fields.iter().all(|(known, _)| known != field) => {
                fields.push((field.to_owned(), item));
            }
            _ => items.push(Item::Object(vec![(field.to_owned(), item)])),
        }
    }

    /// Lays another bag over this one: where both have a name, the other counts.
    pub(crate) fn overlay(&mut self, other: Self) {
        for (name, item) in other.0 {
            match self.0.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = item,
                None => self.0.push((name, item)),
            }
        }
    }

    /// A parameter, unless it is null.
    pub(crate) fn get(&self, name: &str) -> Option<&Item> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, item)| item).filter(|item| **item != Item::Null)
    }

    /// What forms and queries write as `name[key]`, by key.
    pub(super) fn within<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, &'a Item)> {
        self.0.iter().filter_map(move |(known, item)| {
            let key = known.strip_prefix(name)?.strip_prefix('[')?.strip_suffix(']')?;
            Some((key, item))
        })
    }

    /// Whether a parameter was sent at all, be it empty or null.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// A parameter as plain text, if it is that.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Item::Text(text) | Item::Number(text)) => Some(text),
            _ => None,
        }
    }

    /// The plain parameters as text, for links that repeat them.
    pub(crate) fn plain(&self) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
        self.0.iter().flat_map(|(name, item)| {
            let mut texts = Vec::new();
            match item {
                Item::Text(text) | Item::Number(text) => texts.push((Cow::Borrowed(name.as_str()), text.as_str())),
                Item::Bool(value) => texts.push((name.into(), if *value { "true" } else { "false" })),
                Item::List(items) => {
                    for item in items {
                        if let Item::Text(text) | Item::Number(text) = item {
                            texts.push((format!("{name}[]").into(), text.as_str()));
                        }
                    }
                }
                Item::Null | Item::Object(_) | Item::Other | Item::Garbled | Item::Twice => {}
            }
            texts
        })
    }
}

/// A whole number; decimals and exponents are cut, as the original does.
fn parse_integer(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let number: f64 = text.parse().ok().filter(|number: &f64| plain && number.is_finite())?;
    #[expect(clippy::cast_precision_loss, reason = "only the order of magnitude counts here")]
    let in_range = number.abs() < i64::MAX as f64;
    #[expect(clippy::cast_possible_truncation, reason = "cutting the fraction is the point")]
    in_range.then_some(number as i64)
}
