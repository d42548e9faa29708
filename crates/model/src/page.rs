//! Pagination: the requested page and the slice of a list that it selects.

/// The default number of items on a page.
pub const DEFAULT_SIZE: i64 = 20;
/// The maximum number of items on a page.
pub const MAX_SIZE: i64 = 100;
/// The number of items up to which a list is counted if counting takes longer the more there are.
pub const MAX_COUNTED: i64 = 10_000;

/// A requested page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The page number, starting at 1.
    pub number: i64,
    /// The number of items per page.
    pub size: i64,
}

impl Page {
    /// Creates a page; missing, non-positive and too large values are replaced by defaults and limits.
    pub fn new(number: Option<i64>, size: Option<i64>) -> Self {
        let size = size.filter(|size| *size > 0).unwrap_or(DEFAULT_SIZE).min(MAX_SIZE);
        let number = number.filter(|number| *number > 0).unwrap_or(1);
        Self { number, size }
    }

    /// Returns a page that holds the whole list, for lists that are always short.
    pub fn whole() -> Self {
        Self { number: 1, size: i64::MAX }
    }

    /// Returns the number of items before this page.
    pub fn offset(self) -> i64 {
        (self.number - 1).saturating_mul(self.size)
    }

    /// Returns the number of items at which counting a long list may stop: more than [`MAX_COUNTED`], and more than there are up
    /// to the end of this page, so that it is known whether there is a next one.
    pub fn count_limit(self) -> i64 {
        self.offset().saturating_add(self.size).max(MAX_COUNTED).saturating_add(1)
    }

    /// Returns the items of this page from a list that is completely in memory.
    pub fn slice<T>(self, items: &[T]) -> &[T] {
        let at = |number: i64| usize::try_from(number).unwrap_or(usize::MAX).min(items.len());
        &items[at(self.offset())..at(self.offset().saturating_add(self.size))]
    }
}

/// The number of items on all pages of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    /// There are exactly this many.
    Exact(i64),
    /// There are at least this many; counting stopped there. At least one of them is behind the requested page.
    AtLeast(i64),
}

impl Total {
    /// Returns the total of a list of which at most `limit` items were counted; see [`Page::count_limit`].
    pub fn counted(count: i64, limit: i64) -> Self {
        if count < limit { Self::Exact(count) } else { Self::AtLeast(count) }
    }

    /// Returns the number of items, if all of them were counted.
    pub fn exact(self) -> Option<i64> {
        match self {
            Self::Exact(total) => Some(total),
            Self::AtLeast(_) => None,
        }
    }

    /// Returns the number of items that were counted.
    pub fn at_least(self) -> i64 {
        match self {
            Self::Exact(count) | Self::AtLeast(count) => count,
        }
    }
}

impl From<i64> for Total {
    fn from(total: i64) -> Self {
        Self::Exact(total)
    }
}

/// One page of a list, with the total number of items.
#[derive(Clone, Debug)]
pub struct Slice<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The number of items on all pages.
    pub total: Total,
    /// The requested page.
    pub page: Page,
}

impl<T> Slice<T> {
    /// Creates a slice without items.
    pub fn empty(page: Page) -> Self {
        Self { items: Vec::new(), total: Total::Exact(0), page }
    }

    /// Converts every item of the page.
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Slice<U> {
        Slice { items: self.items.into_iter().map(f).collect(), total: self.total, page: self.page }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_stays_within_its_limits() {
        let check = |number, size, expected: (i64, i64, i64)| {
            let page = Page::new(number, size);
            assert_eq!((page.number, page.size, page.offset()), expected, "{number:?} {size:?}");
        };
        check(None, None, (1, 20, 0));
        check(Some(3), Some(50), (3, 50, 100));
        check(Some(0), Some(0), (1, 20, 0));
        check(Some(-5), Some(-1), (1, 20, 0));
        check(Some(2), Some(5000), (2, 100, 100));
        check(Some(i64::MAX), Some(100), (i64::MAX, 100, i64::MAX));
    }

    #[test]
    fn a_total_is_exact_unless_counting_stopped_behind_the_page() {
        let first = Page::new(None, None);
        assert_eq!(first.count_limit(), 10_001);
        assert_eq!(Total::counted(10_000, first.count_limit()), Total::Exact(10_000));
        assert_eq!(Total::counted(10_001, first.count_limit()), Total::AtLeast(10_001));
        assert_eq!(Page { number: 600, size: 20 }.count_limit(), 12_001);
        assert_eq!(Page { number: i64::MAX, size: 100 }.count_limit(), i64::MAX);
        assert_eq!(Page::whole().count_limit(), i64::MAX);
    }

    #[test]
    fn a_page_selects_a_slice_of_a_list() {
        let items = [1, 2, 3, 4, 5];
        let slice = |number, size| Page { number, size }.slice(&items);
        assert_eq!(slice(1, 2), [1, 2]);
        assert_eq!(slice(3, 2), [5]);
        assert_eq!(slice(4, 2), [0; 0]);
        assert_eq!(slice(i64::MAX, 100), [0; 0]);
        assert_eq!(Page::whole().slice(&items), items);
    }
}
