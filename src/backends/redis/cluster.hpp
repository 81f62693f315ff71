#pragma once

#include "backends/redis/router.hpp"
#include "backends/redis/slot_map.hpp"
#include "base/mutex.hpp"
#include "base/random.hpp"
#include "net/pump.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sallyport::backends::redis {

/// Every lock lives on the master that owns its slot.
///
/// The map of slots comes from one node at a time: a seed of the address or a master known since;
/// if it does not answer, the next one is asked. MOVED corrects the map at once and has it read
/// anew; so do the loss of a connection and CLUSTERDOWN, with a growing, jittered pause while
/// nothing gets better. A node gets connections when its first command comes.
/// Thread safety: all members.
class cluster final : public router,
                      public net::pump::source,
                      public std::enable_shared_from_this<cluster> {
 public:
  struct settings {
    std::vector<net::endpoint> seeds;
    link_settings login;  ///< `where` is filled in here
  };

  static base::result<std::shared_ptr<router>> make(const std::shared_ptr<net::pump>& engine,
                                                    settings how,
                                                    std::shared_ptr<const protocol> speech,
                                                    std::weak_ptr<node_listener> whose);
  /// Use make().
  cluster(std::shared_ptr<net::pump> engine, settings how, std::shared_ptr<const protocol> speech,
          std::weak_ptr<node_listener> whose);

  // router
  std::shared_ptr<node> node_for(std::uint32_t slot) override SALLYPORT_EXCLUDES(mutex_);
  base::failure trouble() override SALLYPORT_EXCLUDES(mutex_);
  redirection redirect(const reply& error, std::uint32_t slot,
                       const std::shared_ptr<node>& from) override SALLYPORT_EXCLUDES(mutex_);
  void node_lost(const net::endpoint& where) override SALLYPORT_EXCLUDES(mutex_);
  std::vector<std::shared_ptr<node>> all() override SALLYPORT_EXCLUDES(mutex_);
  void begin() override;
  bool unfinished() override SALLYPORT_EXCLUDES(mutex_);
  void close() override SALLYPORT_EXCLUDES(mutex_);

  // net::pump::source
  void ready(std::uint32_t /*events*/) override {}
  void due(time_point now) override SALLYPORT_EXCLUDES(mutex_);

  /// So long a node may think about its map.
  static constexpr duration answer_patience = std::chrono::milliseconds{1'000};
  static constexpr duration first_pause = std::chrono::milliseconds{20};
  static constexpr duration longest_pause = std::chrono::seconds{1};
  /// More nodes than any cluster has. Where nodes come and go with ever new addresses, those that serve no slots
  /// any more make room.
  static constexpr std::size_t most_places = 4'096;

 private:
  class question;

  /// A server that was named once. As long as it owns slots its entry stays, so that its number stays good.
  struct place {
    net::endpoint where;
    std::shared_ptr<node> server;  // null: no command has gone there yet
    bool owns_slots = false;
    bool in_new_map = false;  // while a map is taken
  };
  using place_number = std::uint16_t;
  static constexpr place_number nowhere = UINT16_MAX;

  base::result<std::monostate> connect();
  [[nodiscard]] place_number number_of(const net::endpoint& where) SALLYPORT_REQUIRES(mutex_);
  /// Null: it can't be made; trouble_ says why.
  [[nodiscard]] std::shared_ptr<node> server_at(place_number number) SALLYPORT_REQUIRES(mutex_);
  /// Has the map read; at once, unless the last readings were in vain.
  void read_soon() SALLYPORT_EXCLUDES(mutex_);
  void read(time_point now) SALLYPORT_EXCLUDES(mutex_);
  void map_came(base::result<reply> said, const net::endpoint& asked) SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] static base::failure trouble_with(const base::result<reply>& said,
                                                  const net::endpoint& asked);
  [[nodiscard]] bool take_map(const std::vector<slot_range>& ranges) SALLYPORT_REQUIRES(mutex_);
  [[nodiscard]] bool well() SALLYPORT_REQUIRES(mutex_);
  void plan_next(time_point now, bool good) SALLYPORT_EXCLUDES(mutex_);

  // Constant once made.
  const std::shared_ptr<net::pump> pump_;
  const settings how_;
  const std::shared_ptr<const protocol> speech_;
  const std::weak_ptr<node_listener> listener_;
  net::pump::number number_ = 0;
  std::shared_ptr<connection::owner> manners_;
  std::shared_ptr<connection> informant_;

  base::mutex mutex_;
  base::random random_ SALLYPORT_GUARDED_BY(mutex_);
  bool closed_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool known_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool reading_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool again_ SALLYPORT_GUARDED_BY(mutex_) = false;  // asked for during the reading
  bool tell_ SALLYPORT_GUARDED_BY(mutex_) = false;   // that notices may have been missed
  unsigned in_vain_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  time_point next_reading_ SALLYPORT_GUARDED_BY(mutex_) = time_point::max();
  std::size_t candidate_ SALLYPORT_GUARDED_BY(mutex_) = 0;  // whom to ask; counts on
  bool last_candidate_ SALLYPORT_GUARDED_BY(mutex_) = false;
  net::endpoint informants_place_ SALLYPORT_GUARDED_BY(mutex_);
  base::failure trouble_ SALLYPORT_GUARDED_BY(mutex_);
  std::vector<place> places_ SALLYPORT_GUARDED_BY(mutex_);
  std::vector<place_number> owners_ SALLYPORT_GUARDED_BY(mutex_);  // by slot
};

}  // namespace sallyport::backends::redis
