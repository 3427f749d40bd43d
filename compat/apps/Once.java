// Compares a topic with its copy. README.md in the folder above says for what.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Once {
    public static void main(String[] args) {
        Map<String, Integer> source = read(args[0], args[1]), copy = read(args[0], args[2]);
        if (!copy.equals(source)) throw new IllegalStateException("written " + source + ", copied " + copy);
        if (source.values().stream().anyMatch(times -> times != 1)) throw new IllegalStateException("written " + source);
        System.out.println(source.size() + " records copied once");
        System.exit(0);
    }

    /** How often each value is among what is committed. */
    static Map<String, Integer> read(String bootstrap, String topic) {
        Map<String, Integer> seen = new TreeMap<>();
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream().map(one -> new TopicPartition(topic, one.partition())).toList();
            consumer.assign(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            consumer.seekToBeginning(partitions);
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) seen.merge(record.value(), 1, Integer::sum);
            }
        }
        return seen;
    }
}
