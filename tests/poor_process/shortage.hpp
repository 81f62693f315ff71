#pragma once

#include <sys/resource.h>
#include <vector>

/// Shortages that a test makes: this program has an operator new and a pthread_create of its own.
namespace sallyport::poor {

/// While it lives, no thread can be started in this process.
class no_threads {
 public:
  no_threads();
  ~no_threads();
  no_threads(const no_threads&) = delete;
  no_threads& operator=(const no_threads&) = delete;
};

/// While it lives, an allocation of the calling thread fails: the one after `before` others, and, if
/// it is for good, each that follows.
class no_memory {
 public:
  no_memory(int before, bool for_good);
  ~no_memory();
  no_memory(const no_memory&) = delete;
  no_memory& operator=(const no_memory&) = delete;

  /// Whether any allocation failed so far.
  [[nodiscard]] bool struck() const;
};

/// While it lives, this process may open `left` more descriptors.
class no_descriptors {
 public:
  explicit no_descriptors(int left);
  ~no_descriptors();
  no_descriptors(const no_descriptors&) = delete;
  no_descriptors& operator=(const no_descriptors&) = delete;

 private:
  rlimit before_{};
  std::vector<int> taken_;  // the gaps below the limit
};

}  // namespace sallyport::poor
