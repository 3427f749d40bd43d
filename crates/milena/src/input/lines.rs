//! Lines of text as records: value, key and headers with separators between them.

use std::borrow::Cow;

use memchr::memmem;
use regex_lite::Regex;
use smallvec::SmallVec;

use super::{Draft, DraftHeader};

/// What a line is made of: the headers and their delimiter, the key and its separator, the value.
#[derive(Debug, Clone)]
pub struct Layout {
    /// What stands behind the headers; `None` when there are none.
    pub headers_delimiter: Option<String>,
    /// What stands between two headers.
    pub headers_separator: Regex,
    /// What stands between a header's key and its value.
    pub header_key_separator: String,
    /// What stands behind the key; `None` when there is none.
    pub key_separator: Option<String>,
    /// What stands for no key, no value, no headers and no value of a header.
    pub null_marker: Option<String>,
    /// Whether a part whose separator is missing is taken not to be there.
    pub forgiving: bool,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// The delimiter behind the headers is missing.
    NoHeadersDelimiter,
    /// The separator behind the key is missing.
    NoKeySeparator,
    /// There is nothing between key and value of this header.
    NoHeaderKeySeparator(String),
    /// The key of a header is what stands for nothing.
    NullHeaderKey,
    /// Headers that are not UTF-8.
    NotText,
}

impl Layout {
    /// Reads a line, without its end.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read<'l>(&self, line: &'l [u8]) -> Result<Draft<'l>, Flaw> {
        let (headers, rest) = self.part(line, self.headers_delimiter.as_deref(), Flaw::NoHeadersDelimiter)?;
        let (key, value) = self.part(rest, self.key_separator.as_deref(), Flaw::NoKeySeparator)?;
        let headers = match headers.filter(|headers| !self.is_null(headers)) {
            Some(headers) => self.headers(std::str::from_utf8(headers).map_err(|_| Flaw::NotText)?)?,
            None => SmallVec::new(),
        };
        let given = |part: &&[u8]| !self.is_null(part);
        Ok(Draft {
            key: key.filter(given).map(Cow::Borrowed),
            value: Some(value).filter(given).map(Cow::Borrowed),
            headers,
            ..Draft::default()
        })
    }

    /// What stands before the separator, and what stands behind it.
    fn part<'l>(
        &self,
        line: &'l [u8],
        separator: Option<&str>,
        missing: Flaw,
    ) -> Result<(Option<&'l [u8]>, &'l [u8]), Flaw> {
        let Some(separator) = separator else { return Ok((None, line)) };
        match memmem::find(line, separator.as_bytes()) {
            Some(at) => Ok((Some(&line[..at]), &line[at + separator.len()..])),
            None if self.forgiving => Ok((None, line)),
            None => Err(missing),
        }
    }

    fn is_null(&self, part: &[u8]) -> bool {
        self.null_marker.as_ref().is_some_and(|marker| marker.as_bytes() == part)
    }

    fn headers<'l>(&self, text: &'l str) -> Result<SmallVec<[DraftHeader<'l>; 4]>, Flaw> {
        let mut pairs: SmallVec<[&str; 4]> = self.headers_separator.split(text).collect();
        // As Java splits: what is empty at the end is left away, unless nothing was split.
        let split = pairs.len() > 1;
        while split && pairs.last().is_some_and(|pair| pair.is_empty()) {
            pairs.pop();
        }
        pairs.into_iter().map(|pair| self.header(pair)).collect()
    }

    fn header<'l>(&self, pair: &'l str) -> Result<DraftHeader<'l>, Flaw> {
        match pair.split_once(&self.header_key_separator) {
            Some((key, _)) if self.is_null(key.as_bytes()) => Err(Flaw::NullHeaderKey),
            Some((key, value)) => {
                let value = Some(value.as_bytes()).filter(|value| !self.is_null(value));
                Ok((key.into(), value.map(Cow::Borrowed)))
            }
            None if self.forgiving => Ok((pair.into(), None)),
            None => Err(Flaw::NoHeaderKeySeparator(pair.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout {
            headers_delimiter: Some("\t".to_owned()),
            headers_separator: Regex::new(",").unwrap(),
            header_key_separator: ":".to_owned(),
            key_separator: Some("=".to_owned()),
            null_marker: Some("-".to_owned()),
            forgiving: false,
        }
    }

    /// Key, value and headers as text; `null` for what is not there.
    fn read(layout: &Layout, line: &str) -> Result<String, Flaw> {
        let text = |bytes: &Option<Cow<'_, [u8]>>| {
            bytes.as_ref().map_or("null".to_owned(), |bytes| String::from_utf8_lossy(bytes).into_owned())
        };
        let draft = layout.read(line.as_bytes())?;
        let headers: String = draft.headers.iter().map(|(key, value)| format!(" {key}:{}", text(value))).collect();
        Ok(format!("{}={}{headers}", text(&draft.key), text(&draft.value)))
    }

    #[test]
    fn a_line_has_headers_then_the_key_then_the_value() {
        assert_eq!(read(&layout(), "a:1,b:2:3\tk=v=w").unwrap(), "k=v=w a:1 b:2:3");
        assert_eq!(read(&layout(), "a:\t=").unwrap(), "= a:");
        let plain = Layout { headers_delimiter: None, key_separator: None, ..layout() };
        assert_eq!(read(&plain, "a:1\tk=v").unwrap(), "null=a:1\tk=v");
    }

    #[test]
    fn the_marker_stands_for_nothing() {
        assert_eq!(read(&layout(), "-\t-=-").unwrap(), "null=null");
        assert_eq!(read(&layout(), "a:-\tk=v").unwrap(), "k=v a:null");
        assert_eq!(read(&layout(), "-:1\tk=v"), Err(Flaw::NullHeaderKey));
    }

    #[test]
    fn what_is_missing_is_told_or_forgiven() {
        assert_eq!(read(&layout(), "k=v"), Err(Flaw::NoHeadersDelimiter));
        assert_eq!(read(&layout(), "a:1\tv"), Err(Flaw::NoKeySeparator));
        assert_eq!(read(&layout(), "a:1,b\tk=v"), Err(Flaw::NoHeaderKeySeparator("b".to_owned())));
        let forgiving = Layout { forgiving: true, ..layout() };
        assert_eq!(read(&forgiving, "k=v").unwrap(), "k=v");
        assert_eq!(read(&forgiving, "a:1,b\tv").unwrap(), "null=v a:1 b:null");
    }

    #[test]
    fn headers_are_split_as_java_splits() {
        assert_eq!(read(&layout(), "a:1,,\tk=v").unwrap(), "k=v a:1");
        assert_eq!(read(&layout(), "\tk=v"), Err(Flaw::NoHeaderKeySeparator(String::new())));
        let spaced = Layout { headers_separator: Regex::new("; *").unwrap(), ..layout() };
        assert_eq!(read(&spaced, "a:1;  b:2\tk=v").unwrap(), "k=v a:1 b:2");
    }

    #[test]
    fn only_headers_must_be_text() {
        let layout = layout();
        assert_eq!(layout.read(b"a:\xff\tk=v"), Err(Flaw::NotText));
        assert_eq!(layout.read(b"a:1\t\xff=\xfe").unwrap().value.as_deref(), Some(&b"\xfe"[..]));
    }
}
