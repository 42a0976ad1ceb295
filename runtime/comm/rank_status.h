// The status of each rank of a host, in memory that these ranks share. A rank whose deadline has
// passed says by it which rank keeps it waiting.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/communicator.h"

namespace plimsoll {

/// So many of a rank's last communications are told of.
inline constexpr std::size_t kKeptPosts = 4;

/// A communication, or a meeting of all ranks.
struct PostReport {
  std::int64_t number = 0;  ///< among those of its rank, from 1; 0: there is none
  std::int64_t step = 0;    ///< from 0
  std::array<char, 96> what = {};
};

/// A RankReport is what was seen of a rank. Processes send it to each other as bytes.
struct RankReport {
  static constexpr std::int64_t kNoAnswer = -1;

  std::int64_t rank = 0;
  /// Nanoseconds since its last sign of life. kNoAnswer: its host was asked and gave no answer.
  std::int64_t silent = 0;
  bool waits = false;                             ///< for others
  std::array<PostReport, kKeptPosts> posts = {};  ///< the latest first, then by falling number
};

/// Returns `text` as far as PostReport::what has room for it.
std::array<char, 96> short_text(std::string_view text);
/// Says what each of the ranks did last, the first kMostDescribed ones.
std::string describe(std::span<const RankReport> ranks);
/// Says which ranks have not lived for half of the deadline or gave no answer, else which wait for
/// nobody, and then what each rank did last. `all`: these are all ranks of the job.
std::string describe(std::span<const RankReport> ranks, std::chrono::milliseconds deadline,
                     bool all);

/// The status of one rank. It alone writes, and others read at any time; a text may be read while
/// it changes.
struct RankStatus {
  struct Post {
    std::atomic<std::int64_t> number = 0;
    std::atomic<std::int64_t> step = 0;
    std::array<std::atomic<char>, std::tuple_size_v<decltype(PostReport::what)>> what = {};
  };
  /// The last communications and meetings of this rank, in a ring.
  std::array<Post, kKeptPosts> posts;
  std::atomic<std::size_t> latest = 0;  ///< where the last one is in it
  /// Nanoseconds of the host's steady clock at its last sign of life. A rank that has given none is
  /// not missed.
  std::atomic<std::int64_t> alive = std::numeric_limits<std::int64_t>::max();
  std::atomic<bool> waits = false;  ///< for others
};

/// One rank's view of the statuses of its host. They lie in memory that outlives the board.
class RankStatusBoard {
 public:
  struct Known {
    std::int64_t rank = 0;
    const RankStatus* status = nullptr;
  };
  /// `ranks`: those of this host, ascending. `all`: these are all ranks of the job.
  RankStatusBoard(RankStatus& own, std::vector<Known> ranks, bool all);

  /// This rank posts a communication now. Returns its number, from 1.
  std::int64_t posts(std::string_view what, const CommunicationLabel& label);
  void waits(bool waits) { own_.waits.store(waits, std::memory_order_relaxed); }
  /// This rank waits for all others to do `what`, until waits(false).
  void waits_to(std::string_view what);
  /// This rank is at the communication with this number, in that step (from 0). Its streams run
  /// behind its posts.
  void is_at(std::int64_t post, std::int64_t step, std::string_view what);
  /// A rank that has called it once has to call it at least twice in each deadline from then on.
  void lives();

  /// Whether all ranks of the job are on this host.
  bool all() const { return all_; }
  /// Returns what is seen of the ranks of this host, ascending.
  std::vector<RankReport> reports() const;
  /// Asks for the ranks of all other hosts, and returns nothing where it cannot ask.
  using AskOthers = std::function<std::optional<std::vector<RankReport>>()>;
  void set_others(AskOthers ask) { ask_others_ = std::move(ask); }
  /// Describes the ranks of this host, and those of other hosts where it can ask them.
  std::string describe(std::chrono::milliseconds deadline) const;

 private:
  const RankStatus::Post& latest() const {
    return own_.posts[own_.latest.load(std::memory_order_relaxed)];
  }

  RankStatus& own_;
  std::vector<Known> ranks_;
  bool all_;
  AskOthers ask_others_;
};

}  // namespace plimsoll
