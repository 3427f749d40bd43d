// A group of the Java client that goes from the classic protocol to the consumer protocol and back, one member after the
// other, while records come. README.md in the folder above says what must come of it.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.IntegerSerializer;

public class Migration {
    static final int PARTITIONS = 6, MEMBERS = 3, PATIENCE_S = 120;
    static String bootstrap;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            new Migration(admin, "range", "org.apache.kafka.clients.consumer.RangeAssignor", false).run(true);
            new Migration(admin, "sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor", true).run(false);
            System.exit(0);
        } catch (Throwable thrown) {
            // The members' threads would keep the process.
            thrown.printStackTrace();
            System.exit(1);
        }
    }

    final Admin admin;
    final String topic, assignor;
    final boolean isStatic;
    /** Who owns a partition. */
    final Map<Integer, String> owners = new ConcurrentHashMap<>();
    /** How often each record was read. */
    final Map<Integer, AtomicInteger> seen = new ConcurrentHashMap<>();
    final Member[] members = new Member[MEMBERS];
    volatile Throwable failure;
    volatile boolean ends;
    volatile int written;

    Migration(Admin admin, String name, String assignor, boolean isStatic) {
        this.admin = admin;
        this.topic = "java-migration-" + name;
        this.assignor = assignor;
        this.isStatic = isStatic;
    }

    void run(boolean withRestart) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
        Thread producer = new Thread(() -> guarded(this::produce));
        producer.start();
        for (int at = 0; at < MEMBERS; at++) members[at] = new Member(at, "classic");
        shared(GroupType.CLASSIC, 0);
        for (int at = 0; at < MEMBERS; at++) {
            replace(at, "consumer");
            shared(GroupType.CONSUMER, at + 1);
            if (withRestart && at == 0) {
                System.out.println("halfway");
                shared(GroupType.CONSUMER, at + 1);
            }
        }
        for (int at = 0; at < MEMBERS; at++) {
            replace(at, "classic");
            shared(at + 1 == MEMBERS ? GroupType.CLASSIC : GroupType.CONSUMER, MEMBERS - at - 1);
        }
        ends = true;
        producer.join();
        await("every record is read", () -> seen.size() >= written);
        for (Member member : members) member.end();
        check();
    }

    void check() {
        if (failure != null) throw new IllegalStateException(topic + " has failed", failure);
        int twice = 0;
        for (int number = 0; number < written; number++) {
            if (!seen.containsKey(number)) throw new IllegalStateException(topic + ": record " + number + " was not read");
            if (seen.get(number).get() > 1) twice++;
        }
        System.out.println(topic + ": " + written + " records read, " + twice + " of them again");
    }

    void replace(int at, String protocol) throws Exception {
        members[at].end();
        members[at] = new Member(at, protocol);
    }

    /** Waits until the group is stable, of this type, with so many members of the consumer protocol, and owns everything. */
    void shared(GroupType type, int consumers) throws Exception {
        await(type + " group with " + consumers + " members of the consumer protocol", () -> {
            try {
                ConsumerGroupDescription group = admin.describeConsumerGroups(List.of(topic)).all().get().get(topic);
                long known = group.members().stream().filter(Migration::speaksConsumer).count();
                return group.type() == type && group.groupState() == GroupState.STABLE && group.members().size() == MEMBERS
                    && known == consumers && owners.size() == PARTITIONS;
            } catch (Exception again) {
                return false;
            }
        });
    }

    static boolean speaksConsumer(MemberDescription member) {
        return member.upgraded().orElse(false);
    }

    void await(String what, BooleanSupplier condition) throws Exception {
        long end = System.nanoTime() + PATIENCE_S * 1_000_000_000L;
        while (!condition.getAsBoolean()) {
            if (failure != null) throw new IllegalStateException(topic + " has failed", failure);
            if (System.nanoTime() > end) throw new IllegalStateException(topic + ": " + what + " does not come; owners " + owners);
            Thread.sleep(50);
        }
    }

    void guarded(Runnable run) {
        try {
            run.run();
        } catch (Throwable thrown) {
            failure = thrown;
        }
    }

    void produce() {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "delivery.timeout.ms", 120_000));
        try (var producer = new KafkaProducer<>(config, new IntegerSerializer(), new IntegerSerializer())) {
            int number = 0;
            while (!ends && failure == null) {
                for (int more = 0; more < 10; more++, number++)
                    producer.send(new ProducerRecord<>(topic, number % PARTITIONS, number, number), (metadata, error) -> {
                        if (error != null) failure = error;
                    });
                producer.flush();
                Thread.sleep(20);
            }
            written = number;
        } catch (InterruptedException never) {
            throw new IllegalStateException(never);
        }
    }

    /** A member with a thread of its own. */
    class Member implements ConsumerRebalanceListener {
        final String name;
        final KafkaConsumer<Integer, Integer> consumer;
        final Thread thread;
        volatile boolean stops;

        Member(int at, String protocol) {
            name = at + " (" + protocol + ")";
            Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", topic));
            config.putAll(Map.of("auto.offset.reset", "earliest", "enable.auto.commit", false, "group.protocol", protocol));
            if (isStatic) config.put("group.instance.id", topic + "-" + at);
            if (protocol.equals("classic")) {
                config.putAll(Map.of("heartbeat.interval.ms", 200, "session.timeout.ms", 10_000));
                config.put("partition.assignment.strategy", assignor);
            }
            consumer = new KafkaConsumer<>(config, new IntegerDeserializer(), new IntegerDeserializer());
            thread = new Thread(() -> guarded(this::run));
            thread.start();
        }

        void run() {
            consumer.subscribe(List.of(topic), this);
            while (!stops) {
                for (ConsumerRecord<Integer, Integer> record : consumer.poll(Duration.ofMillis(50)))
                    seen.computeIfAbsent(record.value(), number -> new AtomicInteger()).incrementAndGet();
                commit();
            }
            // A static member does not say that it leaves, and its partitions are the next one's.
            if (isStatic) consumer.assignment().forEach(this::giveUp);
            consumer.close();
        }

        void commit() {
            try {
                consumer.commitSync();
            } catch (RebalanceInProgressException | CommitFailedException later) {
                // What was not committed is read again by whoever gets it.
            }
        }

        void end() throws Exception {
            stops = true;
            thread.join();
        }

        void giveUp(TopicPartition partition) {
            owners.remove(partition.partition(), name);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            for (TopicPartition partition : partitions) {
                String other = owners.putIfAbsent(partition.partition(), name);
                if (other != null && !other.equals(name))
                    throw new KafkaException(partition + " is assigned to " + name + " and to " + other);
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            commit();
            partitions.forEach(this::giveUp);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            partitions.forEach(this::giveUp);
        }
    }
}
