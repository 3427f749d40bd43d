//! Where a group shall read on: the offsets that a wish comes to. `milena group reset` and kafka-consumer-groups share it.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use milena_client::admin::{OffsetSpec, TopicPartition};
use milena_client::{Admin, Error};

/// A wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// This offset, in each partition.
    Offset(i64),
    /// So many records on, or back.
    Shift(i64),
    /// The first record from this time on, milliseconds since 1970; the end where there is none.
    Timestamp(i64),
    /// The beginning or the end.
    Listed(OffsetSpec),
    /// Where the group is; the end where it has not been.
    Current,
    /// These.
    Given(BTreeMap<TopicPartition, i64>),
}

/// What a wish comes to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The new offsets, all within their partitions.
    pub offsets: BTreeMap<TopicPartition, i64>,
    /// Partitions without a record from the time on.
    pub empty: Vec<TopicPartition>,
}

/// Why a wish can't be granted.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// There is nothing that could be shifted.
    #[error("the group has committed no offset for {0}, so it can't be shifted; reset it to an offset first")]
    NeverCommitted(TopicPartition),
    /// The cluster did not answer, or refused.
    #[error(transparent)]
    Client(#[from] Error),
}

/// The offsets that a group would have.
pub async fn plan(
    admin: &Admin,
    group: &str,
    partitions: Vec<TopicPartition>,
    goal: &Goal,
) -> Result<Outcome, Refused> {
    let mut outcome = Outcome::default();
    match goal {
        Goal::Listed(spec) => outcome.offsets = listed(admin, partitions, *spec).await?.0,
        Goal::Timestamp(timestamp) => {
            let (found, empty) = listed(admin, partitions, OffsetSpec::Timestamp(*timestamp)).await?;
            outcome.offsets = found;
            outcome.offsets.extend(listed(admin, empty.clone(), OffsetSpec::Latest).await?.0);
            outcome.empty = empty;
        }
        Goal::Offset(offset) => {
            let wanted = partitions.into_iter().map(|partition| (partition, *offset)).collect();
            outcome.offsets = within(admin, wanted).await?;
        }
        Goal::Shift(by) => {
            let committed: BTreeMap<_, _> = admin.committed_offsets(group).await?.into_iter().collect();
            let mut wanted = BTreeMap::new();
            for partition in partitions {
                let Some(current) = committed.get(&partition) else {
                    return Err(Refused::NeverCommitted(partition));
                };
                wanted.insert(partition, current.offset.saturating_add(*by));
            }
            outcome.offsets = within(admin, wanted).await?;
        }
        Goal::Current => {
            let committed: BTreeMap<_, _> = admin.committed_offsets(group).await?.into_iter().collect();
            let (known, new): (Vec<_>, Vec<_>) =
                partitions.into_iter().partition(|partition| committed.contains_key(partition));
            outcome.offsets = listed(admin, new, OffsetSpec::Latest).await?.0;
            outcome.offsets.extend(known.into_iter().map(|partition| {
                let offset = committed[&partition].offset;
                (partition, offset)
            }));
        }
        Goal::Given(wanted) => outcome.offsets = within(admin, wanted.clone()).await?,
    }
    Ok(outcome)
}

/// The offsets that were found, and the partitions that have none.
async fn listed(
    admin: &Admin,
    partitions: Vec<TopicPartition>,
    spec: OffsetSpec,
) -> Result<(BTreeMap<TopicPartition, i64>, Vec<TopicPartition>), Error> {
    let (mut found, mut empty) = (BTreeMap::new(), Vec::new());
    let asked = partitions.into_iter().map(|partition| (partition, spec)).collect();
    for (partition, listed) in admin.list_offsets(asked).await {
        match listed?.offset {
            Some(offset) => drop(found.insert(partition, offset)),
            None => empty.push(partition),
        }
    }
    Ok((found, empty))
}

/// Moved to the beginning or the end where they lie outside.
async fn within(admin: &Admin, wanted: BTreeMap<TopicPartition, i64>) -> Result<BTreeMap<TopicPartition, i64>, Error> {
    let partitions: Vec<TopicPartition> = wanted.keys().cloned().collect();
    let (starts, _) = listed(admin, partitions.clone(), OffsetSpec::Earliest).await?;
    let (ends, _) = listed(admin, partitions, OffsetSpec::Latest).await?;
    let bound = |(partition, offset): (TopicPartition, i64)| {
        let start = starts.get(&partition).copied().unwrap_or(0);
        let end = ends.get(&partition).copied().unwrap_or(i64::MAX);
        (partition, offset.max(start).min(end))
    };
    Ok(wanted.into_iter().map(bound).collect())
}

/// `2026-12-01T10:15:30.000`, with a zone behind it or in the system's own: milliseconds since 1970.
///
/// # Errors
/// What is wrong with it.
pub fn datetime(text: &str) -> Result<i64, String> {
    let bad = || format!("`{text}` is no time such as 2026-12-01T10:15:30.000 or 2026-12-01T10:15:30Z");
    let (date, time) = text.split_once('T').ok_or_else(bad)?;
    let zone_at = time.find(['Z', '+', '-']).unwrap_or(time.len());
    let (time, zone) = time.split_at(zone_at);
    let civil: jiff::civil::DateTime = format!("{date}T{time}").parse().map_err(|_| bad())?;
    let zoned = match zone {
        "" => civil.to_zoned(jiff::tz::TimeZone::system()),
        "Z" => civil.to_zoned(jiff::tz::TimeZone::UTC),
        offset => civil.to_zoned(offset_zone(offset).ok_or_else(bad)?),
    };
    Ok(zoned.map_err(|_| bad())?.timestamp().as_millisecond())
}

/// `+02`, `+0230`, `-02:30`.
fn offset_zone(text: &str) -> Option<jiff::tz::TimeZone> {
    let (sign, digits) = (text.starts_with('-'), text[1..].replace(':', ""));
    let number = |range: std::ops::Range<usize>| digits.get(range).map_or(Some(0), |text| text.parse::<i32>().ok());
    if digits.len() != 2 && digits.len() != 4 {
        return None;
    }
    let seconds = number(0..2)? * 3600 + number(2..4)? * 60;
    let offset = jiff::tz::Offset::from_seconds(if sign { -seconds } else { seconds }).ok()?;
    Some(jiff::tz::TimeZone::fixed(offset))
}

/// So long ago, as `P1DT2H3M4.5S`: milliseconds since 1970.
///
/// # Errors
/// What is wrong with it.
pub fn ago(text: &str) -> Result<i64, String> {
    let duration = duration(text).ok_or_else(|| format!("`{text}` is no duration such as P1DT2H30M or PT15M"))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(i64::try_from(now.as_millis()).unwrap_or(i64::MAX).saturating_sub(duration))
}

/// Days, hours, minutes and seconds of ISO 8601, as milliseconds.
fn duration(text: &str) -> Option<i64> {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let text = text.strip_prefix(['P', 'p'])?;
    let (days, time) = text.split_once(['T', 't']).map_or((text, None), |(days, time)| (days, Some(time)));
    let mut total = units(days, &[('D', 86_400_000)])?;
    if let Some(time) = time {
        total = total.checked_add(units(time, &[('H', 3_600_000), ('M', 60_000), ('S', 1000)])?)?;
    }
    let said = !days.is_empty() || time.is_some_and(|time| !time.is_empty());
    said.then_some(sign * total)
}

/// Numbers, each with a unit behind it, the units in this order.
fn units(mut text: &str, units: &[(char, i64)]) -> Option<i64> {
    let mut total = 0i64;
    for (unit, millis) in units {
        let Some(at) = text.find(|c: char| c.eq_ignore_ascii_case(unit)) else { continue };
        let number: f64 = text[..at].parse().ok()?;
        if *unit != 'S' && number.fract() != 0.0 || !number.is_finite() {
            return None;
        }
        // Beyond any time that there is, where the product does not fit.
        total = total.checked_add((number * *millis as f64) as i64)?;
        text = &text[at + 1..];
    }
    text.is_empty().then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_zones() {
        let expected = 1_796_119_200_000;
        for text in ["2026-12-01T10:00:00.000Z", "2026-12-01T12:00:00+02", "2026-12-01T07:30:00.000-0230"] {
            assert_eq!(datetime(text), Ok(expected), "{text}");
        }
        assert_eq!(datetime("2026-12-01T12:00:00+02:00"), Ok(expected));
        for text in ["", "yesterday", "2026-12-01", "2026-13-01T00:00:00", "2026-12-01T12:00:00+2"] {
            assert!(datetime(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_those_of_iso_8601() {
        assert_eq!(duration("P1DT2H3M4.5S"), Some(((26 * 60 + 3) * 60 + 4) * 1000 + 500));
        assert_eq!(duration("PT15M"), Some(900_000));
        assert_eq!(duration("-PT1S"), Some(-1000));
        for text in ["", "P", "PT", "1D", "P1H", "PT1.5H", "PT1S1M", "PTxS", "PTNaNS"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
