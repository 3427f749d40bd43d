import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import org.apache.kafka.common.utils.internals.Exit;

/**
 * Apache Kafka's tools, many runs in one JVM. Each line of standard input is one run: the tool's class, a file for its standard input or
 * nothing, and its arguments, with tabs between them. The answer to each: exit code, bytes of standard output, bytes of standard error
 * (int32 each), and the bytes.
 */
public class Tools {
    static final long PATIENCE_MS = 60_000;

    static class Ended extends Error { }

    static final List<Runnable> hooks = new ArrayList<>();
    static Integer code;

    static synchronized void end(int status) {
        // A tool that catches everything may say so twice.
        if (code == null)
            code = status;
    }

    public static void main(String[] none) throws Exception {
        DataOutputStream answers = new DataOutputStream(System.out);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Exit.setExitProcedure((status, message) -> {
            if (message != null)
                System.err.println(message);
            end(status);
            throw new Ended();
        });
        Exit.setHaltProcedure((status, message) -> end(status));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int status = run(line.split("\t"));
            answers.writeInt(status);
            answers.writeInt(out.size());
            answers.writeInt(err.size());
            out.writeTo(answers);
            err.writeTo(answers);
            answers.flush();
        }
    }

    static int run(String[] words) throws Exception {
        code = null;
        if (!words[1].isEmpty())
            System.setIn(new FileInputStream(words[1]));
        Object args = Arrays.copyOfRange(words, 2, words.length);
        Thread tool = new Thread(() -> {
            try {
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, args);
                end(0);
            } catch (Throwable error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                if (!(cause instanceof Ended))
                    System.err.println("Exception in thread \"main\" " + cause);
                end(1);
            }
        });
        tool.start();
        tool.join(PATIENCE_MS);
        if (tool.isAlive()) {
            System.err.println("the tool does not end");
            tool.interrupt();
            end(-1);
        }
        hooks.forEach(Runnable::run);
        hooks.clear();
        return code;
    }
}
