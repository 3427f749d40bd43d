//! A blocking connection for what happens before and after a run: versions, topics, producer ids.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::messages::{self, Coordinated, Resource, TOPIC_ID_VERSION, Topic, api};
use crate::producer::Identity;
use crate::wire::Reader;

/// How long a server may take over one administrative step.
const PATIENCE: Duration = Duration::from_secs(60);

/// The Produce and Fetch versions of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Versions {
    /// Of Produce: 9 or 13.
    pub produce: i16,
    /// Of Fetch: 12 or 13.
    pub fetch: i16,
}

/// A blocking connection.
pub(crate) struct Admin {
    stream: TcpStream,
    correlation: i32,
}

impl Admin {
    /// Connects to a server.
    pub(crate) fn connect(addr: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(addr).with_context(|| format!("connecting to {addr}"))?;
        // While nobody listens at a port of the ephemeral range, a connection may reach itself.
        ensure!(stream.local_addr()? != addr, "nobody listens at {addr}");
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, correlation: 0 })
    }

    /// Sends one frame and waits for its reply.
    fn call(&mut self, mut frame: Vec<u8>) -> Result<Vec<u8>> {
        self.correlation += 1;
        messages::set_correlation(&mut frame, self.correlation);
        self.stream.write_all(&frame)?;
        let mut len = [0; 4];
        self.stream.read_exact(&mut len)?;
        let mut reply = vec![0; u32::from_be_bytes(len) as usize];
        self.stream.read_exact(&mut reply)?;
        Ok(reply)
    }

    fn open<'a>(&self, reply: &'a [u8]) -> Result<Reader<'a>> {
        messages::open_reply(reply, self.correlation)
    }

    /// Asks which API versions the server speaks; picks topic ids where it can, unless `names`.
    pub(crate) fn versions(&mut self, names: bool) -> Result<Versions> {
        let reply = self.call(messages::api_versions())?;
        let newest = messages::read_api_versions(&reply)?;
        let knows_ids = |key| !names && newest.iter().any(|&(k, max)| k == key && max >= TOPIC_ID_VERSION);
        Ok(Versions {
            produce: if knows_ids(api::PRODUCE) { TOPIC_ID_VERSION } else { 9 },
            fetch: if knows_ids(api::FETCH) { TOPIC_ID_VERSION } else { 12 },
        })
    }

    /// Creates a topic and waits until each partition has a leader; an existing one will do.
    pub(crate) fn create_topic(&mut self, name: &str, partitions: u32, configs: &[(&str, &str)]) -> Result<Topic> {
        const TOPIC_ALREADY_EXISTS: i16 = 36;
        let reply = self.call(messages::create_topic(name, partitions, configs))?;
        match messages::read_create_topic(self.open(&reply)?)? {
            0 | TOPIC_ALREADY_EXISTS => self.find_topic(name, Some(partitions)),
            code => bail!("creating topic {name}: the server answers error code {code}"),
        }
    }

    /// Looks a topic up, waiting until each of its partitions has a leader.
    pub(crate) fn find_topic(&mut self, name: &str, partitions: Option<u32>) -> Result<Topic> {
        let until = Instant::now() + PATIENCE;
        loop {
            let reply = self.call(messages::metadata(&[name]))?;
            let topics = messages::read_metadata(self.open(&reply)?)?;
            if let Some((topic, led)) = topics.into_iter().next()
                && led > 0
                && led == partitions.unwrap_or(topic.partitions)
            {
                return Ok(topic);
            }
            if Instant::now() > until {
                bail!("topic {name} is not there, or some of its partitions have no leader");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Deletes a topic.
    pub(crate) fn delete_topic(&mut self, name: &str) -> Result<()> {
        let reply = self.call(messages::delete_topic(name))?;
        let mut reader = self.open(&reply)?;
        reader.i32()?; // throttle, ms
        reader.compact_len()?;
        reader.compact_str()?;
        reader.uuid()?;
        messages::check_code(reader.i16()?, "DeleteTopics")
    }

    /// Waits until the server has a coordinator for a group.
    pub(crate) fn find_coordinator(&mut self, group: &str) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let reply = self.call(messages::find_coordinator(Coordinated::Group(group)))?;
            let code = messages::read_find_coordinator(self.open(&reply)?)?;
            if code == 0 {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("looking for the coordinator of {group}: the server answers error code {code}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Commits offsets of a group, waiting while the server loads its coordinator; gives the request that did.
    pub(crate) fn commit(&mut self, group: &str, topic: &Topic) -> Result<Vec<u8>> {
        let until = Instant::now() + PATIENCE;
        loop {
            let reply = self.call(messages::find_coordinator(Coordinated::Group(group)))?;
            let mut code = messages::read_find_coordinator(self.open(&reply)?)?;
            let commit = messages::offset_commit(group, topic);
            if code == 0 {
                let reply = self.call(commit.clone())?;
                code = messages::read_offset_commit(self.open(&reply)?)?;
            }
            if code == 0 {
                return Ok(commit);
            }
            if Instant::now() > until {
                bail!("committing offsets of {group}: the server answers error code {code}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sets one value of a configuration.
    pub(crate) fn alter_config(&mut self, resource: Resource<'_>, key: &str, value: &str) -> Result<()> {
        let reply = self.call(messages::alter_config(resource, key, value))?;
        messages::check_code(messages::read_alter_config(self.open(&reply)?)?, "IncrementalAlterConfigs")
    }

    /// Produces one batch to the first partition.
    pub(crate) fn produce(&mut self, version: i16, topic: &Topic, batch: &[u8]) -> Result<()> {
        let reply = self.call(messages::produce(version, topic, -1, None, &[(0, batch)]).bytes)?;
        messages::read_produce(self.open(&reply)?, version, |_, _| Ok(()))
    }

    /// Gets a producer's id and epoch, waiting while the server loads its coordinator. With an id it is a transactional one.
    pub(crate) fn producer_id(&mut self, transactional_id: Option<&str>) -> Result<Identity> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(id) = transactional_id {
                // The first one who asks has the coordinator's topic made.
                self.call(messages::find_coordinator(Coordinated::Transactions(id)))?;
            }
            let reply = self.call(messages::init_producer_id(transactional_id))?;
            match messages::read_init_producer_id(self.open(&reply)?)? {
                (0, id, epoch) => return Ok(Identity { id, epoch }),
                (code, ..) if Instant::now() > until => bail!("InitProducerId: the server answers error code {code}"),
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Waits until every partition answers a Fetch: Metadata may name a leader before it leads.
    pub(crate) fn wait_until_led(&mut self, version: i16, topic: &Topic) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while let Err(e) = self.end_offsets(version, topic) {
            if Instant::now() > until {
                return Err(e);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// By partition: the offset after the last record.
    pub(crate) fn end_offsets(&mut self, version: i16, topic: &Topic) -> Result<Vec<i64>> {
        let limits = messages::FetchLimits { max_wait_ms: 0, min_bytes: 0, max_bytes: 1, partition_bytes: 1 };
        let no_session = messages::Session { id: 0, epoch: -1 };
        let from_start = (0..topic.partitions as usize).map(|partition| (partition as u32, 0));
        let reply = self.call(messages::fetch(version, topic, &limits, no_session, from_start))?;
        let mut ends = vec![-1; topic.partitions as usize];
        messages::read_fetch(self.open(&reply)?, version, |part| {
            messages::check_code(part.code, "Fetch of a partition")?;
            *ends.get_mut(part.partition as usize).context("a partition not asked for")? = part.high_watermark;
            Ok(())
        })?;
        if ends.contains(&-1) {
            bail!("a Fetch reply without some of the partitions asked for");
        }
        Ok(ends)
    }
}

/// Whether the server at `addr` answers an ApiVersions request right now.
pub(crate) fn is_up(addr: SocketAddr) -> bool {
    Admin::connect(addr).and_then(|mut admin| admin.versions(false)).is_ok()
}
