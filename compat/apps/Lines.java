// Connectors of Kafka Connect that copy the lines of a file to a topic, and the records of topics to the lines of a file.

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;

public class Lines {
    static final String VERSION = "1";

    static ConfigDef config(String... names) {
        ConfigDef config = new ConfigDef();
        for (String name : names) config.define(name, ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "");
        return config;
    }

    public static class Source extends SourceConnector {
        private Map<String, String> config;

        @Override public String version() { return VERSION; }
        @Override public void start(Map<String, String> config) { this.config = config; }
        @Override public Class<? extends Task> taskClass() { return SourceTask.class; }
        @Override public List<Map<String, String>> taskConfigs(int most) { return List.of(config); }
        @Override public void stop() { }
        @Override public ConfigDef config() { return Lines.config("file", "topic"); }
        @Override public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> config) { return ExactlyOnceSupport.SUPPORTED; }
    }

    public static class SourceTask extends org.apache.kafka.connect.source.SourceTask {
        private static final int MOST_BYTES = 2000, IDLE_MS = 20;
        private RandomAccessFile file;
        private Map<String, String> place;
        private String topic;
        /** Where the next line begins. */
        private long position;

        @Override public String version() { return VERSION; }

        @Override public void start(Map<String, String> config) {
            place = Map.of("file", config.get("file"));
            topic = config.get("topic");
            Map<String, Object> offset = context.offsetStorageReader().offset(place);
            position = offset == null ? 0 : (Long) offset.get("position");
            try {
                file = new RandomAccessFile(config.get("file"), "r");
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override public List<SourceRecord> poll() throws InterruptedException {
            byte[] bytes = new byte[MOST_BYTES];
            int length;
            try {
                file.seek(position);
                length = file.read(bytes);
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
            List<SourceRecord> lines = new ArrayList<>();
            int begin = 0;
            for (int at = 0; at < length; at++) {
                if (bytes[at] != '\n') continue;
                String line = new String(bytes, begin, at - begin, StandardCharsets.UTF_8);
                position += at + 1 - begin;
                begin = at + 1;
                lines.add(new SourceRecord(place, Map.of("position", position), topic, Schema.STRING_SCHEMA, line));
            }
            if (lines.isEmpty()) Thread.sleep(IDLE_MS);
            return lines;
        }

        @Override public void stop() { }
    }

    public static class Sink extends SinkConnector {
        private Map<String, String> config;

        @Override public String version() { return VERSION; }
        @Override public void start(Map<String, String> config) { this.config = config; }
        @Override public Class<? extends Task> taskClass() { return SinkTask.class; }
        @Override public List<Map<String, String>> taskConfigs(int most) { return List.of(config); }
        @Override public void stop() { }
        @Override public ConfigDef config() { return Lines.config("file"); }
    }

    public static class SinkTask extends org.apache.kafka.connect.sink.SinkTask {
        private Path file;

        @Override public String version() { return VERSION; }
        @Override public void start(Map<String, String> config) { file = Path.of(config.get("file")); }

        @Override public void put(Collection<SinkRecord> records) {
            StringBuilder lines = new StringBuilder();
            for (SinkRecord record : records) lines.append(record.value()).append('\n');
            try {
                Files.writeString(file, lines, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override public void stop() { }
    }
}
