//! Files with comma-separated values as tables.

/// The maximum number of rows that are shown.
const MAX_ROWS: usize = 1000;
/// The maximum number of columns that are shown.
const MAX_COLUMNS: usize = 50;

/// The first rows and columns of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// The first row.
    pub(crate) head: Vec<String>,
    /// The other rows; all are as long as the first.
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) is_truncated: bool,
}

impl Table {
    /// Parses a file; `None` if it is not a table of at least two columns, or a quotation does not end.
    pub(crate) fn parse(text: &str, separator: char) -> Option<Self> {
        let mut rows = Rows { rest: text, separator };
        let mut table = Self { head: rows.next_row()??, ..Self::default() };
        let columns = table.head.len();
        table.is_truncated = columns > MAX_COLUMNS;
        table.head.truncate(MAX_COLUMNS);
        while let Some(row) = rows.next_row() {
            if table.rows.len() == MAX_ROWS {
                table.is_truncated = true;
                break;
            }
            let mut row = row?;
            row.resize(columns.min(MAX_COLUMNS), String::new());
            table.rows.push(row);
        }
        (columns > 1).then_some(table)
    }
}

struct Rows<'a> {
    rest: &'a str,
    separator: char,
}

impl Rows<'_> {
    /// Returns the next row, `None` at the end, or `Some(None)` if a quotation does not end.
    fn next_row(&mut self) -> Option<Option<Vec<String>>> {
        if self.rest.is_empty() {
            return None;
        }
        let mut cells = Vec::new();
        loop {
            let Some(cell) = self.cell() else { return Some(None) };
            cells.push(cell);
            let mut rest = self.rest.chars();
            match rest.next() {
                Some(c) if c == self.separator => self.rest = rest.as_str(),
                Some(_) => {
                    self.rest = rest.as_str();
                    return Some(Some(cells));
                }
                None => return Some(Some(cells)),
            }
        }
    }

    /// Returns the next cell; the rest starts with the separator or the end of the line.
    fn cell(&mut self) -> Option<String> {
        let separator = self.separator;
        let Some(quoted) = self.rest.strip_prefix('"') else {
            let end = self.rest.find([separator, '\n']).unwrap_or(self.rest.len());
            let (cell, rest) = self.rest.split_at(end);
            self.rest = rest;
            return Some(cell.trim_end_matches('\r').to_owned());
        };
        let mut cell = String::new();
        let mut rest = quoted;
        loop {
            let end = rest.find('"')?;
            cell.push_str(&rest[..end]);
            rest = &rest[end + 1..];
            match rest.strip_prefix('"') {
                Some(more) => {
                    cell.push('"');
                    rest = more;
                }
                None => break,
            }
        }
        // What follows the quotation belongs to the cell, although it should not be there.
        let end = rest.find([separator, '\n']).unwrap_or(rest.len());
        cell.push_str(rest[..end].trim_end_matches('\r'));
        self.rest = &rest[end..];
        Some(cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed() {
        let check = |text: &str, expected: Option<&str>| {
            let table = Table::parse(text, ',').map(|table| {
                let rows = [table.head].into_iter().chain(table.rows);
                rows.map(|row| row.join("|")).collect::<Vec<_>>().join("/")
            });
            assert_eq!(table.as_deref(), expected, "{text:?}");
        };
        check("a,b\n1,2\n", Some("a|b/1|2"));
        check("a,b\r\n1,\r\n", Some("a|b/1|"));
        check("a,b\n\"1,\"\"x\"\"\",\"two\nlines\"", Some("a|b/1,\"x\"|two\nlines"));
        check("a,b\n1\n1,2,3\n", Some("a|b/1|/1|2"));
        check("only\none\n", None);
        check("a,\"b\n", None);
        check("", None);
    }

    #[test]
    fn large_tables_are_truncated() {
        let table = Table::parse(&"a,b\n".repeat(MAX_ROWS + 2), ',').expect("a table");
        assert!(table.is_truncated && table.rows.len() == MAX_ROWS);
        let wide = vec!["x"; 60].join(",");
        let table = Table::parse(&wide, ',').expect("a table");
        assert!(table.is_truncated && table.head.len() == MAX_COLUMNS);
    }
}
