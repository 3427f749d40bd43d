import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Apache Kafka's dump tool, many times in one JVM. Each line of standard input is one run: its arguments, with tabs between them.
 * The answer to each: exit code, bytes of standard output, bytes of standard error (int32 each), and the bytes.
 */
public class Dump {
    public static void main(String[] none) throws Exception {
        DataOutputStream answers = new DataOutputStream(System.out);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int code = 0;
            try {
                org.apache.kafka.tools.DumpLogSegments.main(line.split("\t"));
            } catch (Throwable error) {
                code = 1;
                System.err.println("Exception in thread \"main\" " + error);
            }
            answers.writeInt(code);
            answers.writeInt(out.size());
            answers.writeInt(err.size());
            out.writeTo(answers);
            err.writeTo(answers);
            answers.flush();
        }
    }
}
