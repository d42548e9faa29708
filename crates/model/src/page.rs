//! Pages of a list.

/// The default number of items on a page.
pub const DEFAULT_SIZE: i64 = 20;
/// The largest number of items on a page.
pub const MAX_SIZE: i64 = 100;

/// Which part of a list is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Counted from 1.
    pub number: i64,
    /// Items on a page.
    pub size: i64,
}

impl Page {
    /// A page within the limits, whatever was asked for.
    pub fn new(number: Option<i64>, size: Option<i64>) -> Self {
        let size = size.filter(|size| *size > 0).unwrap_or(DEFAULT_SIZE).min(MAX_SIZE);
        let number = number.filter(|number| *number > 0).unwrap_or(1);
        Self { number, size }
    }

    /// The whole list as one page, for lists that are short by nature.
    pub fn whole() -> Self {
        Self { number: 1, size: i64::MAX }
    }

    /// How many items lie before this page.
    pub fn offset(self) -> i64 {
        (self.number - 1).saturating_mul(self.size)
    }

    /// The items of this page, of a list that is there as a whole.
    pub fn cut<T>(self, items: &[T]) -> &[T] {
        let at = |number: i64| usize::try_from(number).unwrap_or(usize::MAX).min(items.len());
        &items[at(self.offset())..at(self.offset().saturating_add(self.size))]
    }
}

/// One page of a list, with the size of the whole.
#[derive(Clone, Debug)]
pub struct Slice<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// How many items the list has on all pages.
    pub total: i64,
    /// The page that was asked for.
    pub page: Page,
}

impl<T> Slice<T> {
    /// A list without items.
    pub fn empty(page: Page) -> Self {
        Self { items: Vec::new(), total: 0, page }
    }

    /// The same page with every item turned into something else.
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
    fn a_page_is_cut_out_of_a_list() {
        let items = [1, 2, 3, 4, 5];
        let cut = |number, size| Page { number, size }.cut(&items);
        assert_eq!(cut(1, 2), [1, 2]);
        assert_eq!(cut(3, 2), [5]);
        assert_eq!(cut(4, 2), [0; 0]);
        assert_eq!(cut(i64::MAX, 100), [0; 0]);
        assert_eq!(Page::whole().cut(&items), items);
    }
}
