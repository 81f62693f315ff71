#pragma once

#include <mutex>

// Clang's thread-safety analysis can't see through libstdc++'s std::mutex, so guarded state uses
// this one.
#if defined(__clang__)
#define SALLYPORT_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define SALLYPORT_THREAD_ANNOTATION(x)
#endif

#define SALLYPORT_GUARDED_BY(x) SALLYPORT_THREAD_ANNOTATION(guarded_by(x))
#define SALLYPORT_REQUIRES(...) SALLYPORT_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define SALLYPORT_EXCLUDES(...) SALLYPORT_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace sallyport::base {

/// std::mutex with the annotations that let clang prove "guarded by". BasicLockable, so that
/// std::condition_variable_any is not needed: use native() with a condition variable.
class SALLYPORT_THREAD_ANNOTATION(capability("mutex")) mutex {
 public:
  void lock() SALLYPORT_THREAD_ANNOTATION(acquire_capability()) { native_.lock(); }
  void unlock() SALLYPORT_THREAD_ANNOTATION(release_capability()) { native_.unlock(); }

  /// The std::mutex inside, for condition variables only.
  std::mutex& native() { return native_; }

 private:
  std::mutex native_;
};

/// Holds a mutex for a scope.
class SALLYPORT_THREAD_ANNOTATION(scoped_lockable) mutex_lock {
 public:
  explicit mutex_lock(mutex& held) SALLYPORT_THREAD_ANNOTATION(acquire_capability(held))
      : held_(held) {
    held_.lock();
  }
  ~mutex_lock() SALLYPORT_THREAD_ANNOTATION(release_capability()) { held_.unlock(); }
  mutex_lock(const mutex_lock&) = delete;
  mutex_lock& operator=(const mutex_lock&) = delete;

 private:
  mutex& held_;
};

}  // namespace sallyport::base
