//! The file `meta.properties` of a log directory: which cluster, node and directory it belongs to.

use std::io;
use std::path::Path;

use milena_config::properties;
use milena_io::{Disk, Rng};
use milena_protocol::Uuid;

use crate::files;

/// Name of the file.
pub(crate) const FILE_NAME: &str = "meta.properties";

/// How many ids, counted from zero, stand for something else than a directory.
const RESERVED_IDS: u128 = 100;

/// What the file says. A field that is absent in the file is `None`; version 0 files may lack any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    /// Version of the format, 0 or 1.
    pub version: i32,
    /// Id of the cluster; any text.
    pub cluster_id: Option<String>,
    /// Id of the node.
    pub node_id: Option<i32>,
    /// Id of the directory.
    pub directory_id: Option<Uuid>,
}

/// A file that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetaPropertiesError {
    /// Not in the format of Java properties.
    #[error("malformed properties: {0}")]
    Malformed(String),
    /// A version this software does not know.
    #[error("unknown version {0:?}")]
    Version(String),
    /// A property of version 1 is missing.
    #[error("property {0} is missing")]
    Missing(&'static str),
    /// A property's value cannot be used.
    #[error("property {name} has the unusable value {value:?}")]
    Value {
        /// The property.
        name: &'static str,
        /// Its value.
        value: String,
    },
}

impl MetaProperties {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// [`MetaPropertiesError`] for text that is not a meta.properties of version 0 or 1.
    pub fn parse(text: &str) -> Result<Self, MetaPropertiesError> {
        let entries = properties::parse(text).map_err(|e| MetaPropertiesError::Malformed(e.to_string()))?;
        let get = |name: &str| entries.iter().rev().find(|p| p.name == name).map(|p| p.value.trim().to_owned());
        let version = match get("version").as_deref() {
            None | Some("0") => 0,
            Some("1") => 1,
            Some(other) => return Err(MetaPropertiesError::Version(other.to_owned())),
        };
        let id_name = if version == 0 { "broker.id" } else { "node.id" };
        let bad = |name, value: &str| MetaPropertiesError::Value { name, value: value.to_owned() };
        let node_id = match get(id_name) {
            None => None,
            Some(text) => Some(text.parse().ok().filter(|id| *id >= 0).ok_or_else(|| bad(id_name, &text))?),
        };
        let directory_id = match get("directory.id") {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| bad("directory.id", &text))?),
        };
        let properties = Self { version, cluster_id: get("cluster.id"), node_id, directory_id };
        match &properties {
            Self { version: 1, node_id: None, .. } => Err(MetaPropertiesError::Missing("node.id")),
            Self { version: 1, cluster_id: None, .. } => Err(MetaPropertiesError::Missing("cluster.id")),
            _ => Ok(properties),
        }
    }

    /// The text of the file, with the comment and the order of properties that Kafka writes.
    ///
    /// `now_ms` is milliseconds since 1970 and appears in a comment.
    pub fn to_text(&self, now_ms: i64) -> String {
        let id_name = if self.version == 0 { "broker.id" } else { "node.id" };
        let lines = [
            (id_name, self.node_id.map(|id| id.to_string())),
            ("directory.id", self.directory_id.map(|id| id.to_string())),
            ("version", Some(self.version.to_string())),
            ("cluster.id", self.cluster_id.clone()),
        ];
        let mut text = format!("#\n#{}\n", java_date(now_ms));
        for (name, value) in lines.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            text.push_str(&format!("{name}={}\n", escape(value)));
        }
        text
    }

    /// Reads the file of a directory; `None` when the directory or the file does not exist.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> io::Result<Option<Result<Self, MetaPropertiesError>>> {
        Ok(files::read_text(disk, &dir.join(FILE_NAME))?.map(|text| Self::parse(&text)))
    }

    /// Writes the file of a directory, durably and in one step.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path, now_ms: i64) -> io::Result<()> {
        files::replace(disk, &dir.join(FILE_NAME), self.to_text(now_ms).as_bytes())
    }
}

/// A property's value as Java writes it: separators and line ends escaped, everything outside printable ASCII as `\uXXXX`.
fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for (index, c) in value.chars().enumerate() {
        match c {
            ' ' if index == 0 => out.push_str("\\ "),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\u{c}' => out.push_str("\\f"),
            '=' | ':' | '#' | '!' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            c => {
                let mut units = [0; 2];
                c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04X}")));
            }
        }
    }
    out
}

/// A moment as Java's `Date.toString` in UTC: `Mon Nov 30 19:53:30 UTC 2026`.
fn java_date(now_ms: i64) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = now_ms.max(0).unsigned_abs() / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let weekday = WEEKDAYS[usize::try_from(days % 7).unwrap_or_default()];
    // Days since 1 March of year 0, whose years end with the leap day.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    let month = MONTHS[usize::try_from(month).unwrap_or_default()];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday} {month} {day:02} {hour:02}:{minute:02}:{second:02} UTC {year}")
}

/// Whether an id is one of those that stand for something else than a directory.
pub(crate) fn is_reserved(id: Uuid) -> bool {
    u128::from_be_bytes(id.to_bytes()) < RESERVED_IDS
}

/// A random id (a version 4 UUID) as Kafka draws them: never a reserved one, and its text never begins with a hyphen, which
/// command lines would take for an option.
pub fn random_uuid(rng: &mut dyn Rng) -> Uuid {
    loop {
        let mut bytes = [0; 16];
        rng.fill(&mut bytes);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let id = Uuid::from_bytes(bytes);
        if !is_reserved(id) && !id.to_string().starts_with('-') {
            return id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use milena_io::SimRng;

    #[test]
    fn the_file_is_written_as_kafka_writes_it_and_reads_back() {
        let properties = MetaProperties {
            version: 1,
            cluster_id: Some("MkU3OEVBNTcwNTJENDM2Qg".to_owned()),
            node_id: Some(1),
            directory_id: Some("VUK78uoJyllVz-GqkcCBCA".parse().unwrap()),
        };
        let text = properties.to_text(1_796_068_410_000);
        assert_eq!(
            text,
            "#\n#Mon Nov 30 19:53:30 UTC 2026\nnode.id=1\ndirectory.id=VUK78uoJyllVz-GqkcCBCA\nversion=1\n\
             cluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
        );
        assert_eq!(text.len(), 122);
        assert_eq!(MetaProperties::parse(&text), Ok(properties));
    }

    #[test]
    fn any_text_can_be_a_cluster_id() {
        for id in ["bad", " a=b:c#d!e\\f", "ü€\u{1F600}\t", "x y"] {
            let properties =
                MetaProperties { version: 1, cluster_id: Some(id.to_owned()), node_id: Some(0), directory_id: None };
            let read = MetaProperties::parse(&properties.to_text(0)).unwrap();
            assert_eq!(read.cluster_id.as_deref().map(str::trim), Some(id.trim()));
        }
    }

    #[test]
    fn dates_are_those_of_the_gregorian_calendar() {
        assert_eq!(java_date(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(java_date(951_782_400_000), "Tue Feb 29 00:00:00 UTC 2000");
        assert_eq!(java_date(1_709_251_199_000), "Thu Feb 29 23:59:59 UTC 2024");
        assert_eq!(java_date(1_735_689_600_000), "Wed Jan 01 00:00:00 UTC 2025");
    }

    #[test]
    fn version_0_takes_the_node_id_from_broker_id() {
        let read = MetaProperties::parse("broker.id=3\n").unwrap();
        assert_eq!(read, MetaProperties { version: 0, cluster_id: None, node_id: Some(3), directory_id: None });
    }

    #[test]
    fn unusable_files_are_refused() {
        let error = |text| MetaProperties::parse(text).unwrap_err();
        assert_eq!(error("version=2\n"), MetaPropertiesError::Version("2".to_owned()));
        assert_eq!(error("version=1\ncluster.id=x\n"), MetaPropertiesError::Missing("node.id"));
        assert_eq!(error("version=1\nnode.id=1\n"), MetaPropertiesError::Missing("cluster.id"));
        assert!(matches!(error("version=1\nnode.id=-1\n"), MetaPropertiesError::Value { name: "node.id", .. }));
        assert!(matches!(error("directory.id=zz\n"), MetaPropertiesError::Value { name: "directory.id", .. }));
    }

    #[test]
    fn random_ids_are_version_4_and_never_begin_with_a_hyphen() {
        let mut rng = SimRng::new(7);
        for _ in 0..2000 {
            let id = random_uuid(&mut rng);
            assert_eq!((id.to_bytes()[6] >> 4, id.to_bytes()[8] >> 6), (4, 2));
            assert!(!id.to_string().starts_with('-'));
        }
    }
}
