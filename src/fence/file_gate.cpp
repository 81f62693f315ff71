#include "base/log.hpp"
#include "fence/door.hpp"
#include "fence/gate_file.hpp"
#include "fence/gate_record.hpp"
#include "fence/gate_state.hpp"
#include <sallyport/error.hpp>
#include <sallyport/fence.hpp>
#include <sallyport/lease_clock.hpp>

#include <atomic>
#include <string>
#include <system_error>
#include <utility>

namespace sallyport::fence {
namespace {

constexpr std::chrono::milliseconds longest_wait_limit = std::chrono::hours{24};
constexpr int open_attempts = 8;

template <class T>
tl::unexpected<base::failure> failure_of(base::result<T>& outcome) {
  return tl::unexpected<base::failure>(std::move(outcome.error()));
}

base::result<gate_image> read_image_of(const gate_file& file, const std::filesystem::path& path) {
  auto bytes = file.read();
  if (!bytes) return failure_of(bytes);
  auto image = read_image(*bytes);
  if (!image) return base::fail(image.error().code, about(path, image.error().detail));
  return image;
}

base::result<std::filesystem::path> checked(const std::filesystem::path& path,
                                            const file_gate_options& options) {
  if (!path.has_filename() || path.native().find('\0') != std::string::npos) {
    return base::fail(errc::bad_option, about(path, "the path names no file"));
  }
  if (options.wait_limit < std::chrono::milliseconds::zero() ||
      options.wait_limit > longest_wait_limit) {
    return base::fail(errc::bad_option, about(path, "wait_limit must be between 0 and 24 h"));
  }
  if (!options.lock.empty()) {
    if (auto lock = check_lock(options.lock); !lock) return failure_of(lock);
  }
  // Absolute, so that the gate stays the same when the process changes its folder.
  std::error_code error;
  auto absolute = std::filesystem::absolute(path, error);
  if (error) return base::fail(errc::unavailable, about(path, error.message()));
  return absolute;
}

base::result<gate_file> open_or_create(const std::filesystem::path& path,
                                       const file_gate_options& options) {
  for (int attempt = 0; attempt < open_attempts; ++attempt) {
    auto opened = gate_file::open(path);
    if (!opened) return failure_of(opened);
    if (*opened) return std::move(**opened);
    if (!options.create) {
      return base::fail(errc::bad_option,
                        about(path,
                              "missing, and options.create is false; if it was deleted, "
                              "restore it, or make it anew once no late holder can be left"));
    }
    const gate_record first{.sequence = 1, .state = {.lock = options.lock}};
    if (auto made = gate_file::create(path, first); !made) return failure_of(made);
  }
  return base::fail(errc::unavailable, about(path, "something removes it as fast as it is made"));
}

}  // namespace

/// What a file_gate remembers between runs; all else is read from the file each time, under its
/// lock. Thread safety: all functions may be called from any thread; the constant members are set
/// before the first.
class file_gate::keeper {
 public:
  keeper(std::filesystem::path path, const file_gate_options& options)
      : path_(std::move(path)),
        wait_limit_(options.wait_limit),
        inheritable_(options.inheritable) {}

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Checks an opened file, binds it to `lock` (if any) and takes it for this gate's own. True when
  /// one of its records had to be mended. REQUIRES: called once, before run().
  base::result<bool> adopt(gate_file file, const std::string& lock);

  base::result<verdict> run(const pass& shown, const std::function<void()>& action);
  base::result<verdict> rebind(const std::string& from, const pass& shown, rebinding kind);
  base::result<std::string> bound_lock();

 private:
  struct admission {
    verdict answer;
    gate_file file;  // when passed: with part::action locked, part::turn free again
  };

  base::result<admission> admit(const pass& shown);
  base::result<gate_file> enter(lease_clock::time_point deadline);
  base::result<void> remember(const gate_file& file, const gate_image& image, gate_state wanted);
  base::result<void> sync(const gate_file& file);

  lease_clock::time_point deadline() const { return lease_clock::now() + wait_limit_; }

  // Constant after adopt().
  std::filesystem::path path_;
  std::chrono::milliseconds wait_limit_;
  bool inheritable_;
  file_identity identity_;

  // Changed only under part::turn, which the language's memory model does not know: hence atomic.
  std::atomic<std::uint64_t> synced_sequence_{0};  // the newest record known to be on disk
  std::atomic<bool> sync_failed_{false};  // then write anew: the kernel may call lost bytes clean
  // Touched when an action begins and ends, so that actions of threads happen before one another.
  std::atomic<std::uint64_t> order_{0};
};

base::result<bool> file_gate::keeper::adopt(gate_file file, const std::string& lock) {
  auto locked = file.lock(part::turn, lock_mode::exclusive, deadline());
  if (!locked) return failure_of(locked);
  auto image = read_image_of(file, path_);
  if (!image) return failure_of(image);

  gate_state wanted = image->newest.state;
  if (!lock.empty() && wanted.lock.empty()) wanted.lock = lock;
  if (!lock.empty() && wanted.lock != lock) {
    return base::fail(errc::bad_option,
                      about(path_, "belongs to the lock \"" + wanted.lock + "\", not to \"" + lock +
                                       "\"; give each lock's gate its own file"));
  }
  identity_ = file.identity();
  // Also for a file that we did not make: its maker may have died before it came to this.
  if (auto synced = gate_file::sync_folder_of(path_); !synced) return failure_of(synced);
  if (auto done = remember(file, *image, std::move(wanted)); !done) return failure_of(done);
  return image->other_is_torn;
}

base::result<gate_file> file_gate::keeper::enter(lease_clock::time_point deadline) {
  auto opened = gate_file::open(path_);
  if (!opened) return failure_of(opened);
  if (*opened) {
    auto locked = (*opened)->lock(part::turn, lock_mode::exclusive, deadline);
    if (!locked) return failure_of(locked);
    // Looked at under the lock: it may have been replaced between the opening and now.
    if ((*opened)->identity() == identity_ && (*opened)->in_place()) return std::move(**opened);
  }
  return base::fail(errc::unavailable,
                    about(path_,
                          "removed or replaced since this gate was opened, and its numbers "
                          "with it; open the gate anew once no late holder can be left"));
}

base::result<file_gate::keeper::admission> file_gate::keeper::admit(const pass& shown) {
  const auto until = deadline();
  auto file = enter(until);
  if (!file) return failure_of(file);
  auto image = read_image_of(*file, path_);
  if (!image) return failure_of(image);

  // A late holder is told at once; it need not wait for the newer one's action to end.
  const verdict answer = image->newest.state.judge(shown);
  if (answer != verdict::passed) return admission{answer, std::move(*file)};

  if (auto locked = file->lock(part::action, shown.mode, until); !locked) return failure_of(locked);
  gate_state wanted = image->newest.state;
  wanted.raise(shown);
  if (auto done = remember(*file, *image, std::move(wanted)); !done) return failure_of(done);
  file->unlock(part::turn);
  return admission{answer, std::move(*file)};
}

base::result<void> file_gate::keeper::remember(const gate_file& file, const gate_image& image,
                                               gate_state wanted) {
  const bool write = wanted != image.newest.state || image.other_is_torn || sync_failed_;
  // Whoever wrote the newest record may have been killed before it was on disk. It must be there
  // before anyone acts on it, and before the older one, which a crash would fall back on, is gone.
  if (image.newest.sequence != synced_sequence_) {
    if (auto synced = sync(file); !synced) return synced;
    synced_sequence_ = image.newest.sequence;
  }
  if (!write) return {};

  const gate_record next{.sequence = image.newest.sequence + 1, .state = std::move(wanted)};
  const std::size_t index = slot_of(next.sequence);
  auto done = file.write(index, encode(next));
  if (done) done = sync(file);
  if (!done) {
    // The kernel may show to readers what it failed to put on disk: nobody may take it for
    // remembered.
    (void)file.write(index, slot{});
    return done;
  }
  synced_sequence_ = next.sequence;
  return {};
}

base::result<void> file_gate::keeper::sync(const gate_file& file) {
  auto synced = file.sync();
  sync_failed_ = !synced;
  return synced;
}

base::result<verdict> file_gate::keeper::run(const pass& shown,
                                             const std::function<void()>& action) {
  if (auto usable = check_pass(shown); !usable) return failure_of(usable);
  auto admitted = admit(shown);
  if (!admitted) return failure_of(admitted);
  if (admitted->answer != verdict::passed) return admitted->answer;
  if (inheritable_) {
    if (auto passed_on = admitted->file.pass_on(); !passed_on) return failure_of(passed_on);
  }

  struct order_touch {
    std::atomic<std::uint64_t>& order;
    explicit order_touch(std::atomic<std::uint64_t>& touched) : order(touched) { ++order; }
    order_touch(const order_touch&) = delete;
    order_touch& operator=(const order_touch&) = delete;
    ~order_touch() { ++order; }
  };
  const order_touch touch{order_};  // ends before `admitted`, which unlocks
  action();
  return verdict::passed;
}

base::result<verdict> file_gate::keeper::rebind(const std::string& from, const pass& shown,
                                                rebinding kind) {
  if (auto usable = check_rebinding(from, shown); !usable) return failure_of(usable);
  const auto until = deadline();
  auto file = enter(until);
  if (!file) return failure_of(file);
  auto image = read_image_of(*file, path_);
  if (!image) return failure_of(image);
  const verdict answer = image->newest.state.judge_rebinding(from, shown, kind);
  if (answer != verdict::passed) return answer;

  auto locked = file->lock(part::action, lock_mode::exclusive, until);
  if (!locked) return failure_of(locked);
  gate_state wanted = image->newest.state;
  wanted.rebind(from, shown, kind);
  if (auto done = remember(*file, *image, std::move(wanted)); !done) return failure_of(done);
  return answer;
}

base::result<std::string> file_gate::keeper::bound_lock() {
  auto file = enter(deadline());
  if (!file) return failure_of(file);
  auto image = read_image_of(*file, path_);
  if (!image) return failure_of(image);
  return std::move(image->newest.state.lock);
}

file_gate::file_gate(const std::filesystem::path& path, const file_gate_options& options) {
  auto usable = value_or_throw(checked(path, options));
  keeper_ = std::make_unique<keeper>(usable, options);
  const bool mended =
      value_or_throw(keeper_->adopt(value_or_throw(open_or_create(usable, options)), options.lock));
  if (mended) {
    base::log(base::log_level::warning,
              about(usable,
                    "one of its two records was not whole (a write was cut short, or the "
                    "disk lost it); going on from the other"));
  }
}

file_gate::~file_gate() = default;

verdict file_gate::run_inside(const pass& shown, const std::function<void()>& action) {
  return value_or_throw(keeper_->run(shown, action));
}

verdict file_gate::rebind_inside(const std::string& from, const pass& shown, rebinding kind) {
  const verdict answer = value_or_throw(keeper_->rebind(from, shown, kind));
  if (answer == verdict::passed) {
    base::log(base::log_level::info,
              about(keeper_->path(), "bound to \"" + shown.lock + "\" from token " +
                                         std::to_string(shown.token.value()) + " on, after \"" +
                                         from + "\""));
  }
  return answer;
}

std::string file_gate::read_bound_lock() { return value_or_throw(keeper_->bound_lock()); }

}  // namespace sallyport::fence
