#pragma once

#include "backend_api/parked_acquires.hpp"
#include "backends/etcd/speech.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace sallyport::backends::etcd {

/// The store's name is to be asked for.
struct name_question {
  std::uint64_t number = 0;
  time_point answer_by;
};

/// Whether another cluster may answer after this. What etcd itself has said is no such trouble.
template <class T>
[[nodiscard]] bool casts_doubt(const reply<T>& said) {
  return !said.value &&
         (said.doubtful || said.why == trouble::unknown || said.why == trouble::unavailable);
}

/// Which acquires may be sent and which grants may be told, by what is known of the store's name.
/// Whoever comes while it is not known joins the question that is under way, if there is one that
/// was asked since the last trouble and is answered in time.
///
/// | the name | acquire | grant |
/// |---|---|---|
/// | is fresh: given by hand, or asked for after the last trouble and learnt | is sent | is told |
/// | else | waits for a question | waits for a question |
/// | was learnt | is sent | is told if there was no trouble since it came, else it is doubtful |
/// | the question failed | fails: nothing was sent | is doubtful |
///
/// Pure: it asks nobody, and reads no clock. Thread safety: none.
/// Invariant: each acquire and each grant that was given to it comes out once.
class naming {
 public:
  explicit naming(bool given_by_hand) : by_hand_(given_by_hand) {}

  /// Another cluster may answer from now on.
  void doubt() noexcept { ++doubts_; }
  [[nodiscard]] bool fresh() const noexcept { return by_hand_ || named_at_ == doubts_; }

  /// Keep until the name is known. What is to be asked for that; nullopt: it is asked for already.
  [[nodiscard]] std::optional<name_question> park(const backend_api::acquire_request& asked);
  [[nodiscard]] std::optional<name_question> keep(const backend_api::holder_id& holder,
                                                  const backend_api::granted& given,
                                                  time_point answer_by);

  struct grant {
    backend_api::holder_id holder;
    backend_api::granted given;
  };
  struct released {
    std::vector<std::unique_ptr<const backend_api::parked_acquire>> acquires{};
    std::vector<grant> good{};
    std::vector<backend_api::holder_id> doubtful{};  ///< grants that can't be told
  };
  /// Whom this answer concerns.
  [[nodiscard]] released answered(std::uint64_t number, bool learnt);
  /// Nobody will be let in any more.
  [[nodiscard]] released take_all();

  /// The contender leaves, or has lost what it was granted. Null, false: it does not wait here.
  [[nodiscard]] std::unique_ptr<const backend_api::parked_acquire> take_acquire(
      const backend_api::holder_id& holder);
  [[nodiscard]] bool take_grant(const backend_api::holder_id& holder);

 private:
  struct parked {
    std::unique_ptr<const backend_api::parked_acquire> acquire;
    std::uint64_t question = 0;
  };
  struct kept {
    backend_api::granted given;
    std::uint64_t question = 0;
    std::uint64_t came_at = 0;  // what doubts_ was
  };
  struct asked {
    std::uint64_t at = 0;  // what doubts_ was
    time_point answer_by;
  };

  /// The number of the question to wait for, and itself if it is new.
  std::uint64_t question_for(time_point answer_by, std::optional<name_question>& fresh_one);

  const bool by_hand_;
  std::uint64_t doubts_ = 1;    // grows with every trouble
  std::uint64_t named_at_ = 0;  // what it was when the name was asked for that is known
  std::uint64_t next_question_ = 1;
  std::unordered_map<std::uint64_t, asked> under_way_;
  std::unordered_map<backend_api::holder_id, parked> parked_;
  std::unordered_map<backend_api::holder_id, kept> kept_;
};

}  // namespace sallyport::backends::etcd
