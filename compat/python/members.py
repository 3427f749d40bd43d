"""Members of an aiokafka group that join, leave, are killed and come back. README.md in the folder above says what must come of it."""

import asyncio
import signal
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

TOPIC, GROUP, PARTITIONS = "aiokafka-members", "aiokafka-members", 6
# Records of each part; the members change between them.
PART = 600


async def produce(bootstrap, part):
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
        sent = [await producer.send(TOPIC, b"%d" % n, partition=n % PARTITIONS) for n in range(part * PART, (part + 1) * PART)]
        await asyncio.gather(*sent)


async def create(bootstrap):
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
    await admin.close()


def consumer(bootstrap):
    return AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=3000,
        heartbeat_interval_ms=300,
    )


async def member(bootstrap):
    """Prints what it reads, and what it owns; stays until it is told to go."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    owned = None
    async with consumer(bootstrap) as reader:
        while not told.is_set():
            batch = await reader.getmany(timeout_ms=100, max_records=20)
            for records in batch.values():
                print("read", *(record.value.decode() for record in records), flush=True)
            try:
                if batch:
                    await reader.commit({partition: records[-1].offset + 1 for partition, records in batch.items()})
            except KafkaError as error:  # The partitions are somebody else's by now, who reads these records again.
                print(f"not committed: {error!r}", file=sys.stderr, flush=True)
            now = sorted(partition.partition for partition in reader.assignment())
            if now != owned:
                owned = now
                print("owns", *owned, flush=True)


async def check(bootstrap, parts):
    """Waits until everything is committed."""
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False) as reader:
        partitions = [TopicPartition(TOPIC, at) for at in range(PARTITIONS)]
        ends = await reader.end_offsets(partitions)
        assert set(ends.values()) == {parts * PART // PARTITIONS}, ends
        committed = {}
        while committed != ends:
            await asyncio.sleep(0.1)
            committed = {partition: await reader.committed(partition) for partition in partitions}


def main():
    command, bootstrap = sys.argv[1:3]
    if command == "create":
        asyncio.run(create(bootstrap))
    elif command == "produce":
        asyncio.run(produce(bootstrap, int(sys.argv[3])))
    elif command == "member":
        asyncio.run(member(bootstrap))
    else:
        asyncio.run(check(bootstrap, int(sys.argv[3])))


main()
