"""Transactions of librdkafka: one producer writes, another one copies what consumers of committed records see.

README.md in the folder above says what must come of it.
"""

import sys
import threading

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

SOURCE, TARGET = "python-transactions", "python-transactions-copy"
PARTITIONS, TRANSACTIONS, RECORDS = 3, 100, 10
ABORTED = 5
PATIENCE = 120
# With re-bootstrapping, librdkafka 2.x may never send the offsets of a transaction when its only broker is gone for a moment.
STAYS = {"metadata.recovery.strategy": "none"}


def is_aborted(transaction):
    return transaction % ABORTED == ABORTED - 1


EXPECTED = (TRANSACTIONS - TRANSACTIONS // ABORTED) * RECORDS


def patiently(step):
    """Repeats what librdkafka says can be repeated."""
    while True:
        try:
            return step()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def producer(bootstrap, name):
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, **STAYS})
    patiently(lambda: made.init_transactions(PATIENCE))
    return made


def consumer(bootstrap, group):
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **STAYS,
        }
    )


def finish(made, commits):
    if commits:
        patiently(lambda: made.commit_transaction(PATIENCE))
    else:
        made.flush()
        patiently(lambda: made.abort_transaction(PATIENCE))


def produce(bootstrap):
    made = producer(bootstrap, "python-source")
    for transaction in range(TRANSACTIONS):
        if transaction == TRANSACTIONS // 2:
            print("halfway", flush=True)
        made.begin_transaction()
        for record in range(RECORDS):
            number = transaction * RECORDS + record
            made.produce(SOURCE, str(number), str(number), partition=number % PARTITIONS)
        finish(made, not is_aborted(transaction))


def copy(bootstrap):
    made, reader = producer(bootstrap, "python-copier"), consumer(bootstrap, "python-copiers")
    assigned = [TopicPartition(SOURCE, at, 0) for at in range(PARTITIONS)]
    reader.assign(assigned)
    copied, turn = 0, 0
    while copied < EXPECTED:
        records = [record for record in reader.consume(50, 0.2) if not record.error()]
        if not records:
            continue
        turn += 1
        made.begin_transaction()
        for record in records:
            made.produce(TARGET, record.key(), record.value(), partition=record.partition())
        positions = reader.position(assigned)
        offsets = [position for position in positions if position.offset >= 0]
        patiently(lambda: made.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), PATIENCE))
        commits = turn % 3 != 0
        finish(made, commits)
        if commits:
            copied += len(records)
        else:
            for back in reader.committed(assigned, PATIENCE):
                reader.seek(TopicPartition(SOURCE, back.partition, max(back.offset, 0)))
    reader.close()


def check(bootstrap, topic):
    reader = consumer(bootstrap, "python-check")
    reader.assign([TopicPartition(topic, at, 0) for at in range(PARTITIONS)])
    seen, ended = {}, set()
    while len(ended) < PARTITIONS:
        record = reader.poll(1)
        if record is None:
            continue
        if record.error():
            ended.add(record.partition())
            continue
        seen[int(record.value())] = seen.get(int(record.value()), 0) + 1
    reader.close()
    for number in range(TRANSACTIONS * RECORDS):
        right = 0 if is_aborted(number // RECORDS) else 1
        assert seen.get(number, 0) == right, f"{topic}: record {number} is seen {seen.get(number, 0)} times"
    assert len(seen) == EXPECTED, f"{topic}: {len(seen)} records"


def main():
    bootstrap = sys.argv[1]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (SOURCE, TARGET)]).values():
        made.result()
    failures = []

    def copier():
        try:
            copy(bootstrap)
        except BaseException as error:  # It is raised again below.
            failures.append(error)

    thread = threading.Thread(target=copier)
    thread.start()
    produce(bootstrap)
    thread.join()
    if failures:
        raise failures[0]
    for topic in (SOURCE, TARGET):
        check(bootstrap, topic)
    print(f"python transactions: {EXPECTED} records once in each topic")


main()
