#pragma once

#include "backends/zookeeper/address.hpp"
#include "backends/zookeeper/speech.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sallyport::backends::zookeeper {

/// Hears what comes; on the library's threads.
class wire_listener {
 public:
  wire_listener() = default;
  wire_listener(const wire_listener&) = delete;
  wire_listener& operator=(const wire_listener&) = delete;
  virtual ~wire_listener() = default;

  virtual void answered(errand_number errand, reply said) = 0;
  virtual void line_up(line_number line, session_id session, duration timeout) = 0;
  virtual void line_down(line_number line) = 0;
  virtual void line_ended(line_number line) = 0;
  virtual void happened(const std::string& path, bool gone, bool below) = 0;
};

/// Requests to and answers from an ensemble, by ZooKeeper's C library, which has two threads for each
/// line. Knows sessions and nodes, but nothing of locks.
/// Thread safety: none: one thread at a time; answers come on any.
class wire {
 public:
  /// The listener must live until close() has returned, and hears nothing after that.
  wire(const address& where, wire_listener& listener);
  ~wire();
  wire(const wire&) = delete;
  wire& operator=(const wire&) = delete;

  /// Does not wait for a connection.
  void open(line_number line, duration timeout);
  void send(line_number line, errand_number errand, const request& what);
  /// Ends the session, too, or (`abandon`) leaves it to itself.
  void close(line_number line, bool abandon);
  /// `hangs`: goes on with the next server. A line that could not be opened is opened.
  void doubt(line_number line, bool hangs);
  /// Lines that ended on their own threads are put away, as far as this is another one.
  void bury();

 private:
  class line;

  void end(std::shared_ptr<line> which);

  line* find(line_number number);

  const std::string servers_;
  const std::string login_;  // empty: none
  const std::vector<std::string> all_;
  const bool plain_folders_;
  wire_listener& listener_;
  std::map<line_number, std::shared_ptr<line>> lines_;
  std::vector<std::shared_ptr<line>> dead_;
};

}  // namespace sallyport::backends::zookeeper
