"""librdkafka by confluent-kafka. README.md in the folder above says what is written and read."""

import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
MODES = {
    "idempotent": {"acks": "all", "enable.idempotence": True},
    "one": {"acks": "1"},
    "zero": {"acks": "0"},
}
RECORDS = 60
PARTITIONS = 3
GROUP = "python-group"
TOPIC = "python-none-one"
STEP = 5


def key(i):
    return [None, b""][i % 5] if i % 5 < 2 else b"key-%d" % i + bytes([i])


def value(i):
    if i % 7 < 2:
        return [None, b""][i % 7]
    return bytes((31 * i + 7 * j) & 0xFF for j in range(37 * i % 2000 + 1))


def headers(i, topic):
    missing = b"" if topic.startswith("node-") else None
    return [[], [("h", b"v%d" % i)], [("dup", missing), ("dup", b"")], [("bin", bytes([0, 255, i]))]][i % 4]


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def produce(bootstrap, base):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(f"python-{codec}-{mode}", PARTITIONS, 1) for codec in CODECS for mode in MODES]
    for future in admin.create_topics(topics).values():
        future.result()
    for codec in CODECS:
        for mode, settings in MODES.items():
            write(bootstrap, base, codec, f"python-{codec}-{mode}", settings)
    print("python: produced")


def write(bootstrap, base, codec, topic, settings):
    failures = []
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5, **settings})
    for i in range(RECORDS):
        producer.produce(
            topic,
            value(i),
            key(i),
            partition=i % PARTITIONS,
            timestamp=base + 1000 * i,
            headers=headers(i, topic),
            on_delivery=lambda error, message: failures.append(error) if error else None,
        )
    check(producer.flush(20) == 0, f"{topic} was not flushed")
    check(not failures, f"{topic}: {failures[:1]}")


def verify(bootstrap, base, writers):
    topics = [f"{writer}-{codec}-{mode}" for writer in writers for codec in CODECS for mode in MODES]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for topic in topics for p in range(PARTITIONS)])
    seen = 0
    until = time.monotonic() + 60
    while seen < RECORDS * len(topics) and time.monotonic() < until:
        for message in consumer.consume(500, 0.5):
            check(not message.error(), message.error())
            same(message, base)
            seen += 1
    check(seen == RECORDS * len(topics), f"{seen} records in {len(topics)} topics")
    for topic in topics:
        for partition in range(PARTITIONS):
            marks = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)
            check(marks == (0, RECORDS // PARTITIONS), f"{topic}-{partition} spans {marks}")
    consumer.close()
    print(f"python: verified {len(topics)} topics")


class Member:
    """A consumer in the group of this program, and the first offset that it saw of each partition."""

    def __init__(self, bootstrap, protocol="classic"):
        own = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300} if protocol == "classic" else {}
        self.consumer = Consumer({
            "bootstrap.servers": bootstrap,
            "group.id": f"{GROUP}-{protocol}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            **own,
        })
        self.first = {}
        self.consumer.subscribe([TOPIC])

    def poll(self):
        for message in self.consumer.consume(100, 0.05):
            check(not message.error(), message.error())
            self.first.setdefault(message.partition(), message.offset())

    def owned(self):
        return {p.partition for p in self.consumer.assignment()}

    def commit(self, offset):
        mine = [TopicPartition(TOPIC, p, offset) for p in self.owned()]
        self.consumer.commit(offsets=mine, asynchronous=False)


def poll_until(members, holds, what):
    until = time.monotonic() + 40
    while not holds():
        check(time.monotonic() < until, what)
        for member in members:
            member.poll()


def hold(bootstrap):
    member = Member(bootstrap)
    poll_until([member], lambda: len(member.owned()) == PARTITIONS, "no assignment")
    print("holding", flush=True)
    while True:
        member.poll()


def group(bootstrap, turn, protocol):
    a = Member(bootstrap, protocol)
    poll_until([a], lambda: len(a.first) == PARTITIONS, "the first member does not read all")
    check(set(a.first.values()) == {STEP * turn}, f"begins at {a.first}")
    b = Member(bootstrap, protocol)
    shared = lambda: a.owned() and b.owned() and a.owned() | b.owned() == set(range(PARTITIONS))
    poll_until([a, b], lambda: shared() and not a.owned() & b.owned(), "the partitions are not shared")
    for member in (a, b):
        member.commit(STEP * (turn + 1))
    b.consumer.close()
    poll_until([a], lambda: len(a.owned()) == PARTITIONS, "the partitions of the other one do not come back")
    committed = a.consumer.committed([TopicPartition(TOPIC, p) for p in range(PARTITIONS)], 10)
    check({p.offset for p in committed} == {STEP * (turn + 1)}, f"committed {committed}")
    a.consumer.close()
    print(f"python: turn {turn} of the {protocol} group")


def same(message, base):
    i = message.offset() * PARTITIONS + message.partition()
    what = f"{message.topic()} record {i}"
    check(message.timestamp() == (1, base + 1000 * i), f"{what} timestamp {message.timestamp()}")
    check(message.key() == key(i), f"{what} key {message.key()}")
    check(message.value() == value(i), f"{what} value")
    check((message.headers() or []) == headers(i, message.topic()), f"{what} headers {message.headers()}")


if __name__ == "__main__":
    phase, bootstrap, base = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if phase == "produce":
        produce(bootstrap, base)
    elif phase == "hold":
        hold(bootstrap)
    elif phase == "group":
        group(bootstrap, int(sys.argv[4]), sys.argv[5])
    else:
        verify(bootstrap, base, sys.argv[4].split(","))
