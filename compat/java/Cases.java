// The recorded cases that take a Java client. For each id in the arguments behind the address, a line: the id, a tab, and
// what came of it in JSON.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Cases {
    static final Duration TURN = Duration.ofMillis(100);
    static final long PATIENCE_MS = 30_000;

    static String bootstrap;
    static Admin admin;
    /** The prefix of everything that the case makes. */
    static String own;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        Map<String, Callable<Object>> cases = all();
        ObjectMapper json = new ObjectMapper();
        try (Admin connected = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin = connected;
            for (int at = 1; at < args.length; at++) {
                own = "java" + System.currentTimeMillis() + "-" + at;
                Object outcome;
                try {
                    Callable<Object> known = cases.get(args[at]);
                    outcome = known == null ? "no code" : known.call();
                } catch (Throwable thrown) {
                    outcome = "failed: " + cause(thrown);
                }
                System.out.println(args[at] + "\t" + json.writeValueAsString(outcome));
            }
        }
        System.exit(0);
    }

    static Map<String, Callable<Object>> all() {
        Map<String, Callable<Object>> cases = new HashMap<>();
        cases.put("client.acks.all", () -> acks("all"));
        cases.put("client.acks.1", () -> acks("1"));
        cases.put("client.too-large", () -> refused(topic(1, Map.of("max.message.bytes", "1000")), null, "x".repeat(2000)));
        cases.put("client.batch-split", Cases::split);
        cases.put("client.bad-timestamp", () -> refused(topic(1, Map.of("message.timestamp.after.max.ms", "3600000")),
            System.currentTimeMillis() + 7_200_000, "x"));
        cases.put("client.invalid-topic", () -> refused("not/allowed", null, "x"));
        cases.put("client.partitioner", Cases::partitioner);
        cases.put("client.timestamps.append-time", Cases::appendTime);
        cases.put("client.reset.earliest", () -> reset("earliest"));
        cases.put("client.reset.latest", () -> reset("latest"));
        cases.put("client.out-of-range-reset", Cases::outOfRange);
        cases.put("client.thousand", Cases::thousand);
        cases.put("client.group.classic.two-share", () -> twoShare("classic", Map.of()));
        cases.put("client.group.consumer.two-share", () -> twoShare("consumer", Map.of()));
        cases.put("client.group.classic-cooperative", () -> ((List<?>) twoShare("classic", Map.of(
            "partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"))).subList(0, 2));
        cases.put("client.group.classic.one-leaves", Cases::oneLeaves);
        cases.put("client.group.consumer.commit-resume", Cases::resume);
        cases.put("client.group.consumer.pattern", Cases::pattern);
        cases.put("client.group.migrate", Cases::migrate);
        cases.put("client.share.consume", Cases::share);
        cases.put("client.admin.create-errors", Cases::createErrors);
        cases.put("client.admin.configs", Cases::configs);
        cases.put("client.admin.groups", Cases::groups);
        cases.put("client.admin.describe-live-group", Cases::liveGroup);
        cases.put("client.admin.partitions", Cases::partitions);
        cases.put("client.admin.log-dirs", () -> !admin.describeLogDirs(List.of(1)).allDescriptions().get().isEmpty());
        cases.put("client.admin.quorum", Cases::quorum);
        cases.put("client.admin.elect", Cases::elect);
        cases.put("client.txn.fence-producers", Cases::fence);
        cases.put("client.txn.describe-list", Cases::describeTransaction);
        cases.put("client.txn.ten-restarts", Cases::restarts);
        cases.put("client.txn.timeout-too-big", () -> error(() -> transactional(Map.of("transaction.timeout.ms", 900_001))));
        cases.put("txn.new.java", () -> transactions(Map.of()));
        cases.put("txn.old.java", () -> transactions(Map.of()));
        return cases;
    }

    // What many cases need.

    static String topic(int partitions, Map<String, String> configs) throws Exception {
        String name = own + "-t" + System.nanoTime();
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs))).all().get();
        until(() -> isDescribed(name, partitions), name + " is not described");
        return name;
    }

    static boolean isDescribed(String name, int partitions) {
        try {
            var described = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
            return described.partitions().size() == partitions && described.partitions().stream().allMatch(one -> one.leader() != null);
        } catch (Exception notYet) {
            return false;
        }
    }

    static void until(BooleanSupplier holds, String otherwise) {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (!holds.getAsBoolean()) {
            if (System.currentTimeMillis() > end) throw new IllegalStateException(otherwise);
            try {
                Thread.sleep(20);
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException(interrupted);
            }
        }
    }

    static String cause(Throwable thrown) {
        while (thrown instanceof ExecutionException && thrown.getCause() != null) thrown = thrown.getCause();
        return thrown.getClass().getSimpleName();
    }

    static String error(Callable<?> call) {
        try {
            call.call();
            return "none";
        } catch (Exception thrown) {
            return cause(thrown);
        }
    }

    static KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "max.block.ms", 30_000));
        config.putAll(more);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    static KafkaProducer<String, String> transactional(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("transactional.id", own + "-x"));
        config.putAll(more);
        KafkaProducer<String, String> producer = producer(config);
        try {
            producer.initTransactions();
        } catch (RuntimeException thrown) {
            producer.close(Duration.ZERO);
            throw thrown;
        }
        return producer;
    }

    static KafkaConsumer<String, String> consumer(String group, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest"));
        config.put("enable.auto.commit", false);
        if (group != null) config.put("group.id", group);
        config.putAll(more);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    static RecordMetadata send(String topic, int partition, String... values) throws Exception {
        RecordMetadata last = null;
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (String value : values) last = producer.send(new ProducerRecord<>(topic, partition, null, value)).get();
        }
        return last;
    }

    static long end(String topic, int partition) {
        TopicPartition at = new TopicPartition(topic, partition);
        try (KafkaConsumer<String, String> consumer = consumer(null, Map.of())) {
            return consumer.endOffsets(List.of(at)).get(at);
        }
    }

    static List<String> read(KafkaConsumer<String, String> consumer, int count) {
        List<String> seen = new ArrayList<>();
        until(() -> {
            for (ConsumerRecord<String, String> record : consumer.poll(TURN))
                seen.add(record.partition() + ":" + record.offset() + ":" + record.value());
            return seen.size() >= count;
        }, "too few records");
        return seen;
    }

    // Producers and consumers.

    static Object acks(String acks) throws Exception {
        String topic = topic(1, Map.of());
        try (KafkaProducer<String, String> producer = producer(Map.of("acks", acks, "enable.idempotence", acks.equals("all")))) {
            boolean hasOffset = producer.send(new ProducerRecord<>(topic, "a")).get().hasOffset();
            Map<String, Object> outcome = new LinkedHashMap<>();
            outcome.put("hasOffset", hasOffset);
            outcome.put("end", end(topic, 0));
            return outcome;
        }
    }

    static Object refused(String topic, Long timestamp, String value) {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            return error(() -> producer.send(new ProducerRecord<>(topic, 0, timestamp, null, value)).get());
        }
    }

    static Object split() throws Exception {
        String topic = topic(1, Map.of("max.message.bytes", "4000"));
        try (KafkaProducer<String, String> producer = producer(Map.of("batch.size", 100_000, "linger.ms", 500))) {
            for (int i = 0; i < 20; i++) producer.send(new ProducerRecord<>(topic, "x".repeat(1000)));
        }
        return end(topic, 0);
    }

    static Object partitioner() throws Exception {
        String topic = topic(8, Map.of());
        Map<String, Object> outcome = new LinkedHashMap<>();
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (String key : List.of("a", "b", "hello", "\uce74\ud504\uce74", "key-1234"))
                outcome.put(key, producer.send(new ProducerRecord<>(topic, key, "v")).get().partition());
        }
        return outcome;
    }

    static Object appendTime() throws Exception {
        String topic = topic(1, Map.of("message.timestamp.type", "LogAppendTime"));
        long before = System.currentTimeMillis();
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            long time = producer.send(new ProducerRecord<>(topic, 0, 1000L, null, "v")).get().timestamp();
            return Map.of("now", time >= before && time <= System.currentTimeMillis());
        }
    }

    /** How many of the two records before and the two after the group's first position are there. */
    static Object reset(String where) throws Exception {
        String topic = topic(1, Map.of());
        send(topic, 0, "a", "b");
        try (KafkaConsumer<String, String> consumer = consumer(own + "-g", Map.of("auto.offset.reset", where))) {
            TopicPartition at = new TopicPartition(topic, 0);
            consumer.assign(List.of(at));
            if (where.equals("earliest")) return read(consumer, 2).size();
            return consumer.position(at);
        }
    }

    static Object outOfRange() throws Exception {
        String topic = topic(1, Map.of());
        send(topic, 0, "a", "b");
        try (KafkaConsumer<String, String> consumer = consumer(null, Map.of())) {
            TopicPartition at = new TopicPartition(topic, 0);
            consumer.assign(List.of(at));
            consumer.seek(at, 100);
            return read(consumer, 2);
        }
    }

    static Object thousand() throws Exception {
        String topic = topic(4, Map.of());
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (int i = 0; i < 1000; i++) producer.send(new ProducerRecord<>(topic, i % 4, null, String.valueOf(i)));
        }
        try (KafkaConsumer<String, String> consumer = consumer(own + "-g", Map.of())) {
            consumer.subscribe(List.of(topic));
            List<String> seen = read(consumer, 1000);
            int[] last = {-1, -1, -1, -1};
            boolean ordered = true;
            for (String record : seen) {
                String[] parts = record.split(":");
                int partition = Integer.parseInt(parts[0]), number = Integer.parseInt(parts[2]);
                ordered &= number > last[partition];
                last[partition] = number;
            }
            Map<String, Object> outcome = new LinkedHashMap<>();
            outcome.put("count", seen.size());
            outcome.put("ordered", ordered);
            return outcome;
        }
    }

    // Groups.

    static Map<String, Object> protocol(String protocol, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("group.protocol", protocol));
        config.putAll(more);
        return config;
    }

    static boolean shared(KafkaConsumer<String, String> one, KafkaConsumer<String, String> other) {
        one.poll(TURN);
        other.poll(TURN);
        return one.assignment().size() == 2 && other.assignment().size() == 2;
    }

    static Object twoShare(String protocol, Map<String, Object> more) throws Exception {
        String topic = topic(4, Map.of());
        try (KafkaConsumer<String, String> one = consumer(own + "-g", protocol(protocol, more));
             KafkaConsumer<String, String> other = consumer(own + "-g", protocol(protocol, more))) {
            one.subscribe(List.of(topic));
            other.subscribe(List.of(topic));
            until(() -> shared(one, other), "two consumers do not share");
            TreeSet<Integer> all = new TreeSet<>();
            one.assignment().forEach(at -> all.add(at.partition()));
            other.assignment().forEach(at -> all.add(at.partition()));
            return List.of(one.assignment().size(), other.assignment().size(), all);
        }
    }

    static Object oneLeaves() throws Exception {
        String topic = topic(2, Map.of());
        int before;
        try (KafkaConsumer<String, String> one = consumer(own + "-g", protocol("classic", Map.of()))) {
            one.subscribe(List.of(topic));
            try (KafkaConsumer<String, String> other = consumer(own + "-g", protocol("classic", Map.of()))) {
                other.subscribe(List.of(topic));
                until(() -> {
                    one.poll(TURN);
                    other.poll(TURN);
                    return one.assignment().size() == 1 && other.assignment().size() == 1;
                }, "two consumers do not share");
                before = one.assignment().size();
            }
            until(() -> {
                one.poll(TURN);
                return one.assignment().size() == 2;
            }, "the other one does not take over");
            return List.of(before, one.assignment().size());
        }
    }

    static Object resume() throws Exception {
        String topic = topic(1, Map.of());
        send(topic, 0, "a", "b", "c");
        List<Object> outcome = new ArrayList<>();
        for (int turn = 0; turn < 2; turn++) {
            try (KafkaConsumer<String, String> consumer = consumer(own + "-g", protocol("consumer", Map.of()))) {
                consumer.subscribe(List.of(topic));
                outcome.add(read(consumer, turn == 0 ? 3 : 1));
                consumer.commitSync();
            }
            send(topic, 0, "d");
        }
        return outcome;
    }

    static Object pattern() throws Exception {
        String first = topic(1, Map.of());
        try (KafkaConsumer<String, String> consumer =
                 consumer(own + "-g", protocol("consumer", Map.of("metadata.max.age.ms", 500)))) {
            consumer.subscribe(Pattern.compile(own + "-t.*"));
            until(() -> {
                consumer.poll(TURN);
                return consumer.assignment().size() == 1;
            }, first + " is not assigned");
            int before = consumer.assignment().size();
            topic(1, Map.of());
            until(() -> {
                consumer.poll(TURN);
                return consumer.assignment().size() == 2;
            }, "the new topic is not assigned");
            return List.of(before, consumer.assignment().size());
        }
    }

    static Object migrate() throws Exception {
        String topic = topic(1, Map.of());
        send(topic, 0, "a", "b");
        try (KafkaConsumer<String, String> classic = consumer(own + "-g", protocol("classic", Map.of()))) {
            classic.subscribe(List.of(topic));
            read(classic, 2);
            classic.commitSync();
        }
        send(topic, 0, "c");
        try (KafkaConsumer<String, String> consumer = consumer(own + "-g", protocol("consumer", Map.of()))) {
            consumer.subscribe(List.of(topic));
            return read(consumer, 1);
        }
    }

    static Object share() throws Exception {
        String topic = topic(1, Map.of());
        String group = own + "-s";
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
        admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET)))).all().get();
        send(topic, 0, "a", "b", "c");
        Properties config = new Properties();
        config.putAll(Map.of("bootstrap.servers", bootstrap, "group.id", group));
        List<String> seen = new ArrayList<>();
        try (KafkaShareConsumer<String, String> consumer =
                 new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            until(() -> {
                consumer.poll(TURN).forEach(record -> seen.add(record.offset() + ":" + record.value()));
                return seen.size() >= 3;
            }, "too few records");
        }
        return seen;
    }

    // Administration.

    static Object createErrors() throws Exception {
        String taken = topic(1, Map.of());
        List<NewTopic> wrong = List.of(
            new NewTopic(taken, 1, (short) 1),
            new NewTopic(own + "-r", 1, (short) 5),
            new NewTopic(own + "-p", 0, (short) 1),
            new NewTopic("not/allowed", 1, (short) 1),
            new NewTopic(own + "-c", 1, (short) 1).configs(Map.of("no.such", "1")));
        List<String> errors = new ArrayList<>();
        for (NewTopic topic : wrong) errors.add(error(() -> admin.createTopics(List.of(topic)).all().get()));
        return errors;
    }

    static Object configs() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(1, Map.of()));
        ConfigEntry entry = new ConfigEntry("retention.ms", "777");
        admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
        ConfigEntry[] told = new ConfigEntry[1];
        until(() -> {
            try {
                told[0] = admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms");
            } catch (Exception thrown) {
                throw new IllegalStateException(thrown);
            }
            return told[0].value().equals("777");
        }, "the value does not change");
        Map<String, Object> outcome = new LinkedHashMap<>();
        outcome.put("value", told[0].value());
        outcome.put("source", told[0].source().name());
        outcome.put("default", told[0].isDefault());
        outcome.put("type", told[0].type().name());
        return outcome;
    }

    static Object groups() throws Exception {
        String group = own + "-g";
        TopicPartition at = new TopicPartition(topic(1, Map.of()), 0);
        admin.alterConsumerGroupOffsets(group, Map.of(at, new OffsetAndMetadata(4, "m"))).all().get();
        OffsetAndMetadata offset = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(at);
        Map<String, Object> outcome = new LinkedHashMap<>();
        outcome.put("listed", admin.listGroups().all().get().stream().anyMatch(one -> one.groupId().equals(group)));
        outcome.put("offset", offset.offset());
        outcome.put("metadata", offset.metadata());
        outcome.put("state", admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState().toString());
        admin.deleteConsumerGroups(List.of(group)).all().get();
        outcome.put("delete", "ok");
        return outcome;
    }

    static Object liveGroup() throws Exception {
        String topic = topic(2, Map.of());
        try (KafkaConsumer<String, String> consumer =
                 consumer(own + "-g", protocol("classic", Map.of("client.id", "cc")))) {
            consumer.subscribe(List.of(topic));
            until(() -> {
                consumer.poll(TURN);
                return consumer.assignment().size() == 2;
            }, "nothing is assigned");
            ConsumerGroupDescription group = admin.describeConsumerGroups(List.of(own + "-g")).all().get().get(own + "-g");
            Map<String, Object> outcome = new LinkedHashMap<>();
            outcome.put("state", group.groupState().toString());
            outcome.put("assignor", group.partitionAssignor());
            outcome.put("type", group.type().toString());
            outcome.put("members", group.members().size());
            var member = group.members().iterator().next();
            outcome.put("clientId", member.clientId());
            outcome.put("partitions", member.assignment().topicPartitions().size());
            return outcome;
        }
    }

    static Object partitions() throws Exception {
        String topic = topic(2, Map.of());
        List<Object> outcome = new ArrayList<>();
        outcome.add(error(() -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all().get()));
        outcome.add(error(() -> admin.createPartitions(Map.of(own + "-none", NewPartitions.increaseTo(3))).all().get()));
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
        until(() -> isDescribed(topic, 3), "there is no third partition");
        outcome.add(3);
        return outcome;
    }

    static Object quorum() throws Exception {
        QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
        Map<String, Object> outcome = new LinkedHashMap<>();
        outcome.put("voters", quorum.voters().size());
        outcome.put("observers", quorum.observers().size());
        return outcome;
    }

    static Object elect() throws Exception {
        TopicPartition at = new TopicPartition(topic(1, Map.of()), 0);
        var elected = admin.electLeaders(ElectionType.PREFERRED, java.util.Set.of(at)).partitions().get();
        return elected.get(at).map(Cases::cause).orElse("none");
    }

    // Transactions.

    static Object fence() throws Exception {
        String topic = topic(1, Map.of());
        try (KafkaProducer<String, String> producer = transactional(Map.of())) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "a")).get();
            admin.fenceProducers(List.of(own + "-x")).all().get();
            return error(() -> {
                producer.commitTransaction();
                return null;
            });
        }
    }

    static Object describeTransaction() throws Exception {
        String topic = topic(1, Map.of());
        try (KafkaProducer<String, String> producer = transactional(Map.of())) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "a")).get();
            String id = own + "-x";
            TransactionDescription told = admin.describeTransactions(List.of(id)).all().get().get(id);
            Map<String, Object> outcome = new LinkedHashMap<>();
            outcome.put("state", told.state().toString());
            outcome.put("partitions", told.topicPartitions().size());
            outcome.put("listed", admin.listTransactions().all().get().stream().anyMatch(one -> one.transactionalId().equals(id)));
            producer.abortTransaction();
            return outcome;
        }
    }

    static Object restarts() {
        int initialised = 0;
        for (int turn = 0; turn < 10; turn++) {
            transactional(Map.of()).close();
            initialised++;
        }
        return initialised;
    }

    static Object transactions(Map<String, Object> more) throws Exception {
        String topic = topic(1, Map.of());
        try (KafkaProducer<String, String> producer = transactional(more)) {
            for (int turn = 0; turn < 3; turn++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "v" + turn)).get();
                if (turn == 1) producer.abortTransaction();
                else producer.commitTransaction();
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer(null, Map.of("isolation.level", "read_committed"))) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            return Map.of("seen", read(consumer, 2).stream().map(record -> record.split(":")[2]).toList());
        }
    }
}
