//! From a consumer to standard output: what was not printed does not count as read, so that whoever goes on for the group
//! gets it.

use std::io::{self, Write, stdout};

use milena_client::{Consumer, ConsumerRecord, ConsumerRecords, Error, SeekTo};

/// What became of some records.
#[derive(Debug)]
pub enum Printed {
    /// So many were printed.
    Records(u64),
    /// None of them counts: standard output takes no more, though some may have been written.
    Nothing(io::Error),
}

/// Text on its way to standard output.
#[derive(Debug, Default)]
pub struct Printing {
    text: Vec<u8>,
}

impl Printing {
    /// Prints records, `most` of them at the most, as `write` writes them. When that fails, the records before it are printed, and
    /// the consumer goes on behind it.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn print<E: From<Error>>(
        &mut self,
        consumer: &mut Consumer,
        records: &ConsumerRecords,
        most: u64,
        mut write: impl FnMut(&ConsumerRecord<'_>, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Printed, E> {
        self.text.clear();
        let (mut count, mut next, mut failed) = (0, None, None);
        for record in records.iter() {
            if count == most {
                next = Some(record.offset);
                break;
            }
            count += 1;
            if let Err(error) = write(&record, &mut self.text) {
                (next, failed) = (Some(record.offset + 1), Some(error));
                break;
            }
        }
        let mut out = stdout().lock();
        let unwritten = out.write_all(&self.text).and_then(|()| out.flush()).err();
        if unwritten.is_some() {
            next = records.iter().next().map(|first| first.offset);
        }
        if let Some(next) = next {
            consumer.seek(records.topic_partition(), SeekTo::Offset(next))?;
        }
        match (failed, unwritten) {
            (Some(error), _) => Err(error),
            (None, Some(error)) => Ok(Printed::Nothing(error)),
            (None, None) => Ok(Printed::Records(count)),
        }
    }
}
