import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Turns with Curator's InterProcessMutex, for the benchmark; the conversation is described in README.md. The virtual machine has had
 * some seconds of turns before it says that it is ready.
 */
public final class CuratorLock {
  private static final long WARM_NANOSECONDS = 2_500_000_000L;

  /** As much of Redis as the conversation needs. */
  private static final class Conversation implements AutoCloseable {
    private final Socket socket;
    private final InputStream in;

    Conversation(int port) throws IOException {
      socket = new Socket("127.0.0.1", port);
      in = new BufferedInputStream(socket.getInputStream());
    }

    /** The answer's last line, or its last text. */
    String say(String... words) throws IOException {
      StringBuilder command = new StringBuilder("*" + words.length + "\r\n");
      for (String each : words) {
        command.append("$").append(each.length()).append("\r\n").append(each).append("\r\n");
      }
      OutputStream out = socket.getOutputStream();
      out.write(command.toString().getBytes(StandardCharsets.US_ASCII));
      out.flush();
      return answer();
    }

    private String answer() throws IOException {
      String line = line();
      switch (line.charAt(0)) {
        case '*':
          String last = "";
          for (int left = Integer.parseInt(line.substring(1)); left > 0; left--) {
            last = answer();
          }
          return last;
        case '$':
          return line();
        case '-':
          throw new IOException(line);
        default:
          return line.substring(1);
      }
    }

    private String line() throws IOException {
      StringBuilder text = new StringBuilder();
      for (int next = in.read(); next != '\n'; next = in.read()) {
        if (next < 0) {
          throw new IOException("the conversation has ended");
        }
        if (next != '\r') {
          text.append((char) next);
        }
      }
      return text.toString();
    }

    @Override
    public void close() throws IOException {
      socket.close();
    }
  }

  private static String takeTurns(InterProcessMutex lock, int seat, long begin, long end, long hold)
      throws Exception {
    StringBuilder turns = new StringBuilder();
    sleepFor(begin - System.nanoTime());
    while (true) {
      long wanted = System.nanoTime();
      if (wanted >= end) {
        return turns.toString();
      }
      lock.acquire();
      long entered = System.nanoTime();
      sleepFor(hold);
      long released = System.nanoTime();
      lock.release();
      turns.append(seat).append(' ').append(wanted).append(' ').append(entered).append(' ');
      turns.append(released).append(" 0\n");
    }
  }

  private static void sleepFor(long nanoseconds) throws InterruptedException {
    if (nanoseconds > 0) {
      Thread.sleep(nanoseconds / 1_000_000, (int) (nanoseconds % 1_000_000));
    }
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments[0].equals("--try")) {
      return;
    }
    int port = Integer.parseInt(arguments[0]);
    int process = Integer.parseInt(arguments[1]);
    int seats = Integer.parseInt(arguments[2]);
    long hold = Long.parseLong(arguments[3]) * 1000;
    CuratorFramework zookeeper =
        CuratorFrameworkFactory.newClient(
            System.getenv("BENCH_ZOOKEEPER"), 30_000, 15_000, new ExponentialBackoffRetry(100, 5));
    zookeeper.start();
    long now = System.nanoTime();
    takeTurns(new InterProcessMutex(zookeeper, "/curator/warm-" + process), 0, now, now + WARM_NANOSECONDS, 0);
    try (Conversation bench = new Conversation(port)) {
      bench.say("INCR", "bench/ready");
      String[] go = bench.say("BLPOP", "bench/go", "0").split(" ");
      long begin = Long.parseLong(go[0]);
      long end = Long.parseLong(go[1]);
      ExecutorService pool = Executors.newFixedThreadPool(seats);
      List<Future<String>> all = new ArrayList<>();
      for (int i = 0; i < seats; i++) {
        int seat = process * seats + i;
        InterProcessMutex lock = new InterProcessMutex(zookeeper, "/curator/lock");
        all.add(pool.submit(() -> takeTurns(lock, seat, begin, end, hold)));
      }
      StringBuilder turns = new StringBuilder();
      for (Future<String> each : all) {
        turns.append(each.get());
      }
      pool.shutdown();
      bench.say("RPUSH", "bench/turns", turns.toString());
    }
    zookeeper.close();
  }
}
