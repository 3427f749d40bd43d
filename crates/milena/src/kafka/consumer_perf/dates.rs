//! Times as `java.text.SimpleDateFormat` prints them, by its patterns.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::kafka::Thrown;

/// A pattern: what is printed as it is, or a letter and how often it stands there.
#[derive(Debug, PartialEq, Eq)]
pub struct DateFormat(Vec<Piece>);

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(char),
    Field(char, usize),
}

impl DateFormat {
    /// Reads a pattern.
    pub fn new(pattern: &str) -> Result<Self, Thrown> {
        let mut pieces = Vec::new();
        let mut quoted = false;
        let mut letters = pattern.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\'' if letters.next_if_eq(&'\'').is_some() => pieces.push(Piece::Text('\'')),
                '\'' => quoted = !quoted,
                _ if quoted || !letter.is_ascii_alphabetic() => pieces.push(Piece::Text(letter)),
                _ if "yMdDEaHkKhmsSzZX".contains(letter) => {
                    let more = std::iter::from_fn(|| letters.next_if_eq(&letter)).count();
                    pieces.push(Piece::Field(letter, 1 + more));
                }
                _ => return Err(Thrown::argument(format!("Illegal pattern character '{letter}'"))),
            }
        }
        if quoted { Err(Thrown::argument("Unterminated quote")) } else { Ok(Self(pieces)) }
    }

    /// A time here, from milliseconds since 1970.
    pub fn format(&self, ms: i64) -> String {
        self.format_in(ms, TimeZone::system())
    }

    fn format_in(&self, ms: i64, zone: TimeZone) -> String {
        let time = Timestamp::from_millisecond(ms).unwrap_or_default().to_zoned(zone);
        let piece = |piece: &Piece| match *piece {
            Piece::Text(letter) => letter.to_string(),
            Piece::Field(letter, width) => {
                let number = |number: i64| format!("{number:0width$}");
                let spelled = |short: &str, long: &str| time.strftime(if width < 4 { short } else { long }).to_string();
                match letter {
                    'y' if width == 2 => time.strftime("%y").to_string(),
                    'y' => number(time.year().into()),
                    'M' if width > 2 => spelled("%b", "%B"),
                    'M' => number(time.month().into()),
                    'd' => number(time.day().into()),
                    'D' => number(time.day_of_year().into()),
                    'E' => spelled("%a", "%A"),
                    'a' => time.strftime("%p").to_string(),
                    'H' => number(time.hour().into()),
                    'k' => number(if time.hour() == 0 { 24 } else { time.hour().into() }),
                    'K' => number(i64::from(time.hour()) % 12),
                    'h' => number((i64::from(time.hour()) + 11) % 12 + 1),
                    'm' => number(time.minute().into()),
                    's' => number(time.second().into()),
                    'S' => number(time.millisecond().into()),
                    'z' => time.strftime("%Z").to_string(),
                    'X' if time.offset().is_zero() => "Z".to_owned(),
                    'X' if width == 3 => time.strftime("%:z").to_string(),
                    _ => time.strftime("%z").to_string(),
                }
            }
        };
        self.0.iter().map(piece).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_by_java() {
        // Printed by a Java program.
        let told = |pattern: &str| DateFormat::new(pattern).unwrap().format_in(1_796_070_653_645, TimeZone::UTC);
        assert_eq!(told("yyyy-MM-dd HH:mm:ss:SSS"), "2026-11-30 20:30:53:645");
        assert_eq!(told("EEE, d MMM yy h 'o''clock' a"), "Mon, 30 Nov 26 8 o'clock PM");
        assert_eq!(told("EEEE MMMM D K k Z z X"), "Monday November 334 8 20 +0000 UTC Z");
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        let refused = |pattern: &str| DateFormat::new(pattern).unwrap_err().message;
        assert_eq!(refused("yyyy-bb"), "Illegal pattern character 'b'");
        assert_eq!(refused("yyyy'T"), "Unterminated quote");
    }
}
