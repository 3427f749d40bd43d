// kafkajs, with the codecs that it leaves to others. README.md in the folder above says what is written and read.
'use strict';

const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs');
const Cluster = require('kafkajs/src/cluster');
const socketFactory = require('kafkajs/src/network/socketFactory');
const lz4 = require('lz4js');
const xxh32 = require('lz4js/xxh32');
const snappy = require('snappyjs');
const zstd = require('@bokuweb/zstd-wasm');

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};
const MODES = { idempotent: { acks: -1, idempotent: true }, one: { acks: 1 }, zero: { acks: 0 } };
const RECORDS = 60;
const PARTITIONS = 3;
const GROUP = 'node-group';
const TOPIC = 'node-none-one';
const STEP = 5;

// The Java library's framing: a magic header, then blocks with their lengths in front. librdkafka and Go write raw blocks.
const XERIAL = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0]);

CompressionCodecs[CompressionTypes.Snappy] = () => ({
  async compress(encoder) {
    const block = Buffer.from(snappy.compress(encoder.buffer));
    const head = Buffer.concat([XERIAL, Buffer.from([0, 0, 0, 1, 0, 0, 0, 1]), Buffer.alloc(4)]);
    head.writeUInt32BE(block.length, 16);
    return Buffer.concat([head, block]);
  },
  async decompress(buffer) {
    if (!buffer.subarray(0, 8).equals(XERIAL)) return Buffer.from(snappy.uncompress(buffer));
    const blocks = [];
    for (let at = 16; at < buffer.length; ) {
      const length = buffer.readUInt32BE(at);
      blocks.push(Buffer.from(snappy.uncompress(buffer.subarray(at + 4, at + 4 + length))));
      at += 4 + length;
    }
    return Buffer.concat(blocks);
  },
});
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  // Kafka refuses frames that do not say that their blocks are independent. A frame of one block is.
  async compress(encoder) {
    const frame = Buffer.from(lz4.compress(encoder.buffer));
    frame[4] |= 0x20;
    frame[6] = (xxh32.hash(0, frame, 4, 2) >> 8) & 0xff;
    return frame;
  },
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});

function key(i) {
  if (i % 5 === 0) return null;
  return i % 5 === 1 ? Buffer.alloc(0) : Buffer.concat([Buffer.from(`key-${i}`), Buffer.from([i])]);
}

function value(i) {
  if (i % 7 === 0) return null;
  return i % 7 === 1 ? Buffer.alloc(0) : Buffer.from(Array.from({ length: ((37 * i) % 2000) + 1 }, (_, j) => (31 * i + 7 * j) & 0xff));
}

function headers(i, writer) {
  if (i % 4 === 1) return { h: Buffer.from(`v${i}`) };
  if (i % 4 === 2) return { dup: [writer === 'node' ? Buffer.alloc(0) : null, Buffer.alloc(0)] };
  return i % 4 === 3 ? { bin: Buffer.from([0, 255, i]) } : {};
}

function check(holds, what) {
  if (!holds) throw new Error(what);
}

function same(got, expected, what) {
  const list = (one) => [one].flat().map((b) => (b === null || b === undefined ? null : Buffer.from(b).toString('hex')));
  const [a, b] = [list(got), list(expected)];
  check(JSON.stringify(a) === JSON.stringify(b), `${what}: ${a} instead of ${b}`);
}

async function produce(kafka, base) {
  const admin = kafka.admin();
  await admin.connect();
  const names = Object.keys(CODECS).flatMap((codec) => Object.keys(MODES).map((mode) => `node-${codec}-${mode}`));
  await admin.createTopics({ topics: names.map((topic) => ({ topic, numPartitions: PARTITIONS, replicationFactor: 1 })) });
  await admin.disconnect();
  for (const [codec, compression] of Object.entries(CODECS)) {
    for (const [mode, { acks, idempotent }] of Object.entries(MODES)) {
      const producer = kafka.producer({ idempotent, createPartitioner: () => ({ message }) => message.partition });
      await producer.connect();
      const messages = Array.from({ length: RECORDS }, (_, i) => ({
        partition: i % PARTITIONS,
        timestamp: String(base + 1000 * i),
        key: key(i),
        value: value(i),
        headers: headers(i, 'node'),
      }));
      await producer.send({ topic: `node-${codec}-${mode}`, acks, compression, messages });
      await producer.disconnect();
    }
  }
  console.log('node: produced');
}

// kafkajs has no consumer without a group. Its own fetch call of the cluster behind it reads by assignment.
async function verify(kafka, base, writers) {
  const cluster = await reader(kafka);
  let topics = 0;
  for (const writer of writers) {
    for (const codec of Object.keys(CODECS)) {
      for (const mode of Object.keys(MODES)) {
        await read(cluster, `${writer}-${codec}-${mode}`, base);
        topics += 1;
      }
    }
  }
  await cluster.disconnect();
  console.log(`node: verified ${topics} topics`);
}

async function reader(kafka) {
  const cluster = new Cluster({
    socketFactory: socketFactory(),
    logger: kafka.logger(),
    brokers: kafka.bootstrap,
    clientId: 'compat',
    connectionTimeout: 5000,
    metadataMaxAge: 300000,
    isolationLevel: 0,
  });
  await cluster.connect();
  return cluster;
}

async function read(cluster, topic, base) {
  await cluster.addTargetTopic(topic);
  const seen = new Set();
  const until = Date.now() + 20000;
  const next = Array.from({ length: PARTITIONS }, () => 0);
  while (seen.size < RECORDS && Date.now() < until) {
    const metadata = cluster.findTopicPartitionMetadata(topic);
    const broker = await cluster.findBroker({ nodeId: String(metadata[0].leader) });
    const partitions = next.map((fetchOffset, partition) => ({ partition, fetchOffset, maxBytes: 1 << 20 }));
    const reply = await broker.fetch({ maxWaitTime: 200, minBytes: 1, maxBytes: 1 << 20, topics: [{ topic, partitions }] });
    for (const { partition, errorCode, messages } of reply.responses[0].partitions) {
      check(errorCode === 0, `${topic}-${partition}: error ${errorCode}`);
      for (const message of messages) {
        compare(topic, partition, message, base);
        seen.add(`${partition} ${message.offset}`);
        next[partition] = Number(message.offset) + 1;
      }
    }
  }
  check(seen.size === RECORDS, `${topic} has ${seen.size} records`);
}

function compare(topic, partition, message, base) {
  const i = Number(message.offset) * PARTITIONS + partition;
  const what = `${topic} record ${i}`;
  check(Number(message.timestamp) === base + 1000 * i, `${what} timestamp ${message.timestamp}`);
  same(message.key, key(i), `${what} key`);
  same(message.value, value(i), `${what} value`);
  const expected = headers(i, topic.split('-')[0]);
  check(Object.keys(message.headers).join() === Object.keys(expected).join(), `${what} headers`);
  for (const [name, one] of Object.entries(expected)) same(message.headers[name], one, `${what} header ${name}`);
}

// A consumer in the group of this program: what it owns, and the first offset that it saw of each partition.
async function member(kafka) {
  const consumer = kafka.consumer({ groupId: GROUP, sessionTimeout: 6000, heartbeatInterval: 300, maxWaitTimeInMs: 50 });
  const self = { consumer, owned: [], first: new Map() };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => (self.owned = payload.memberAssignment[TOPIC] || []));
  await consumer.connect();
  await consumer.subscribe({ topics: [TOPIC], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      if (!self.first.has(partition)) self.first.set(partition, Number(message.offset));
    },
  });
  self.commit = (offset) =>
    consumer.commitOffsets(self.owned.map((partition) => ({ topic: TOPIC, partition, offset: String(offset) })));
  return self;
}

async function until(holds, what) {
  for (const end = Date.now() + 40000; !holds(); ) {
    check(Date.now() < end, what);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function hold(kafka) {
  const held = await member(kafka);
  await until(() => held.owned.length === PARTITIONS, 'no assignment');
  console.log('holding');
}

async function group(kafka, turn) {
  const a = await member(kafka);
  await until(() => a.first.size === PARTITIONS, 'the first member does not read all');
  check([...a.first.values()].every((offset) => offset === STEP * turn), `begins at ${[...a.first]}`);
  const b = await member(kafka);
  const shared = () => a.owned.length > 0 && b.owned.length > 0 && new Set([...a.owned, ...b.owned]).size === PARTITIONS;
  await until(() => shared() && a.owned.length + b.owned.length === PARTITIONS, 'the partitions are not shared');
  for (const one of [a, b]) await one.commit(STEP * (turn + 1));
  await b.consumer.disconnect();
  await until(() => a.owned.length === PARTITIONS, 'the partitions of the other one do not come back');
  await a.consumer.disconnect();
  const admin = kafka.admin();
  await admin.connect();
  const [{ partitions }] = await admin.fetchOffsets({ groupId: GROUP, topics: [TOPIC] });
  check(partitions.length === PARTITIONS && partitions.every((p) => Number(p.offset) === STEP * (turn + 1)), 'committed');
  await admin.disconnect();
  console.log(`node: turn ${turn} of the classic group`);
}

async function main() {
  const [phase, bootstrap, base, writers] = process.argv.slice(2);
  await zstd.init();
  const kafka = new Kafka({ clientId: 'compat', brokers: [bootstrap], logLevel: logLevel.WARN });
  kafka.bootstrap = [bootstrap];
  if (phase === 'produce') await produce(kafka, Number(base));
  else if (phase === 'hold') await hold(kafka);
  else if (phase === 'group') await group(kafka, Number(writers));
  else await verify(kafka, Number(base), writers.split(','));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
