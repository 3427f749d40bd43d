// What the Java client costs: the commands that README.md beside this file describes.

import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Measure {
    static final byte[] BLOCK = new byte[1 << 20];

    public static void main(String[] args) throws Exception {
        int state = 1;
        for (int at = 0; at < BLOCK.length; at++) {
            state = state * 1103515245 + 12345;
            BLOCK[at] = (byte) ('a' + (state >>> 16) % 26);
        }
        double result = switch (args[0]) {
            case "produce" -> produce(args[1], args[2], number(args[3]), number(args[4]), (int) number(args[5]), rest(args, 6));
            case "consume" -> consume(args[1], args[2], number(args[3]), number(args[4]), rest(args, 5));
            case "pace" -> pace(args[1], args[2], number(args[3]), number(args[4]), (int) number(args[5]), rest(args, 6));
            default -> throw new IllegalArgumentException(args[0]);
        };
        System.out.printf("%.1f%n", result);
        System.exit(0);
    }

    static long number(String text) {
        return Long.parseLong(text);
    }

    static Properties rest(String[] args, int from) {
        Properties settings = new Properties();
        for (String setting : Arrays.asList(args).subList(from, args.length)) {
            String[] parts = setting.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        return settings;
    }

    static long processor() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }

    static byte[] value(long number, int size) {
        int at = (int) (number * 37 % (BLOCK.length - size));
        return Arrays.copyOfRange(BLOCK, at, at + size);
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, Properties settings) {
        settings.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static double produce(String bootstrap, String topic, long count, long warmUp, int size, Properties settings) {
        var producer = producer(bootstrap, settings);
        sendMany(producer, topic, warmUp, size);
        long before = processor();
        sendMany(producer, topic, count, size);
        return (double) (processor() - before) / count;
    }

    static void sendMany(KafkaProducer<byte[], byte[]> producer, String topic, long count, int size) {
        for (long number = 0; number < count; number++) {
            producer.send(new ProducerRecord<>(topic, value(number, size)), (metadata, failure) -> check(failure));
        }
        producer.flush();
    }

    static void check(Exception failure) {
        if (failure != null) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    static double consume(String bootstrap, String topic, long count, long warmUp, Properties settings) {
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", "false");
        var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        var partitions = List.of(new TopicPartition(topic, 0));
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        long seen = 0, bytes = 0, before = 0;
        while (seen < warmUp + count) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                bytes += record.value().length;
                if (++seen == warmUp) {
                    before = processor();
                }
            }
        }
        if (bytes == 0) {
            throw new IllegalStateException("the records have no values");
        }
        return (double) (processor() - before) / count;
    }

    static double pace(String bootstrap, String topic, long rate, long seconds, int size, Properties settings) {
        var producer = producer(bootstrap, settings);
        int count = (int) (rate * seconds), half = count / 2;
        long[] latencies = new long[count];
        long begun = System.nanoTime();
        for (int number = 0; number < count; number++) {
            long due = begun + number * (TimeUnit.SECONDS.toNanos(1) / rate);
            for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                java.util.concurrent.locks.LockSupport.parkNanos(Math.max(left, 1_000_000));
            }
            int place = number;
            long sent = System.nanoTime();
            producer.send(new ProducerRecord<>(topic, value(number, size)), (metadata, failure) -> {
                check(failure);
                latencies[place] = System.nanoTime() - sent;
            });
        }
        producer.flush();
        Arrays.sort(latencies, half, count);
        return latencies[half + (int) ((count - half) * 99L / 100)] / 1000.0;
    }
}
