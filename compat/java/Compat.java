// The Java client of Apache Kafka. README.md in the folder above says what is written and read.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Compat {
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    static final String[] MODES = {"idempotent", "one", "zero"};
    static final int RECORDS = 60;
    static final int PARTITIONS = 3;
    static final String GROUP = "java-group-";
    static final String TOPIC = "java-none-one";
    static final int STEP = 5;

    public static void main(String[] args) throws Exception {
        String bootstrap = args[1];
        long base = Long.parseLong(args[2]);
        if (args[0].equals("produce")) {
            produce(bootstrap, base);
            admin(bootstrap, base);
            autoCreated(bootstrap, base);
        } else if (args[0].equals("hold")) {
            hold(bootstrap);
        } else if (args[0].equals("group")) {
            group(bootstrap, Integer.parseInt(args[3]), args[4]);
        } else {
            verify(bootstrap, base, List.of(args[3].split(",")));
        }
    }

    static byte[] key(int i) {
        if (i % 5 == 0) return null;
        if (i % 5 == 1) return new byte[0];
        byte[] text = ("key-" + i).getBytes(StandardCharsets.UTF_8);
        byte[] key = Arrays.copyOf(text, text.length + 1);
        key[text.length] = (byte) i;
        return key;
    }

    static byte[] value(int i) {
        if (i % 7 == 0) return null;
        if (i % 7 == 1) return new byte[0];
        byte[] value = new byte[37 * i % 2000 + 1];
        for (int j = 0; j < value.length; j++) value[j] = (byte) (31 * i + 7 * j);
        return value;
    }

    static List<Header> headers(int i, String topic) {
        switch (i % 4) {
            case 1: return List.of(new RecordHeader("h", ("v" + i).getBytes(StandardCharsets.UTF_8)));
            case 2: return List.of(new RecordHeader("dup", topic.startsWith("node-") ? new byte[0] : null), new RecordHeader("dup", new byte[0]));
            case 3: return List.of(new RecordHeader("bin", new byte[] {0, (byte) 255, (byte) i}));
            default: return List.of();
        }
    }

    static Map<String, Object> config(String bootstrap) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        return config;
    }

    static void produce(String bootstrap, long base) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (String codec : CODECS)
            for (String mode : MODES) topics.add(new NewTopic("java-" + codec + "-" + mode, PARTITIONS, (short) 1));
        try (Admin admin = Admin.create(config(bootstrap))) {
            admin.createTopics(topics).all().get();
        }
        for (String codec : CODECS) for (String mode : MODES) write(bootstrap, base, codec, mode);
        System.out.println("java: produced");
    }

    static void write(String bootstrap, long base, String codec, String mode) throws Exception {
        Map<String, Object> config = config(bootstrap);
        config.put("compression.type", codec);
        config.put("acks", mode.equals("idempotent") ? "all" : mode.equals("one") ? "1" : "0");
        config.put("enable.idempotence", mode.equals("idempotent"));
        config.put("linger.ms", 5);
        String topic = "java-" + codec + "-" + mode;
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < RECORDS; i++)
                sent.add(producer.send(new ProducerRecord<>(topic, i % PARTITIONS, base + 1000L * i, key(i), value(i), headers(i, topic))));
            for (int i = 0; i < RECORDS; i++) {
                RecordMetadata metadata = sent.get(i).get();
                if (!mode.equals("zero")) check(metadata.offset() == i / PARTITIONS, topic + " offset of record " + i);
            }
        }
    }

    // Every other topic is read with each isolation level.
    static void verify(String bootstrap, long base, List<String> writers) {
        List<List<TopicPartition>> halves = List.of(new ArrayList<>(), new ArrayList<>());
        int topics = 0;
        for (String writer : writers)
            for (String codec : CODECS)
                for (String mode : MODES) {
                    for (int p = 0; p < PARTITIONS; p++)
                        halves.get(topics % 2).add(new TopicPartition(writer + "-" + codec + "-" + mode, p));
                    topics++;
                }
        read(bootstrap, base, halves.get(0), "read_committed");
        read(bootstrap, base, halves.get(1), "read_uncommitted");
        System.out.println("java: verified " + topics + " topics");
    }

    static void read(String bootstrap, long base, List<TopicPartition> partitions, String isolation) {
        Map<String, Object> config = config(bootstrap);
        config.put("isolation.level", isolation);
        config.put("auto.offset.reset", "none");
        config.put("fetch.max.wait.ms", 50);
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            int wanted = RECORDS / PARTITIONS * partitions.size();
            int seen = 0;
            long until = System.currentTimeMillis() + 30_000;
            while (seen < wanted && System.currentTimeMillis() < until) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    same(record, base);
                    seen++;
                }
            }
            check(seen == wanted, seen + " of " + wanted + " records");
            for (var end : consumer.endOffsets(partitions).entrySet())
                check(end.getValue() == RECORDS / PARTITIONS, end.getKey() + " ends at " + end.getValue());
        }
    }

    static void same(ConsumerRecord<byte[], byte[]> record, long base) {
        int i = (int) record.offset() * PARTITIONS + record.partition();
        String what = record.topic() + " record " + i;
        check(record.timestamp() == base + 1000L * i, what + " timestamp");
        check(Arrays.equals(record.key(), key(i)), what + " key");
        check(Arrays.equals(record.value(), value(i)), what + " value");
        List<Header> expected = headers(i, record.topic());
        Header[] headers = record.headers().toArray();
        check(headers.length == expected.size(), what + " headers");
        for (int h = 0; h < headers.length; h++) check(headers[h].equals(expected.get(h)), what + " header " + h);
    }

    // The calls of the admin client that a broker without groups answers.
    static void admin(String bootstrap, long base) throws Exception {
        String topic = "java-admin";
        try (Admin admin = Admin.create(config(bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(Map.of("retention.ms", "86400000")))).all().get();
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            int partitions = 0;
            for (int tries = 0; tries < 100 && partitions != 4; tries++) {
                Thread.sleep(20);
                partitions = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
            }
            check(partitions == 4, "createPartitions");
            var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            String retention = admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value();
            check(retention.equals("86400000"), "describeConfigs");
            check(admin.describeCluster().nodes().get().size() == 1, "describeCluster");
            check(admin.listTopics().names().get().contains(topic), "listTopics");
            check(!admin.describeLogDirs(List.of(1)).allDescriptions().get().isEmpty(), "describeLogDirs");
            var partition = new TopicPartition("java-none-one", 0);
            var byTime = admin.listOffsets(Map.of(partition, OffsetSpec.forTimestamp(base + 3000))).partitionResult(partition).get();
            check(byTime.offset() == 1 && byTime.timestamp() == base + 3000, "listOffsets by time: " + byTime);
            var newest = admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition).get();
            check(newest.offset() == RECORDS / PARTITIONS - 1, "listOffsets of the newest time: " + newest);
            admin.deleteTopics(List.of(topic)).all().get();
        }
    }

    // Topics that the producer's own metadata requests create are usable within its retries.
    static void autoCreated(String bootstrap, long base) throws Exception {
        try (var producer = new KafkaProducer<>(config(bootstrap), new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < 50; i++) sent.add(producer.send(new ProducerRecord<>("java-auto-" + i, key(2), value(2))));
            for (Future<RecordMetadata> one : sent) check(one.get().offset() == 0, "auto-created topic");
        }
        System.out.println("java: admin calls and auto-creation");
    }

    // A consumer in the group of this program, and the first offset that it saw of each partition.
    static class Member implements AutoCloseable {
        final KafkaConsumer<byte[], byte[]> consumer;
        final Map<Integer, Long> first = new HashMap<>();

        Member(String bootstrap, String protocol) {
            Map<String, Object> config = config(bootstrap);
            config.put("group.id", GROUP + protocol);
            config.put("group.protocol", protocol);
            config.put("auto.offset.reset", "earliest");
            config.put("enable.auto.commit", false);
            if (protocol.equals("classic")) {
                config.put("session.timeout.ms", 6000);
                config.put("heartbeat.interval.ms", 300);
            }
            config.put("fetch.max.wait.ms", 10);
            consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.subscribe(List.of(TOPIC));
        }

        void poll() {
            for (var record : consumer.poll(Duration.ofMillis(50))) first.putIfAbsent(record.partition(), record.offset());
        }

        Set<Integer> owned() {
            return consumer.assignment().stream().map(TopicPartition::partition).collect(Collectors.toSet());
        }

        void commit(long offset) {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (var partition : consumer.assignment()) offsets.put(partition, new OffsetAndMetadata(offset));
            consumer.commitSync(offsets);
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    static void pollUntil(List<Member> members, BooleanSupplier holds, String what) {
        long until = System.currentTimeMillis() + 40_000;
        while (!holds.getAsBoolean()) {
            check(System.currentTimeMillis() < until, what);
            members.forEach(Member::poll);
        }
    }

    static void hold(String bootstrap) {
        var member = new Member(bootstrap, "classic");
        pollUntil(List.of(member), () -> member.owned().size() == PARTITIONS, "no assignment");
        System.out.println("holding");
        while (true) member.poll();
    }

    static void group(String bootstrap, int turn, String protocol) throws Exception {
        long before = (long) STEP * turn, after = before + STEP;
        try (var a = new Member(bootstrap, protocol)) {
            pollUntil(List.of(a), () -> a.first.size() == PARTITIONS, "the first member does not read all");
            check(a.first.values().stream().allMatch(offset -> offset == before), "begins at " + a.first);
            try (var b = new Member(bootstrap, protocol)) {
                pollUntil(List.of(a, b), () -> {
                    var all = new HashSet<>(a.owned());
                    all.addAll(b.owned());
                    boolean shared = all.size() == PARTITIONS && a.owned().size() + b.owned().size() == PARTITIONS;
                    return shared && !a.owned().isEmpty() && !b.owned().isEmpty();
                }, "the partitions are not shared");
                a.commit(after);
                b.commit(after);
            }
            pollUntil(List.of(a), () -> a.owned().size() == PARTITIONS, "the partitions of the other one do not come back");
            var committed = a.consumer.committed(a.consumer.assignment()).values();
            check(committed.stream().allMatch(offset -> offset.offset() == after), "committed " + committed);
        }
        try (Admin admin = Admin.create(config(bootstrap))) {
            String id = GROUP + protocol;
            var described = admin.describeConsumerGroups(List.of(id)).all().get().get(id);
            check(described.groupState() == GroupState.EMPTY, "the group is " + described);
            check(described.type().toString().equalsIgnoreCase(protocol), "the group is " + described);
            check(admin.listGroups().all().get().stream().anyMatch(group -> group.groupId().equals(id)), "listGroups");
        }
        System.out.println("java: turn " + turn + " of the " + protocol + " group");
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }
}
