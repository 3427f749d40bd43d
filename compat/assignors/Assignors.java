import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Has Kafka's assignors divide random groups, and prints what came in and what came out, one case a line:
 *
 *     ASSIGNOR | TOPIC:PARTITIONS:RACKS;... | MEMBER,INSTANCE,RACK,GENERATION,TOPICS,OWNED,USERDATA;... | MEMBER=PARTITIONS;...
 *
 * Racks of a topic: of each partition, with `/` between partitions and `+` between racks. Partitions: `topic-0+topic-1`.
 * What is not there is `~`. Members stand in the order in which they were put into the map.
 */
public class Assignors {
    static final Random RANDOM = new Random(20261201);

    record Member(String id, String instance, String rack, int generation, List<String> topics, List<TopicPartition> owned,
                  ByteBuffer userData) {
        Subscription subscription() {
            Subscription s = new Subscription(topics, userData == null ? null : userData.duplicate(), owned, generation,
                    Optional.ofNullable(rack));
            s.setGroupInstanceId(Optional.ofNullable(instance));
            return s;
        }
    }

    static ConsumerPartitionAssignor assignor(int kind) {
        return switch (kind) {
            case 0 -> new RangeAssignor();
            case 1 -> new RoundRobinAssignor();
            case 2 -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    static String text(String s) {
        return s == null ? "~" : s;
    }

    static String partitions(List<TopicPartition> list) {
        return list.isEmpty() ? "~" : list.stream().map(TopicPartition::toString).collect(Collectors.joining("+"));
    }

    static String hex(ByteBuffer bytes) {
        if (bytes == null) return "~";
        StringBuilder hex = new StringBuilder();
        for (int i = bytes.position(); i < bytes.limit(); i++) hex.append(String.format("%02x", bytes.get(i)));
        return hex.toString();
    }

    static String describe(Member m) {
        String topics = m.topics.isEmpty() ? "~" : String.join("+", m.topics);
        return String.join(",", m.id, text(m.instance), text(m.rack), "" + m.generation, topics, partitions(m.owned),
                hex(m.userData));
    }

    /** The racks of the replicas of each partition, by topic. */
    static TreeMap<String, List<List<Integer>>> topics(int racks) {
        TreeMap<String, List<List<Integer>>> topics = new TreeMap<>();
        int count = 1 + RANDOM.nextInt(6);
        int same = RANDOM.nextInt(9);
        for (int t = 0; t < count; t++) {
            int partitions = RANDOM.nextBoolean() ? same : RANDOM.nextInt(RANDOM.nextInt(10) == 0 ? 40 : 9);
            List<List<Integer>> of = new ArrayList<>();
            for (int p = 0; p < partitions; p++) {
                List<Integer> nodes = new ArrayList<>();
                for (int r = 0; r < racks; r++) nodes.add(r);
                Collections.shuffle(nodes, RANDOM);
                of.add(racks == 0 ? List.of() : List.copyOf(nodes.subList(0, 1 + RANDOM.nextInt(racks))));
            }
            topics.put("topic" + (char) ('a' + RANDOM.nextInt(3)) + t, of);
        }
        return topics;
    }

    /** Some topics go, others come, and others grow: partitions are never taken from a topic. */
    static TreeMap<String, List<List<Integer>>> changed(TreeMap<String, List<List<Integer>>> topics, int racks) {
        TreeMap<String, List<List<Integer>>> changed = new TreeMap<>();
        topics(racks).forEach((name, partitions) -> {
            if (!topics.containsKey(name)) changed.put(name, partitions);
        });
        topics.forEach((name, partitions) -> {
            if (RANDOM.nextInt(5) == 0) return;
            List<List<Integer>> grown = new ArrayList<>(partitions);
            for (int p = RANDOM.nextInt(3); p > 0; p--) grown.add(racks == 0 ? List.of() : List.of(RANDOM.nextInt(racks)));
            changed.put(name, grown);
        });
        return changed;
    }

    static Cluster cluster(TreeMap<String, List<List<Integer>>> topics) {
        List<PartitionInfo> infos = new ArrayList<>();
        topics.forEach((name, partitions) -> {
            for (int p = 0; p < partitions.size(); p++) {
                Node[] nodes = partitions.get(p).stream().map(r -> new Node(r, "host", 9092, "rack" + r)).toArray(Node[]::new);
                infos.add(new PartitionInfo(name, p, nodes.length == 0 ? null : nodes[0], nodes, nodes));
            }
        });
        List<Node> nodes = new ArrayList<>();
        for (int r = 0; r < 3; r++) nodes.add(new Node(r, "host", 9092, "rack" + r));
        return new Cluster("id", nodes, infos, Set.of(), Set.of());
    }

    static String describe(TreeMap<String, List<List<Integer>>> topics) {
        return topics.entrySet().stream().map(e -> {
            String racks = e.getValue().stream().map(nodes -> nodes.isEmpty() ? "~"
                    : nodes.stream().map(r -> "rack" + r).collect(Collectors.joining("+"))).collect(Collectors.joining("/"));
            return e.getKey() + ":" + e.getValue().size() + ":" + racks;
        }).collect(Collectors.joining(";"));
    }

    static List<String> choose(List<String> topics) {
        List<String> chosen = new ArrayList<>(topics);
        Collections.shuffle(chosen, RANDOM);
        return new ArrayList<>(chosen.subList(0, RANDOM.nextInt(chosen.size() + 1)));
    }

    static Member join(int number, boolean instances, int racks, List<String> topics) {
        String id = "member-" + Integer.toHexString(RANDOM.nextInt()) + "-" + number;
        String instance = instances && RANDOM.nextBoolean() ? "instance" + RANDOM.nextInt(1000) + "." + number : null;
        String rack = racks > 0 && RANDOM.nextInt(4) > 0 ? "rack" + RANDOM.nextInt(racks) : null;
        return new Member(id, instance, rack, -1, topics, List.of(), null);
    }

    public static void main(String[] args) {
        int wanted = Integer.parseInt(args[0]);
        int written = 0;
        while (written < wanted) {
            int kind = RANDOM.nextInt(6) % 4;
            if (RANDOM.nextInt(3) == 0) kind = 2 + RANDOM.nextInt(2);
            int racks = RANDOM.nextInt(3) == 0 ? 1 + RANDOM.nextInt(3) : 0;
            boolean instances = RANDOM.nextInt(3) == 0;
            boolean equal = RANDOM.nextBoolean();
            TreeMap<String, List<List<Integer>>> topics = topics(racks);
            List<String> names = new ArrayList<>(topics.keySet());
            if (RANDOM.nextInt(5) == 0) names.add("missing");
            List<String> common = equal ? choose(names) : null;
            List<Member> members = new ArrayList<>();
            int count = 1 + RANDOM.nextInt(RANDOM.nextInt(8) == 0 ? 30 : 7);
            for (int m = 0; m < count; m++) members.add(join(m, instances, racks, equal ? common : choose(names)));
            int generations = 1 + RANDOM.nextInt(4);
            for (int g = 0; g < generations && written < wanted; g++) {
                written += round(kind, topics, members, g) ? 1 : 0;
                members = next(members, kind, instances, racks, equal, common, names, count * 10 + g);
                if (RANDOM.nextInt(3) == 0) topics = changed(topics, racks);
            }
        }
    }

    /** Assigns once; members have afterwards what they got. */
    static boolean round(int kind, TreeMap<String, List<List<Integer>>> topics, List<Member> members, int generation) {
        ConsumerPartitionAssignor assignor = assignor(kind);
        Map<String, Subscription> subscriptions = new HashMap<>();
        members.forEach(m -> subscriptions.put(m.id, m.subscription()));
        Map<String, Assignment> assigned;
        try {
            assigned = assignor.assign(cluster(topics), new GroupSubscription(subscriptions)).groupAssignment();
        } catch (RuntimeException e) {
            System.err.println("throws " + e);
            return false;
        }
        String result = new TreeMap<>(assigned).entrySet().stream()
                .map(e -> e.getKey() + "=" + partitions(sorted(e.getValue().partitions()))).collect(Collectors.joining(";"));
        System.out.println(assignor.name() + " | " + describe(topics) + " | "
                + members.stream().map(Assignors::describe).collect(Collectors.joining(";")) + " | " + result);
        for (int m = 0; m < members.size(); m++) {
            Member before = members.get(m);
            ConsumerPartitionAssignor own = assignor(kind);
            Assignment assignment = assigned.get(before.id);
            own.onAssignment(assignment, new ConsumerGroupMetadata("group", generation, before.id, Optional.empty()));
            ByteBuffer data = own.subscriptionUserData(new HashSet<>(before.topics));
            List<TopicPartition> owned = kind == 3 ? List.copyOf(assignment.partitions()) : List.of();
            members.set(m, new Member(before.id, before.instance, before.rack, generation, before.topics, owned, data));
        }
        return true;
    }

    static List<TopicPartition> sorted(List<TopicPartition> partitions) {
        List<TopicPartition> sorted = new ArrayList<>(partitions);
        sorted.sort(java.util.Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition));
        return sorted;
    }

    /** Some leave, some join, some change their subscription, some forget, some claim what others have. */
    static List<Member> next(List<Member> members, int kind, boolean instances, int racks, boolean equal, List<String> common,
                             List<String> names, int number) {
        List<Member> next = new ArrayList<>();
        for (Member m : members) {
            if (RANDOM.nextInt(6) == 0 && members.size() > 1) continue;
            List<String> topics = !equal && RANDOM.nextInt(4) == 0 ? choose(names) : m.topics;
            int generation = RANDOM.nextInt(12) == 0 ? m.generation - 1 : m.generation;
            List<TopicPartition> owned = m.owned;
            ByteBuffer data = RANDOM.nextInt(12) == 0 ? null : m.userData;
            if (kind >= 2 && RANDOM.nextInt(15) == 0) {
                Member other = members.get(RANDOM.nextInt(members.size()));
                owned = other.owned;
                data = other.userData;
            }
            next.add(new Member(m.id, m.instance, m.rack, generation, topics, owned, data));
        }
        int joining = RANDOM.nextInt(3);
        for (int j = 0; j < joining || next.isEmpty(); j++)
            next.add(join(number + j, instances, racks, equal ? common : choose(names)));
        Collections.shuffle(next, RANDOM);
        return next;
    }
}
