import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberAssignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Fills a directory through its server, and tells what is in there, with the clients of Apache Kafka. Commands, with commas between them, and
 * the server's address; then what they need: the time of the first record (ms), a number for the round, and the offset for `delete`.
 *
 *   create         makes the topics, quotas and credentials
 *   write          writes to all topics
 *   transactions   commits and aborts
 *   open           leaves a transaction open; one that is open already is aborted
 *   classic, consumer, simple, share   read and commit with a group of that kind
 *   delete         deletes the records of the topic `deleted` below the offset
 *   read           one line a partition: its records, uncommitted and committed; of a compacted one only the last ones of their keys
 *   committed      one line a group and partition
 *   member         leaves a member in a consumer group
 *   groups         one line a consumer group, and one a member
 *   rule           a line of dashes
 */
public class Files {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    public static void main(String[] args) throws Exception {
        String bootstrap = args[1];
        long base = args.length > 2 ? Long.parseLong(args[2]) : 0;
        int round = args.length > 3 ? Integer.parseInt(args[3]) : 0;
        for (String command : args[0].split(","))
            switch (command) {
                case "create" -> create(bootstrap);
                case "write" -> write(bootstrap, base, round);
                case "transactions" -> transactions(bootstrap, base, round);
                case "open" -> open(bootstrap, base, round);
                case "classic", "consumer" -> subscribed(bootstrap, command);
                case "member" -> member(bootstrap, round);
                case "groups" -> groups(bootstrap);
                case "simple" -> simple(bootstrap, round);
                case "share" -> share(bootstrap);
                case "delete" -> delete(bootstrap, Long.parseLong(args[4]));
                case "read" -> read(bootstrap);
                case "committed" -> committed(bootstrap);
                case "rule" -> System.out.println("---");
                default -> throw new IllegalArgumentException(command);
            }
        // An open transaction's producer would abort it when it is closed.
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static Admin admin(String bootstrap) {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    static void create(String bootstrap) throws Exception {
        Map<String, String> rolling = Map.of("segment.ms", "60000", "index.interval.bytes", "300", "retention.ms", "-1");
        List<NewTopic> topics = new ArrayList<>();
        for (String codec : CODECS)
            topics.add(new NewTopic("codec-" + codec, 2, (short) 1).configs(rolling));
        topics.add(new NewTopic("transactional", 1, (short) 1).configs(rolling));
        topics.add(new NewTopic("unfinished", 1, (short) 1).configs(rolling));
        topics.add(new NewTopic("deleted", 1, (short) 1).configs(rolling));
        Map<String, String> compacted = new TreeMap<>(rolling);
        compacted.putAll(Map.of("cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.01", "min.compaction.lag.ms", "0"));
        topics.add(new NewTopic("compacted", 1, (short) 1).configs(compacted));
        topics.add(new NewTopic("stamped", 1, (short) 1).configs(Map.of("message.timestamp.type", "LogAppendTime")));
        for (int i = 0; i < 10; i++)
            topics.add(new NewTopic("filler-" + i, 4, (short) 1));
        try (Admin admin = admin(bootstrap)) {
            admin.createTopics(topics).all().get();
            admin.deleteTopics(List.of("filler-0")).all().get();
            ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "filler-1");
            admin.incrementalAlterConfigs(Map.of(topic,
                List.of(new AlterConfigOp(new ConfigEntry("flush.ms", "1234"), AlterConfigOp.OpType.SET)))).all().get();
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("client-id", "quota")),
                List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 5e7))))).all().get();
            admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("alice",
                new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).all().get();
        }
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, Map<String, Object> more) {
        Map<String, Object> config = new TreeMap<>(more);
        config.put("bootstrap.servers", bootstrap);
        config.put("acks", "all");
        config.put("linger.ms", 5);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int partition, long time, int round, int i) {
        byte[] key = i % 7 == 3 ? null : utf8("key-é-" + i % 10);
        byte[] value = i % 11 == 5 ? null : utf8(("value " + round + " " + i + " ").repeat(1 + i % 5));
        List<Header> headers = i % 3 == 0 ? List.of() : List.of(new RecordHeader("h" + i, utf8("v")), new RecordHeader("null", null));
        return new ProducerRecord<>(topic, partition, time + 3000L * i, key, value, headers);
    }

    /** In batches of five, so that there are segments and index entries. */
    static void write(String bootstrap, long base, int round) throws Exception {
        for (String codec : CODECS) {
            for (boolean idempotent : new boolean[] {false, true}) {
                Map<String, Object> config = Map.of("compression.type", codec, "enable.idempotence", idempotent);
                try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, config)) {
                    for (int i = 0; i < 60; i++) {
                        producer.send(record("codec-" + codec, i % 2, base, round, i));
                        if (i % 10 == 9)
                            producer.flush();
                    }
                }
            }
        }
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, Map.of())) {
            for (int i = 0; i < 100; i++) {
                producer.send(new ProducerRecord<>("compacted", 0, base + 3000L * i, utf8("k" + i % 9), i % 9 == 8 ? null : utf8(round + "-" + i)));
                producer.send(record("deleted", 0, base, round, i));
                producer.send(record("stamped", 0, base, round, i));
                if (i % 5 == 4)
                    producer.flush();
            }
        }
    }

    static void transactions(String bootstrap, long base, int round) {
        Map<String, Object> config = Map.of("transactional.id", "writer-" + round, "compression.type", "lz4");
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, config)) {
            producer.initTransactions();
            for (int transaction = 0; transaction < 12; transaction++) {
                producer.beginTransaction();
                for (int i = 0; i < 8; i++) {
                    int number = transaction * 8 + i;
                    producer.send(new ProducerRecord<>("transactional", 0, base + 1000L * number, utf8("k" + i), utf8(round + "-" + number)));
                    if (i == 3)
                        producer.flush();
                }
                producer.flush();
                if (transaction % 3 == 1)
                    producer.abortTransaction();
                else
                    producer.commitTransaction();
            }
        }
    }

    static void open(String bootstrap, long base, int round) throws Exception {
        Map<String, Object> config = Map.of("transactional.id", "open", "transaction.timeout.ms", 900000);
        KafkaProducer<byte[], byte[]> producer = producer(bootstrap, config);
        producer.initTransactions();
        producer.beginTransaction();
        // Each in a segment of its own: the snapshots of the producers at their beginnings have the transaction too.
        for (int i = 0; i < 3; i++)
            producer.send(new ProducerRecord<>("unfinished", 0, base + 61_000L * (3 * round + i), utf8("k"), utf8(round + "-" + i))).get();
    }

    static Map<String, Object> reader(String bootstrap, Map<String, Object> more) {
        Map<String, Object> config = new TreeMap<>(more);
        config.put("bootstrap.servers", bootstrap);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        return config;
    }

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, Map<String, Object> more) {
        return new KafkaConsumer<>(reader(bootstrap, more), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void subscribed(String bootstrap, String protocol) {
        Map<String, Object> config = Map.of("group.id", "group-" + protocol, "group.protocol", protocol, "client.id", "reader");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, config)) {
            consumer.subscribe(List.of("codec-none", "codec-zstd"));
            while (consumer.poll(Duration.ofMillis(200)).isEmpty()) { }
            consumer.commitSync();
            consumer.commitSync(Map.of(new TopicPartition("codec-none", 1), new OffsetAndMetadata(7, "metadata of " + protocol)));
        }
    }

    // It is never closed: the coordinator waits for it until its session ends.
    static void member(String bootstrap, int round) {
        Map<String, Object> config = Map.of("group.id", "group-member-" + round, "group.protocol", "consumer", "client.id", "reader",
            "group.instance.id", "instance");
        KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, config);
        if (round % 2 == 0) consumer.subscribe(new SubscriptionPattern("codec-.*"));
        else consumer.subscribe(List.of("codec-none", "codec-zstd"));
        while (consumer.assignment().isEmpty()) consumer.poll(Duration.ofMillis(100));
    }

    static void groups(String bootstrap) throws Exception {
        try (Admin admin = admin(bootstrap)) {
            List<String> ids = admin.listGroups(ListGroupsOptions.forConsumerGroups().withTypes(Set.of(GroupType.CONSUMER))).all().get()
                .stream().map(GroupListing::groupId).sorted().toList();
            for (ConsumerGroupDescription group : new TreeMap<>(admin.describeConsumerGroups(ids).all().get()).values()) {
                System.out.println(group.groupId() + " " + group.groupState() + " " + group.partitionAssignor() + " " + group.groupEpoch()
                    + " " + group.targetAssignmentEpoch());
                for (var member : group.members())
                    System.out.println("  " + member.groupInstanceId() + " " + member.clientId() + " " + member.host() + " "
                        + member.memberEpoch() + " " + sorted(member.assignment()) + " " + sorted(member.targetAssignment().get()));
            }
        }
    }

    static List<String> sorted(MemberAssignment assignment) {
        return assignment.topicPartitions().stream().map(TopicPartition::toString).sorted().toList();
    }

    static void simple(String bootstrap, int round) throws Exception {
        try (Admin admin = admin(bootstrap)) {
            TopicPartition partition = new TopicPartition("codec-gzip", 0);
            admin.alterConsumerGroupOffsets("group-simple", Map.of(partition, new OffsetAndMetadata(3),
                new TopicPartition("codec-gzip", 1), new OffsetAndMetadata(5 + round))).all().get();
            admin.deleteConsumerGroupOffsets("group-simple", Set.of(partition)).all().get();
        }
    }

    static void share(String bootstrap) throws Exception {
        try (Admin admin = admin(bootstrap)) {
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "group-share");
            admin.incrementalAlterConfigs(Map.of(group, List.of(
                new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
        }
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "group.id", "group-share");
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of("stamped"));
            while (consumer.poll(Duration.ofMillis(200)).isEmpty()) { }
            consumer.commitSync();
        }
    }

    static void delete(String bootstrap, long offset) throws Exception {
        try (Admin admin = admin(bootstrap)) {
            admin.deleteRecords(Map.of(new TopicPartition("deleted", 0), RecordsToDelete.beforeOffset(offset))).all().get();
        }
    }

    static List<String> topics() {
        List<String> topics = new ArrayList<>(CODECS.stream().map(codec -> "codec-" + codec).toList());
        topics.addAll(List.of("transactional", "unfinished", "deleted", "compacted", "stamped"));
        return topics;
    }

    static void read(String bootstrap) throws Exception {
        for (String isolation : List.of("read_uncommitted", "read_committed")) {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, Map.of("isolation.level", isolation, "check.crcs", true))) {
                List<TopicPartition> partitions = topics().stream().flatMap(topic -> consumer.partitionsFor(topic).stream())
                    .map(info -> new TopicPartition(info.topic(), info.partition())).toList();
                consumer.assign(partitions);
                consumer.seekToBeginning(partitions);
                Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
                Map<TopicPartition, Long> beginnings = consumer.beginningOffsets(partitions);
                Map<TopicPartition, Sum> sums = new TreeMap<>((a, b) -> a.toString().compareTo(b.toString()));
                for (TopicPartition partition : partitions)
                    sums.put(partition, new Sum(partition.topic().equals("compacted")));
                while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition)))
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500)))
                        sums.get(new TopicPartition(record.topic(), record.partition())).add(record);
                for (TopicPartition partition : sums.keySet())
                    System.out.println(isolation + " " + partition + " start " + beginnings.get(partition)
                        + " end " + ends.get(partition) + " " + sums.get(partition).text());
            }
        }
    }

    static class Sum {
        final boolean lastOnly;
        final Map<String, String> records = new LinkedHashMap<>();

        Sum(boolean lastOnly) {
            this.lastOnly = lastOnly;
        }

        void add(ConsumerRecord<byte[], byte[]> record) {
            String headers = Arrays.stream(record.headers().toArray())
                .map(header -> header.key() + "=" + hex(header.value())).collect(Collectors.joining(","));
            String text = record.offset() + " " + record.timestamp() + " " + record.timestampType() + " " + hex(record.key()) + " "
                + hex(record.value()) + " " + headers + "\n";
            String name = lastOnly ? hex(record.key()) : "" + record.offset();
            records.remove(name);
            records.put(name, text);
        }

        static String hex(byte[] bytes) {
            return bytes == null ? "null" : HexFormat.of().formatHex(bytes);
        }

        String text() throws Exception {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            records.values().forEach(text -> digest.update(utf8(text)));
            return "records " + records.size() + " " + HexFormat.of().formatHex(digest.digest()).substring(0, 16);
        }
    }

    static void committed(String bootstrap) throws Exception {
        try (Admin admin = admin(bootstrap)) {
            for (String group : List.of("group-classic", "group-consumer", "group-simple")) {
                Map<TopicPartition, OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
                List<TopicPartition> partitions = new ArrayList<>(offsets.keySet());
                Collections.sort(partitions, (a, b) -> a.toString().compareTo(b.toString()));
                for (TopicPartition partition : partitions)
                    System.out.println(group + " " + partition + " " + offsets.get(partition));
            }
        }
    }
}
