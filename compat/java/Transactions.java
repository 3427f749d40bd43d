// Transactions of the Java client: one producer writes, another one copies what consumers of committed records see. README.md
// in the folder above says what must come of it.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.IntegerSerializer;

public class Transactions {
    static final String SOURCE = "java-transactions", TARGET = "java-transactions-copy";
    static final int PARTITIONS = 3, TRANSACTIONS = 200, RECORDS = 10;
    /** Every so many-th transaction is aborted. */
    static final int ABORTED = 5;

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(topic(SOURCE), topic(TARGET))).all().get();
        }
        Throwable[] failure = new Throwable[1];
        Thread copier = new Thread(() -> {
            try {
                copy(bootstrap);
            } catch (Throwable thrown) {
                failure[0] = thrown;
            }
        });
        copier.start();
        produce(bootstrap);
        copier.join();
        if (failure[0] != null) throw new IllegalStateException("the copier has failed", failure[0]);
        fenced(bootstrap);
        for (String name : List.of(SOURCE, TARGET)) check(bootstrap, name);
        System.out.println("java transactions: " + expected() + " records once in each topic");
        System.exit(0);
    }

    static NewTopic topic(String name) {
        return new NewTopic(name, PARTITIONS, (short) 1);
    }

    static int expected() {
        return (TRANSACTIONS - TRANSACTIONS / ABORTED) * RECORDS;
    }

    static boolean isAborted(int transaction) {
        return transaction % ABORTED == ABORTED - 1;
    }

    static KafkaProducer<Integer, Integer> producer(String bootstrap, String id) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "transactional.id", id));
        config.put("max.block.ms", 120_000);
        KafkaProducer<Integer, Integer> producer =
            new KafkaProducer<>(config, new IntegerSerializer(), new IntegerSerializer());
        producer.initTransactions();
        return producer;
    }

    static KafkaConsumer<Integer, Integer> consumer(String bootstrap, String isolation, String group) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation));
        config.putAll(Map.of("auto.offset.reset", "earliest", "enable.auto.commit", false, "max.poll.records", 100));
        if (group != null) config.put("group.id", group);
        return new KafkaConsumer<>(config, new IntegerDeserializer(), new IntegerDeserializer());
    }

    static void produce(String bootstrap) {
        try (KafkaProducer<Integer, Integer> producer = producer(bootstrap, "java-source")) {
            for (int transaction = 0; transaction < TRANSACTIONS; transaction++) {
                if (transaction == TRANSACTIONS / 2) System.out.println("halfway");
                producer.beginTransaction();
                for (int record = 0; record < RECORDS; record++) {
                    int number = transaction * RECORDS + record;
                    producer.send(new ProducerRecord<>(SOURCE, number, number));
                }
                if (isAborted(transaction)) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
    }

    /** Copies until everything that was committed is copied; every third of its own transactions is aborted. */
    static void copy(String bootstrap) {
        try (KafkaProducer<Integer, Integer> producer = producer(bootstrap, "java-copier");
             KafkaConsumer<Integer, Integer> consumer = consumer(bootstrap, "read_committed", "java-copiers")) {
            consumer.subscribe(List.of(SOURCE));
            int copied = 0;
            for (int turn = 0; copied < expected(); ) {
                ConsumerRecords<Integer, Integer> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) continue;
                turn++;
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<Integer, Integer> record : records) {
                    producer.send(new ProducerRecord<>(TARGET, record.key(), record.value()));
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (turn % 3 == 0) {
                    producer.abortTransaction();
                    back(consumer);
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                }
            }
        }
    }

    /** Goes back to what is committed. */
    static void back(KafkaConsumer<Integer, Integer> consumer) {
        Set<TopicPartition> assigned = consumer.assignment();
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(assigned);
        for (TopicPartition partition : assigned) {
            OffsetAndMetadata offset = committed.get(partition);
            consumer.seek(partition, offset == null ? 0 : offset.offset());
        }
    }

    /** A producer with a successor commits nothing more. */
    static void fenced(String bootstrap) {
        try (KafkaProducer<Integer, Integer> old = producer(bootstrap, "java-fenced")) {
            old.beginTransaction();
            old.send(new ProducerRecord<>(SOURCE, -1, -1));
            old.flush();
            producer(bootstrap, "java-fenced").close();
            try {
                old.commitTransaction();
                throw new IllegalStateException("a fenced producer has committed");
            } catch (ProducerFencedException expected) {
                // So it must be.
            }
        }
    }

    /** Readers of committed records see every record of a committed transaction once, and no other. */
    static void check(String bootstrap, String name) {
        Map<Integer, Integer> seen = new TreeMap<>();
        List<TopicPartition> partitions = new ArrayList<>();
        for (int at = 0; at < PARTITIONS; at++) partitions.add(new TopicPartition(name, at));
        try (KafkaConsumer<Integer, Integer> consumer = consumer(bootstrap, "read_committed", null)) {
            consumer.assign(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            try (KafkaConsumer<Integer, Integer> other = consumer(bootstrap, "read_uncommitted", null)) {
                if (!other.endOffsets(partitions).equals(ends)) throw new IllegalStateException(name + " has an open transaction");
            }
            consumer.seekToBeginning(partitions);
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                for (ConsumerRecord<Integer, Integer> record : consumer.poll(Duration.ofMillis(200))) {
                    seen.merge(record.value(), 1, Integer::sum);
                }
            }
        }
        for (int number = 0; number < TRANSACTIONS * RECORDS; number++) {
            int times = seen.getOrDefault(number, 0), right = isAborted(number / RECORDS) ? 0 : 1;
            if (times != right) throw new IllegalStateException(name + ": record " + number + " is seen " + times + " times");
        }
        if (seen.size() != expected()) throw new IllegalStateException(name + ": " + seen.size() + " records");
    }
}
