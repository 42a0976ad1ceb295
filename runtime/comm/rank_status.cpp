// A rank writes what it does, and reads what the other ranks of its host do.
#include "runtime/comm/rank_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/backend.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

/// The other rank may be writing: the copy ends where its array does.
std::string text_of(const RankStatus& status) {
  std::string text;
  for (const std::atomic<char>& one : status.last) {
    const char letter = one.load(std::memory_order_relaxed);
    if (letter == '\0') break;
    text += letter;
  }
  return text;
}

double seconds_since(std::int64_t then) { return double(now() - then) * 1e-9; }

}  // namespace

RankStatusBoard::RankStatusBoard(RankStatus& own, std::vector<Known> ranks, bool all)
    : own_(own), ranks_(std::move(ranks)), all_(all) {}

void RankStatusBoard::write(std::string_view what) {
  const std::size_t length = std::min(what.size(), own_.last.size() - 1);
  for (std::size_t i = 0; i < length; ++i) own_.last[i].store(what[i], std::memory_order_relaxed);
  own_.last[length].store('\0', std::memory_order_relaxed);
}

std::int64_t RankStatusBoard::posts(std::string_view what, const CommunicationLabel& label) {
  const std::int64_t post = own_.posts.load(std::memory_order_relaxed) + 1;
  is_at(post, label.step, fmt::format("{} in routine {}", what, label.routine));
  return post;
}

void RankStatusBoard::waits_to(std::string_view what) {
  own_.posts.fetch_add(1, std::memory_order_relaxed);
  write(what);
  waits(true);
}

void RankStatusBoard::is_at(std::int64_t post, std::int64_t step, std::string_view what) {
  own_.step.store(step, std::memory_order_relaxed);
  own_.posts.store(post, std::memory_order_relaxed);
  write(what);
}

void RankStatusBoard::lives() { own_.alive.store(now(), std::memory_order_relaxed); }

std::string RankStatusBoard::describe(std::chrono::milliseconds deadline) const {
  std::string silent, computing, each;
  std::size_t described = 0;
  for (const auto& [rank, status] : ranks_) {
    const double age = seconds_since(status->alive.load(std::memory_order_relaxed));
    const bool waits = status->waits.load(std::memory_order_relaxed);
    const bool is_silent = 2 * age > std::chrono::duration<double>(deadline).count();
    if (is_silent) {
      silent += fmt::format("{}rank {} has given no sign for {:.1f} s", silent.empty() ? "" : ", ",
                            rank, age);
    } else if (!waits) {
      computing += fmt::format("{}rank {}", computing.empty() ? "" : ", ", rank);
    }
    if (++described > kMostDescribed) continue;
    each += fmt::format("{}rank {}: {}, {}, post {}: {}", each.empty() ? "" : "; ", rank,
                        is_silent ? "silent"
                        : waits   ? "waits"
                                  : "computes",
                        step_name(status->step.load(std::memory_order_relaxed)),
                        status->posts.load(std::memory_order_relaxed), text_of(*status));
  }
  const std::string who = !silent.empty()      ? silent
                          : !computing.empty() ? computing + " still computes"
                          : all_               ? "all ranks wait"
                                               : "all ranks of this host wait";
  return fmt::format("{} ({})", who, each);
}

}  // namespace plimsoll
