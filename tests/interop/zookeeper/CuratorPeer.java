import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Curator's locks, told what to do by lines on standard input; see zookeeper_kit.py. Usage: CuratorPeer HOSTS FOLDER */
public final class CuratorPeer {
  private static CuratorFramework zookeeper;
  private static Path folder;

  private static synchronized void tell(String who, String word) {
    System.out.println(who + " " + word);
    System.out.flush();
  }

  /** A permit of a semaphore, as if it were a lock. */
  private static final class Permit implements InterProcessLock {
    private final InterProcessSemaphoreV2 all;
    private Lease mine;

    Permit(String path, int permits) {
      all = new InterProcessSemaphoreV2(zookeeper, path, permits);
    }

    @Override
    public void acquire() throws Exception {
      mine = all.acquire();
    }

    @Override
    public boolean acquire(long time, TimeUnit unit) throws Exception {
      mine = all.acquire(time, unit);
      return mine != null;
    }

    @Override
    public void release() {
      all.returnLease(mine);
    }

    @Override
    public boolean isAcquiredInThisProcess() {
      return mine != null;
    }
  }

  private static InterProcessLock lockOf(String kind, String path) {
    switch (kind) {
      case "mutex":
        return new InterProcessMutex(zookeeper, path);
      case "read":
        return new InterProcessReadWriteLock(zookeeper, path).readLock();
      case "write":
        return new InterProcessReadWriteLock(zookeeper, path).writeLock();
      case "permit":
        return new Permit(path, 2);
      default:
        throw new IllegalArgumentException(kind);
    }
  }

  private static void oneTurn() throws IOException {
    Files.createDirectory(folder.resolve("inside"));
    int count = Integer.parseInt(Files.readString(folder.resolve("count")).strip());
    Files.writeString(folder.resolve("count"), String.valueOf(count + 1));
    Files.delete(folder.resolve("inside"));
  }

  /** One contender: Curator's mutexes belong to the thread that took them. */
  private static final class Contender extends Thread {
    private final String what;
    private final String who;
    private final InterProcessLock lock;
    private final long number;
    final CountDownLatch give = new CountDownLatch(1);

    Contender(String what, String who, InterProcessLock lock, long number) {
      this.what = what;
      this.who = who;
      this.lock = lock;
      this.number = number;
      setDaemon(true);
    }

    @Override
    public void run() {
      try {
        switch (what) {
          case "take" -> take();
          case "turns" -> turns();
          case "note" -> note();
          default -> throw new IllegalArgumentException(what);
        }
      } catch (Exception trouble) {
        trouble.printStackTrace();
        tell(who, "failed");
      }
    }

    private void take() throws Exception {
      if (number < 0) {
        lock.acquire();
      } else if (!lock.acquire(number, TimeUnit.MILLISECONDS)) {
        tell(who, "refused");
        return;
      }
      tell(who, "taken");
      give.await();
      lock.release();
      tell(who, "given");
    }

    private void turns() throws Exception {
      for (long i = 0; i < number; i++) {
        lock.acquire();
        try {
          oneTurn();
        } finally {
          lock.release();
        }
      }
      tell(who, "done");
    }

    private void note() throws Exception {
      lock.acquire();
      Files.writeString(
          folder.resolve("order"), who + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
      lock.release();
      tell(who, "done");
    }
  }

  public static void main(String[] arguments) throws Exception {
    folder = Path.of(arguments[1]);
    zookeeper =
        CuratorFrameworkFactory.builder()
            .connectString(arguments[0])
            .sessionTimeoutMs(1000)
            .connectionTimeoutMs(5000)
            .retryPolicy(new ExponentialBackoffRetry(100, 5))
            .build();
    zookeeper.start();
    zookeeper.blockUntilConnected();
    tell("peer", "ready");
    Map<String, Contender> contenders = new ConcurrentHashMap<>();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.split(" ");
      switch (words[0]) {
        case "give" -> contenders.get(words[1]).give.countDown();
        case "wish" -> {
          Revoker.attemptRevoke(zookeeper, words[2]);
          tell(words[1], "wished");
        }
        default -> {
          long number = words.length > 4 ? Long.parseLong(words[4]) : 0;
          Contender mine =
              new Contender(words[0], words[1], lockOf(words[2], words[3]), number);
          contenders.put(words[1], mine);
          mine.start();
        }
      }
    }
    zookeeper.close();
  }
}
