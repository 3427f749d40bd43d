// Batches by Apache Kafka's own classes, for the tests of this crate.
// java -cp '<libs>/*' GoldenBatches.java write <dir>          writes small-<codec>.bin and large-<codec>.bin
// java -cp '<libs>/*' GoldenBatches.java read <file>...       checks batches of the same records, whoever made them
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.internals.BufferSupplier;

public class GoldenBatches {
    static final long T0 = 1_700_000_000_000L;

    record Expected(long timestamp, byte[] key, byte[] value, Header[] headers) { }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    // The same rule as `sample` in tests/interop.rs.
    static List<Expected> sample(boolean large) {
        List<Expected> records = new ArrayList<>();
        for (int i = 0; i < 100; i++) {
            byte[] key = i % 5 == 0 ? null : bytes("key-" + i);
            byte[] value = i % 7 == 0 ? null : i % 7 == 1 ? new byte[0] : bytes(("value-" + i).repeat(i % 11));
            if (large && i % 10 == 2) {
                value = bytes(("large-" + i + ",").repeat(2000));
            }
            Header[] headers = new Header[i % 3];
            for (int j = 0; j < headers.length; j++) {
                headers[j] = new RecordHeader("h" + j, j % 2 == 1 ? null : bytes("v" + i));
            }
            records.add(new Expected(T0 + (i * 37) % 100 - 50, key, value, headers));
        }
        return records;
    }

    static byte[] build(CompressionType type, boolean large) {
        try (MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1024), (byte) 2,
                Compression.of(type).build(), TimestampType.CREATE_TIME, 0L, -1L, 77L, (short) 3, 5)) {
            for (Expected record : sample(large)) {
                builder.append(record.timestamp, record.key, record.value, record.headers);
            }
            ByteBuffer buffer = builder.build().buffer();
            byte[] out = new byte[buffer.remaining()];
            buffer.get(out);
            return out;
        }
    }

    static void check(boolean same, String what) {
        if (!same) {
            throw new IllegalStateException(what);
        }
    }

    static byte[] copy(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] out = new byte[buffer.remaining()];
        buffer.get(out);
        return out;
    }

    static void read(Path file) throws Exception {
        List<Expected> expected = sample(file.getFileName().toString().startsWith("large"));
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(file)));
        int i = 0;
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            try (var skipping = batch.skipKeyValueIterator(BufferSupplier.NO_CACHING)) {
                int count = 0;
                while (skipping.hasNext()) {
                    check(skipping.next().offset() == count++, "offset");
                }
                check(count == batch.countOrNull(), "count");
            }
            try (var iterator = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
                while (iterator.hasNext()) {
                    Record record = iterator.next();
                    Expected want = expected.get(i);
                    check(record.offset() == i && record.timestamp() == want.timestamp, "stamp of " + i);
                    check(java.util.Arrays.equals(copy(record.key()), want.key), "key of " + i);
                    check(java.util.Arrays.equals(copy(record.value()), want.value), "value of " + i);
                    check(java.util.Arrays.equals(record.headers(), want.headers), "headers of " + i);
                    i++;
                }
            }
        }
        check(i == expected.size(), "number of records");
        System.out.println("ok " + file.getFileName());
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("write")) {
            for (CompressionType type : CompressionType.values()) {
                Path dir = Path.of(args[1]);
                Files.write(dir.resolve("small-" + type.name + ".bin"), build(type, false));
                if (type != CompressionType.NONE) {
                    Files.write(dir.resolve("large-" + type.name + ".bin"), build(type, true));
                }
            }
            return;
        }
        for (int i = 1; i < args.length; i++) {
            read(Path.of(args[i]));
        }
    }
}
