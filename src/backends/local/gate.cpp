#include "backends/local/gate.hpp"

#include "backends/local/place.hpp"
#include "base/check.hpp"
#include "base/monotonic.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <pthread.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace sallyport::backends::local {

/// The mapped file. Its first fields never change their place, so that every version can tell.
struct gate_region {
  std::array<char, 16> magic;
  std::array<char, 64> boot_id;
  std::uint64_t pid_namespace;
  std::uint64_t time_namespace;
  std::uint64_t map_bytes;
  std::uint32_t write_map;
  std::uint32_t shared_bytes;  // differs between builds that cannot share a pthread_mutex_t
  std::atomic<std::uint32_t> damaged;
  std::atomic<std::int32_t> inside;  // the pid of who is inside, 0: nobody; for messages only
  pthread_mutex_t mutex;
  // Zero where an older build made the file: what follows is for messages and tests.
  std::atomic<std::uint64_t> passes;  // how often somebody went in
};

namespace {

constexpr std::string_view magic = "sallyport-gate-1";
constexpr std::size_t region_bytes = 4096;
constexpr std::uint32_t shared_bytes = offsetof(gate_region, passes);
static_assert(sizeof(gate_region) <= region_bytes);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Where hundreds of processes want the two cores, one that was preempted inside may stand there for
/// a while and is not to blame. Who was inside for all of a shorter wait is not named.
constexpr duration long_inside = std::chrono::seconds{1};

/// A turn takes about a microsecond: it is often worth waiting for it awake.
constexpr int spins = 60;

void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// pthread_mutex_clocklock, also where the thread sanitizer does not know that call.
int lock_until(pthread_mutex_t& mutex, const timespec& until) {
#if defined(__SANITIZE_THREAD__)
  __tsan_mutex_pre_lock(&mutex, __tsan_mutex_try_lock);
  const int outcome = pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until);
  const bool locked = outcome == 0 || outcome == EOWNERDEAD;
  __tsan_mutex_post_lock(&mutex,
                         __tsan_mutex_try_lock | (locked ? 0U : __tsan_mutex_try_lock_failed), 0);
  return outcome;
#else
  return pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until);
#endif
}

gate_region* map(int file) {
  void* const at = ::mmap(nullptr, region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? nullptr : static_cast<gate_region*>(at);
}

void begin_mutex(pthread_mutex_t& mutex) {
  pthread_mutexattr_t how;
  SALLYPORT_CHECK(pthread_mutexattr_init(&how) == 0);
  SALLYPORT_CHECK(pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED) == 0);
  SALLYPORT_CHECK(pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST) == 0);
  SALLYPORT_CHECK(pthread_mutex_init(&mutex, &how) == 0);
  pthread_mutexattr_destroy(&how);
}

}  // namespace

base::result<std::monostate> gate::erase(int file) {
  // Every block up front: writing to a hole of a full disk through the map would end the process.
  const std::array<char, magic.size()> nothing{};
  int error = ::posix_fallocate(file, 0, region_bytes);
  if (error == 0 && (::ftruncate(file, region_bytes) != 0 ||
                     ::pwrite(file, nothing.data(), nothing.size(), 0) != std::ssize(nothing))) {
    error = errno;
  }
  if (error != 0) return tl::unexpected(system_failure(error, "make the store's gate"));
  return std::monostate{};
}

base::result<std::unique_ptr<gate>> gate::begin(int file, const agreement& terms) {
  if (auto erased = erase(file); !erased) return tl::unexpected(erased.error());
  gate_region* const region = map(file);
  if (region == nullptr) {
    return tl::unexpected(system_failure(errno, "make the store's gate"));
  }
  std::memset(static_cast<void*>(region), 0, region_bytes);
  const auto id_bytes = std::min(terms.machine.boot_id.size(), region->boot_id.size() - 1);
  std::memcpy(region->boot_id.data(), terms.machine.boot_id.data(), id_bytes);
  region->pid_namespace = terms.machine.pid_namespace;
  region->time_namespace = terms.machine.time_namespace;
  region->map_bytes = terms.map_bytes;
  region->write_map = terms.write_map ? 1 : 0;
  region->shared_bytes = shared_bytes;
  begin_mutex(region->mutex);
  // Last, so that what a killed process left half made is no gate.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(region->magic.data(), magic.data(), magic.size());
  return std::unique_ptr<gate>(new gate(region, terms));
}

base::result<std::unique_ptr<gate>> gate::make(int folder, const std::string& file, mode_t mode,
                                               const agreement& terms) {
  const std::string draft = draft_of(file);
  ::unlinkat(folder, draft.c_str(), 0);
  const descriptor made(
      ::openat(folder, draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!made.open()) return tl::unexpected(system_failure(errno, "make the store's gate"));
  ::fchmod(made.number(), mode);
  auto begun = begin(made.number(), terms);
  // In place only when it is whole.
  if (begun && ::renameat(folder, draft.c_str(), folder, file.c_str()) != 0) {
    begun = tl::unexpected(system_failure(errno, "make the store's gate"));
  }
  if (!begun) ::unlinkat(folder, draft.c_str(), 0);
  return begun;
}

gate::attached gate::attach(int folder, const std::string& file, const machine_identity& here) {
  const descriptor opened(::openat(folder, file.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!opened.open()) return {errno == ENOENT ? finding::missing : finding::damaged};
  struct stat about {};
  if (::fstat(opened.number(), &about) != 0 || !S_ISREG(about.st_mode) ||
      about.st_size != region_bytes) {
    return {finding::damaged};
  }
  gate_region* const region = map(opened.number());
  if (region == nullptr) return {finding::damaged};
  const auto drop = [&](finding why) -> attached {
    ::munmap(region, region_bytes);
    return {why};
  };
  agreement terms;
  const std::string_view found_magic(region->magic.data(), magic.size());
  if (found_magic == std::string_view(std::array<char, magic.size()>{}.data(), magic.size())) {
    return drop(finding::missing);
  }
  if (found_magic != magic || region->shared_bytes != shared_bytes) return drop(finding::damaged);
  region->boot_id.back() = '\0';
  terms.machine.boot_id = region->boot_id.data();
  terms.machine.pid_namespace = region->pid_namespace;
  terms.machine.time_namespace = region->time_namespace;
  terms.map_bytes = region->map_bytes;
  terms.write_map = region->write_map != 0;
  if (terms.machine != here) {
    return drop(terms.machine.boot_id == here.boot_id ? finding::foreign : finding::missing);
  }
  if (region->damaged.load() != 0) return drop(finding::damaged);
  return {finding::usable, std::unique_ptr<gate>(new gate(region, std::move(terms)))};
}

gate::~gate() { ::munmap(region_, region_bytes); }

gate::pass gate::current_pass() const noexcept {
  const std::uint64_t number = region_->passes.load(std::memory_order_relaxed);
  return {region_->inside.load(std::memory_order_relaxed), number};
}

bool gate::held_up() const {
  const pass now = current_pass();
  return now.pid != 0 && stopped(now.pid) && current_pass() == now;
}

base::failure gate::too_late(const pass& at_first, duration waited) const {
  const pass now = current_pass();
  const bool same = now.pid != 0 && now == at_first && waited >= long_inside;
  if (same || held_up()) {
    return {make_error_code(errc::unavailable),
            "process " + describe_process(now.pid) +
                " is inside the store and does not come out; continue it (kill -CONT) or end it"};
  }
  return {
      make_error_code(errc::unavailable),
      "many processes use the store at this moment, and the turn of this one did not come in " +
          std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(waited).count()) +
          " ms; nothing is wrong with the store, try again"};
}

base::result<std::monostate> gate::enter(time_point answer_by) {
  pthread_mutex_t& mutex = region_->mutex;
  int outcome = pthread_mutex_trylock(&mutex);
  for (int spin = 0; outcome == EBUSY && spin < spins; ++spin) {
    relax();
    outcome = pthread_mutex_trylock(&mutex);
  }
  if (outcome == EBUSY) {
    const pass at_first = current_pass();
    const time_point began = lease_clock::now();
    outcome = lock_until(mutex, base::monotonic_after(answer_by - began));
    if (outcome == ETIMEDOUT) return tl::unexpected(too_late(at_first, lease_clock::now() - began));
  }
  if (outcome == EOWNERDEAD) {
    // What it was doing is undone: a transaction that was not committed never happened.
    outcome = pthread_mutex_consistent(&mutex);
  }
  if (outcome != 0) return tl::unexpected(system_failure(outcome, "enter the store"));
  // Only who is inside writes these, so a plain sum will do.
  const std::uint64_t before = region_->passes.load(std::memory_order_relaxed);
  region_->passes.store(before + 1, std::memory_order_relaxed);
  region_->inside.store(self_, std::memory_order_relaxed);
  return std::monostate{};
}

void gate::leave() noexcept {
  region_->inside.store(0, std::memory_order_relaxed);
  SALLYPORT_CHECK(pthread_mutex_unlock(&region_->mutex) == 0);
}

void gate::mark_damaged() noexcept { region_->damaged.store(1); }

}  // namespace sallyport::backends::local
