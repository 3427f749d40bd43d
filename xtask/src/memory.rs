//! `cargo xtask memory`: what a connection, a partition, a session, a group member and a byte in flight cost Milena in memory. Each
//! figure is the difference of two loads that differ in their number only, each on a server that has just started.

use std::path::Path;

use anyhow::{Context, Result};
use milena_testkit::cache;
use milena_testkit::server::{Kind, Options};

use crate::bench::{build, figures, load};

/// Something that a server holds many of.
struct Thing {
    name: &'static str,
    /// Few and many of them.
    counts: [u64; 2],
    /// kbench's arguments for so many.
    load: fn(u64) -> String,
}

const THINGS: &[Thing] = &[
    Thing {
        name: "a silent connection",
        counts: [100, 5000],
        load: |count| format!("mix --connections 1 --records 1 --record-bytes 100 --rate 200 --silent {count}"),
    },
    Thing {
        name: "a consumer that waits in a fetch session of 10 partitions",
        counts: [100, 1000],
        load: |count| {
            format!("mix --connections 1 --records 1 --record-bytes 100 --rate 200 --idle {count} --idle-partitions 10")
        },
    },
    Thing {
        name: "a partition",
        counts: [100, 9900],
        load: |count| {
            format!(
                "produce --partitions {count} --active 100 --connections 4 --spread 25 --record-bytes 100 --records 1 --warmup 12"
            )
        },
    },
    Thing {
        name: "a group member with its connection",
        counts: [500, 5000],
        load: |count| format!("groups --groups {} --heartbeat-ms 1000 --warmup 12", count / 10),
    },
    Thing {
        name: "a KiB of records in flight",
        counts: [4 * 4 * 900, 4 * 64 * 900],
        load: |count| {
            format!("produce --connections {} --depth 4 --record-bytes 102400 --records 9 --warmup 2", count / 900 / 4)
        },
    },
];

/// Builds, measures everything and prints the table.
pub(crate) fn run() -> Result<()> {
    let repository = cache::repository();
    let (kbench, milena) = (build(&repository, "kbench")?, build(&repository, "milena")?);
    println!("| what | few | MiB | many | MiB | bytes each |\n|---|--:|--:|--:|--:|--:|");
    for thing in THINGS {
        let [few, many] = thing.counts;
        let (with_few, with_many) = (resident(thing, few, &kbench, &milena)?, resident(thing, many, &kbench, &milena)?);
        let each = (with_many - with_few) * 1_048_576.0 / (many - few) as f64;
        println!("| {} | {few} | {with_few:.1} | {many} | {with_many:.1} | {each:.0} |", thing.name);
    }
    Ok(())
}

/// The most that was resident, in MiB, in a server that had just started and got this load.
fn resident(thing: &Thing, count: u64, kbench: &Path, milena: &Path) -> Result<f64> {
    let options = Options::new(Kind::Milena(milena.to_owned())).production(0, &[]);
    let server = options.start()?;
    let arguments = (thing.load)(count);
    let run = figures(load(kbench, &arguments, &server)?).with_context(|| arguments.clone())?;
    run["peak_rss_mib"].as_f64().with_context(|| format!("kbench {arguments} gives no figure: {run}"))
}
