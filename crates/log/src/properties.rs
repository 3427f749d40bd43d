//! `meta.properties`, which says to which cluster, node and directory id a log directory belongs. Java's properties format.

use std::path::Path;

use crate::error::Result;
use crate::text::bad;

/// The content of a `meta.properties` file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetaProperties {
    /// 1; 0 for files of clusters before KRaft.
    pub version: i32,
    /// Always there in version 1.
    pub cluster_id: Option<String>,
    /// Always there in version 1.
    pub node_id: Option<i32>,
    /// Base64url text of the directory's id; older files have none.
    pub directory_id: Option<String>,
}

impl MetaProperties {
    /// Reads the file's bytes; `path` is for messages.
    ///
    /// # Errors
    /// [`LogError::BadFile`](crate::LogError::BadFile): an unknown version, a number that is none, in version 1 a missing cluster or node id.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<MetaProperties> {
        let pairs = parse(bytes);
        let get =
            |name: &str| pairs.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.trim().to_owned());
        let number = |name: &str| {
            let parse =
                |text: String| text.parse::<i32>().map_err(|_| bad(path, format!("{name} is `{text}`, not a number")));
            get(name).map(parse).transpose()
        };
        let version = number("version")?.unwrap_or(0);
        let node_id = match version {
            0 => number("broker.id")?,
            1 => number("node.id")?,
            _ => return Err(bad(path, format!("unknown version {version}"))),
        };
        let found =
            MetaProperties { version, cluster_id: get("cluster.id"), node_id, directory_id: get("directory.id") };
        match (version, &found.cluster_id, found.node_id) {
            (1, None, _) => Err(bad(path, "cluster.id is missing")),
            (1, _, None) => Err(bad(path, "node.id is missing")),
            _ => Ok(found),
        }
    }

    /// The file's text as Kafka writes it: two comment lines, the second with the time (`now_ms`, ms since 1970), then the keys in the order of
    /// its hash table.
    pub fn format(&self, now_ms: i64) -> String {
        let node_key = if self.version == 0 { "broker.id" } else { "node.id" };
        let pairs = [
            (node_key, self.node_id.map(|id| id.to_string())),
            ("directory.id", self.directory_id.clone()),
            ("version", Some(self.version.to_string())),
            ("cluster.id", self.cluster_id.clone()),
        ];
        let mut text = format!("#\n#{}\n", java_date(now_ms));
        for (key, value) in pairs {
            if let Some(value) = value {
                text.push_str(&format!("{key}={}\n", escape(&value)));
            }
        }
        text
    }
}

/// Keys and values of a Java properties text in Latin-1, in their order.
fn parse(bytes: &[u8]) -> Vec<(String, String)> {
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let mut pairs = Vec::new();
    let mut lines = text.lines().map(|line| line.trim_start_matches([' ', '\t', '\u{c}']));
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut whole = line.to_owned();
        while whole.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1 {
            whole.pop();
            match lines.next() {
                Some(more) => whole.push_str(more),
                None => break,
            }
        }
        pairs.push(split_pair(&whole));
    }
    pairs
}

/// Splits at the first `=`, `:` or white space that no backslash protects.
fn split_pair(line: &str) -> (String, String) {
    let mut escaped = false;
    let end = line.find(|char| {
        let ends = !escaped && matches!(char, '=' | ':' | ' ' | '\t' | '\u{c}');
        escaped = !escaped && char == '\\';
        ends
    });
    let (key, rest) = line.split_at(end.unwrap_or(line.len()));
    let rest = rest.trim_start_matches([' ', '\t', '\u{c}']);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches([' ', '\t', '\u{c}']);
    (unescape(key), unescape(value))
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match (char, char == '\\') {
            (char, false) => out.push(char),
            (_, true) => match chars.next() {
                Some('t') => out.push('\t'),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('f') => out.push('\u{c}'),
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                    out.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                Some(other) => out.push(other),
                None => {}
            },
        }
    }
    out
}

fn escape(value: &str) -> String {
    let mut out = String::new();
    for (at, char) in value.chars().enumerate() {
        match char {
            ' ' if at > 0 => out.push(' '),
            ' ' | '=' | ':' | '#' | '!' | '\\' => out.extend(['\\', char]),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(char),
            other => {
                let mut units = [0; 2];
                for unit in other.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04X}"));
                }
            }
        }
    }
    out
}

/// A moment as Java's `Date` prints it in UTC: `Mon Nov 30 19:53:30 UTC 2026`.
fn java_date(ms: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = ms.div_euclid(1000);
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, date) = civil(day);
    let weekday = DAYS[day.rem_euclid(7) as usize];
    let month = MONTHS[month];
    format!("{weekday} {month} {date:02} {:02}:{:02}:{:02} UTC {year}", second / 3600, second / 60 % 60, second % 60)
}

/// Year, month (0 to 11) and day of the month of a day since 1970-01-01, in the Gregorian calendar: counted in eras of 400 years from a March.
fn civil(day: i64) -> (i64, usize, i64) {
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let date = of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12;
    (year_of_era + era * 400 + i64::from(month < 2), month as usize, date)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<MetaProperties> {
        MetaProperties::parse(Path::new("meta.properties"), text.as_bytes())
    }

    #[test]
    fn the_text_is_kafkas_byte_for_byte() {
        let text = "#\n#Mon Nov 30 19:53:30 UTC 2026\nnode.id=1\ndirectory.id=VUK78uoJyllVz-GqkcCBCA\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n";
        let meta = parsed(text).unwrap();
        assert_eq!(meta.directory_id.as_deref(), Some("VUK78uoJyllVz-GqkcCBCA"));
        assert_eq!(meta.format(1_796_068_410_999), text);
    }

    #[test]
    fn javas_escapes_separators_and_continued_lines_are_read() {
        let text = "! note\n node.id : 7\nversion 1\ncluster.id=a\\=b\\u0041\\\n   c\n";
        let meta = parsed(text).unwrap();
        assert_eq!((meta.node_id, meta.cluster_id.as_deref()), (Some(7), Some("a=bAc")));
        assert_eq!(parsed(&meta.format(0)).unwrap(), meta);
    }

    #[test]
    fn version_0_has_a_broker_id_and_nothing_is_mandatory() {
        let expected = MetaProperties { node_id: Some(3), ..MetaProperties::default() };
        assert_eq!(parsed("broker.id=3\n").unwrap(), expected);
        assert_eq!(parsed("").unwrap(), MetaProperties::default());
        for text in ["version=2", "version=x", "version=1\nnode.id=1", "version=1\ncluster.id=a"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(java_date(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(java_date(1_709_164_800_000), "Thu Feb 29 00:00:00 UTC 2024");
        assert_eq!(java_date(951_868_799_000), "Tue Feb 29 23:59:59 UTC 2000");
        assert_eq!(java_date(-1), "Wed Dec 31 23:59:59 UTC 1969");
    }
}
