import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Adds one to the number in a file, under a lock that Sallyport's programs take as well: java Orders HOSTS FILE TIMES */
public final class Orders {
  public static void main(String[] arguments) throws Exception {
    Path file = Path.of(arguments[1]);
    int times = Integer.parseInt(arguments[2]);
    // docs: begin
    try (CuratorFramework zookeeper =
        CuratorFrameworkFactory.newClient(arguments[0], new ExponentialBackoffRetry(100, 5))) {
      zookeeper.start();
      InterProcessMutex lock = new InterProcessMutex(zookeeper, "/locks/orders");
      for (int i = 0; i < times; i++) {
        lock.acquire();
        try {
          int count = Integer.parseInt(Files.readString(file).strip());
          Files.writeString(file, count + 1 + "\n");
        } finally {
          lock.release();
        }
      }
    }
    // docs: end
  }
}
