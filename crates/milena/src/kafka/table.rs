//! The table that most of Kafka's tools print.

/// Columns as wide as their widest cell, a tab behind each.
pub fn table(headers: &[&str], rows: Vec<Vec<String>>) -> String {
    let widest = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headers[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headers.len()).map(widest).collect();
    let line = |cells: Vec<&str>| {
        let cells: String = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}\t")).collect();
        cells + "\n"
    };
    let lines: String = rows.iter().map(|row| line(row.iter().map(String::as_str).collect())).collect();
    line(headers.to_vec()) + &lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_tabs_behind_them() {
        let rows = vec![vec!["tx-open".to_owned(), "1".to_owned()]];
        assert_eq!(
            table(&["TransactionalId", "Coordinator"], rows),
            "TransactionalId\tCoordinator\t\ntx-open        \t1          \t\n"
        );
    }
}
