//! Records inside a batch that are wrong, or odd. It is the second of three, unless the case says otherwise.

use crate::batch::{Batch, Record, varint};

/// The batch of a case, or `None` for a case of another file.
pub(super) fn run(what: &str, good: &Batch) -> Option<Batch> {
    let mut b = good.clone();
    let deltas = |b: Batch, deltas: [i64; 3], last: Option<i32>| {
        let mut b = b;
        for (record, delta) in b.records.iter_mut().zip(deltas) {
            record.offset_delta = delta;
        }
        Batch { last_offset_delta: last, ..b }
    };
    match what {
        "deltas-from1" => return Some(deltas(b, [1, 2, 3], Some(2))),
        "deltas-gap" => return Some(deltas(b, [0, 2, 3], Some(3))),
        "deltas-gap-lod2" => return Some(deltas(b, [0, 2, 3], Some(2))),
        "deltas-dup" => return Some(deltas(b, [0, 0, 2], Some(2))),
        "deltas-reverse" => return Some(deltas(b, [2, 1, 0], Some(2))),
        "deltas-neg" => return Some(deltas(b, [-1, 0, 1], Some(2))),
        "deltas-all-zero" => return Some(deltas(b, [0, 0, 0], Some(2))),
        "ts-delta-overflow" => b.records[1].timestamp_delta = i64::MAX,
        "ts-delta-min" => b.records[1].timestamp_delta = i64::MIN,
        "rec-attr" => b.records[1].attributes = 0x7f,
        "hdr-key-empty" => b.records[1].headers = vec![(Vec::new(), Some(b"v".to_vec()))],
        "hdr-key-badutf8" => b.records[1].headers = vec![(vec![0xc3, 0x28], Some(vec![1]))],
        "payload-empty" => b.plain = Some(Vec::new()),
        "payload-ff" => b.plain = Some(vec![0xff; 40]),
        "payload-random" => b.plain = Some((0..40u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()),
        "payload-extra" => b.plain = Some([good.plain(), vec![0; 8]].concat()),
        "payload-cut" => b.plain = Some(good.plain()[..good.plain().len() - 3].to_vec()),
        _ => b.plain = Some(replaced(what, good)?),
    }
    if what.starts_with("ts-delta") {
        b.max_timestamp = Some(good.base_timestamp + 2);
    }
    Some(b)
}

/// The plain records with another second one (or third one).
fn replaced(what: &str, good: &Batch) -> Option<Vec<u8>> {
    let last = what.starts_with("last-rec");
    let mut out = Vec::new();
    for (at, record) in good.records.iter().enumerate() {
        match at {
            1 if !last => out.extend(odd(what, record)?),
            2 if last => out.extend(odd(what, record)?),
            _ => {
                let body = record.body();
                varint(body.len() as i64, &mut out);
                out.extend(body);
            }
        }
    }
    Some(out)
}

/// A record with its length in front.
fn odd(what: &str, record: &Record) -> Option<Vec<u8>> {
    let body = record.body();
    let length = body.len() as i64;
    let with = |length: i64, body: &[u8]| {
        let mut out = Vec::new();
        varint(length, &mut out);
        out.extend_from_slice(body);
        out
    };
    Some(match what {
        "rec-len-short" => with(length - 1, &body),
        "rec-len-long" => with(length + 3, &body),
        "rec-len-zero" => with(0, &body),
        "rec-len-neg" => with(-1, &body),
        "rec-len-max" => with(i64::from(i32::MAX), &body),
        "rec-tail" | "last-rec-tail" => with(length + 4, &[&body[..], &[0; 4]].concat()),
        // The zigzag form of the length, with bytes that add nothing.
        "varint-overlong" => [&[(length << 1) as u8 | 0x80, 0x80, 0x80, 0][..], &body].concat(),
        "varint-6" => [&[(length << 1) as u8 | 0x80, 0x80, 0x80, 0x80, 0x80, 0][..], &body].concat(),
        _ => {
            let body = fields(what, record)?;
            with(body.len() as i64, &body)
        }
    })
}

/// A record's body with one field's length or count made wrong.
fn fields(what: &str, record: &Record) -> Option<Vec<u8>> {
    let (key, value) = (record.key.as_deref()?, record.value.as_deref()?);
    let bytes = |length: i64, content: &[u8], out: &mut Vec<u8>| {
        varint(length, out);
        out.extend_from_slice(content);
    };
    let mut out = vec![record.attributes];
    varint(record.timestamp_delta, &mut out);
    varint(record.offset_delta, &mut out);
    match what {
        "key-len-big" => bytes(1000, key, &mut out),
        "key-len-neg2" => bytes(-2, &[], &mut out),
        _ => bytes(key.len() as i64, key, &mut out),
    }
    match what {
        "val-len-big" => bytes(1000, value, &mut out),
        "val-len-max" => bytes(i64::from(i32::MAX), value, &mut out),
        "val-len-neg2" => bytes(-2, &[], &mut out),
        _ => bytes(value.len() as i64, value, &mut out),
    }
    match what {
        "hdr-count-neg" => varint(-1, &mut out),
        "hdr-count-over" => varint(1, &mut out),
        "hdr-count-huge" => varint(i64::from(i32::MAX), &mut out),
        "hdr-count-beyond" => varint(1000, &mut out),
        "hdr-count-under" => {
            varint(0, &mut out);
            bytes(1, b"h", &mut out);
            bytes(1, b"v", &mut out);
        }
        "hdr-key-null" => {
            varint(1, &mut out);
            bytes(-1, &[], &mut out);
            bytes(1, b"v", &mut out);
        }
        "hdr-key-len-big" => {
            varint(1, &mut out);
            bytes(1000, b"h", &mut out);
            bytes(1, b"v", &mut out);
        }
        name if name.starts_with("key-len") || name.starts_with("val-len") => varint(0, &mut out),
        _ => return None,
    }
    Some(out)
}
