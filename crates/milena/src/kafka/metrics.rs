//! What the tools that measure know of a client's metrics, as they print them.

/// Names and values, under each other.
pub fn text(rows: &[(&str, u64)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: String = rows.iter().map(|(name, value)| format!("{name:<width$} : {value}.000\n")).collect();
    format!("\n{:<width$}   Value\n{lines}", "Metric Name")
}
