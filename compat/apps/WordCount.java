// A word count with Kafka Streams, processed exactly once. README.md in the folder above says what must come of it.

import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

public class WordCount {
    static final String APPLICATION = "word-count", SOURCE = "lines", TARGET = "counts";
    static final int PARTITIONS = 3, LINES = 20_000, WORDS_IN_LINE = 5, WORDS = 101, TOTAL = LINES * WORDS_IN_LINE;

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "feed" -> feed(args[1], Integer.parseInt(args[2]));
            case "run" -> run(args[1], args[2]);
            default -> check(args[1]);
        }
        System.exit(0);
    }

    static String word(int number) {
        return "w" + (long) number * number % WORDS;
    }

    /** Writes one half of the lines. */
    static void feed(String bootstrap, int half) throws Exception {
        if (half == 0) try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            List<String> names = List.of(SOURCE, TARGET);
            admin.createTopics(names.stream().map(name -> new NewTopic(name, PARTITIONS, (short) 1)).toList()).all().get();
        }
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "linger.ms", 5);
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int line = half * LINES / 2; line < (half + 1) * LINES / 2; line++) {
                int first = line * WORDS_IN_LINE;
                String text = IntStream.range(first, first + WORDS_IN_LINE).mapToObj(WordCount::word).collect(Collectors.joining(" "));
                producer.send(new ProducerRecord<>(SOURCE, line % PARTITIONS, null, text));
            }
        }
        System.out.println("total " + TOTAL);
    }

    /** Counts until all counts are committed, and prints how many are. */
    static void run(String bootstrap, String dir) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(SOURCE, Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as("store"))
            .toStream()
            .to(TARGET, Produced.with(Serdes.String(), Serdes.Long()));
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, APPLICATION);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        config.put(StreamsConfig.STATE_DIR_CONFIG, dir);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        // Every count of a word is written, none is left out for a later one.
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        // Those that are killed are missed soon.
        config.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 3000);
        config.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 300);
        config.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 3000);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), config)) {
            streams.setStateListener((state, before) -> System.out.println(state.name().toLowerCase()));
            streams.start();
            watch(bootstrap);
        }
    }

    static void watch(String bootstrap) {
        int committed = 0;
        try (KafkaConsumer<String, Long> consumer = reader(bootstrap)) {
            while (committed < TOTAL) {
                int before = committed;
                committed += consumer.poll(Duration.ofMillis(100)).count();
                if (committed > before) System.out.println("committed " + committed);
            }
        }
    }

    /** A consumer of everything that is committed. */
    static KafkaConsumer<String, Long> reader(String bootstrap) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed", "max.poll.records", 2000);
        KafkaConsumer<String, Long> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new LongDeserializer());
        consumer.assign(partitions(TARGET));
        consumer.seekToBeginning(partitions(TARGET));
        return consumer;
    }

    static Set<TopicPartition> partitions(String topic) {
        return IntStream.range(0, PARTITIONS).mapToObj(at -> new TopicPartition(topic, at)).collect(Collectors.toSet());
    }

    /** Each word was counted from one to the number of times that it occurs, without a gap and without a repetition. */
    static void check(String bootstrap) throws Exception {
        Map<String, Long> expected = new HashMap<>(), counted = new HashMap<>();
        for (int number = 0; number < TOTAL; number++) expected.merge(word(number), 1L, Long::sum);
        try (KafkaConsumer<String, Long> consumer = reader(bootstrap)) {
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions(TARGET));
            while (partitions(TARGET).stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(200))) {
                    long before = counted.getOrDefault(record.key(), 0L);
                    if (record.value() != before + 1)
                        throw new IllegalStateException(record.key() + " is counted " + record.value() + " after " + before);
                    counted.put(record.key(), record.value());
                }
            }
            if (!counted.equals(expected)) throw new IllegalStateException("counted " + counted + ", expected " + expected);
            lag(bootstrap, consumer.endOffsets(partitions(SOURCE)));
        }
        System.out.println("streams: " + TOTAL + " words counted once");
    }

    /** The application has committed all of its input. */
    static void lag(String bootstrap, Map<TopicPartition, Long> ends) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var offsets = admin.listConsumerGroupOffsets(APPLICATION).partitionsToOffsetAndMetadata().get();
            for (TopicPartition partition : ends.keySet()) {
                long offset = offsets.get(partition).offset();
                if (offset != ends.get(partition))
                    throw new IllegalStateException(partition + " is committed up to " + offset + " of " + ends.get(partition));
            }
        }
    }
}
