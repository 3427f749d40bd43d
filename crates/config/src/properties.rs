//! Java's properties format, as `server.properties` is written in it: comments with `#` and `!`, `=`, `:` or
//! blanks between name and value, continuation lines, escapes. Every entry keeps the line it starts on.

use thiserror::Error;

/// One `name = value` of a properties text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// Line the entry starts on, from 1.
    pub line: usize,
    /// Name with escapes resolved.
    pub name: String,
    /// Value with escapes resolved; blanks at its end stay, as in Java.
    pub value: String,
}

/// A `\u` escape without four hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: malformed \\uXXXX escape")]
pub struct MalformedEscape {
    /// Line of the entry, from 1.
    pub line: usize,
}

/// Reads a properties text; entries come in their order, repeated names included.
///
/// # Errors
/// [`MalformedEscape`] for a `\u` that is not followed by four hexadecimal digits.
pub fn parse(text: &str) -> Result<Vec<Property>, MalformedEscape> {
    logical_lines(text).into_iter().map(|(line, content)| parse_entry(line, &content)).collect()
}

/// Natural lines joined where they end in an odd number of backslashes; comments and blank lines are gone.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let text = text.replace("\r\n", "\n");
    for (i, natural) in text.split(['\n', '\r']).enumerate() {
        let content = natural.trim_start_matches(is_blank);
        let (start, mut joined) = match open.take() {
            Some(entry) if !entry.1.is_empty() => entry,
            _ if content.is_empty() || content.starts_with(['#', '!']) => continue,
            _ => (i + 1, String::new()),
        };
        let backslashes = content.bytes().rev().take_while(|b| *b == b'\\').count();
        if backslashes % 2 == 1 {
            joined.push_str(&content[..content.len() - 1]);
            open = Some((start, joined));
        } else {
            joined.push_str(content);
            lines.push((start, joined));
        }
    }
    // A backslash as the very last character of the text still ends an entry, even an empty one.
    lines.extend(open);
    lines
}

fn parse_entry(line: usize, content: &str) -> Result<Property, MalformedEscape> {
    let mut escaped = false;
    let end = content.find(|c: char| {
        let separates = !escaped && (is_blank(c) || c == '=' || c == ':');
        escaped = !escaped && c == '\\';
        separates
    });
    let (name, rest) = content.split_at(end.unwrap_or(content.len()));
    let rest = rest.trim_start_matches(is_blank);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches(is_blank);
    Ok(Property { line, name: unescape(line, name)?, value: unescape(line, value)? })
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

fn unescape(line: usize, text: &str) -> Result<String, MalformedEscape> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    // UTF-16 units, since two \u escapes may be the halves of one character.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut buffer = [0; 2];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let resolved = match (c, c == '\\') {
            (c, false) => c,
            (_, true) => match chars.next() {
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    let valid = digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit());
                    let unit = u16::from_str_radix(&digits, 16).ok().filter(|_| valid);
                    units.push(unit.ok_or(MalformedEscape { line })?);
                    continue;
                }
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\x0c',
                Some(other) => other,
                None => continue,
            },
        };
        units.extend_from_slice(resolved.encode_utf16(&mut buffer));
    }
    Ok(String::from_utf16_lossy(&units))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(usize, String, String)> {
        parse(text).unwrap().into_iter().map(|p| (p.line, p.name, p.value)).collect()
    }

    fn one(text: &str) -> (String, String) {
        let mut all = pairs(text);
        assert_eq!(all.len(), 1, "{all:?}");
        let (_, name, value) = all.remove(0);
        (name, value)
    }

    #[test]
    fn every_separator_works() {
        for text in ["a=b", "a:b", "a b", "a = b", "a\t:\tb", "  a   =b", "a =b"] {
            assert_eq!(one(text), ("a".to_owned(), "b".to_owned()), "{text:?}");
        }
        assert_eq!(one("a==b"), ("a".to_owned(), "=b".to_owned()));
        assert_eq!(one("a"), ("a".to_owned(), String::new()));
        assert_eq!(one("a=b "), ("a".to_owned(), "b ".to_owned()));
    }

    #[test]
    fn comments_and_blank_lines_are_skipped_and_lines_counted() {
        let text = "# one\n\n! two\na=1\r\n  # three\nb=2\n";
        assert_eq!(pairs(text), [(4, "a".into(), "1".into()), (6, "b".into(), "2".into())]);
    }

    #[test]
    fn continuation_lines_lose_their_leading_blanks() {
        assert_eq!(pairs("a=1,\\\n   2,\\\n   3\nb=x"), [(1, "a".into(), "1,2,3".into()), (4, "b".into(), "x".into())]);
        assert_eq!(one("a=b\\\\"), ("a".to_owned(), "b\\".to_owned()));
        assert_eq!(one("a=b\\"), ("a".to_owned(), "b".to_owned()));
        assert!(pairs("\\\n# a comment").is_empty());
        assert_eq!(one("a=b\\\n# not a comment"), ("a".to_owned(), "b# not a comment".to_owned()));
    }

    #[test]
    fn escapes_resolve() {
        assert_eq!(one("a\\=b\\:c\\ d=e"), ("a=b:c d".to_owned(), "e".to_owned()));
        assert_eq!(one(r"a=\t\n\q\u00e9\ud83d\ude00"), ("a".to_owned(), "\t\nqé😀".to_owned()));
        assert_eq!(one(r"a=C:\\data"), ("a".to_owned(), r"C:\data".to_owned()));
        assert_eq!(parse("x=1\na=\\u12"), Err(MalformedEscape { line: 2 }));
    }
}
