// A rank writes what it does, and reads what the other ranks do.
#include "runtime/comm/rank_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "runtime/backend.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

RankReport report_of(std::int64_t rank, const RankStatus& status) {
  RankReport report;
  report.rank = rank;
  // Clocks go on between the two looks, and a rank that has given no sign yet is not missed.
  report.silent = std::max(std::int64_t{0}, now() - status.alive.load(std::memory_order_relaxed));
  report.waits = status.waits.load(std::memory_order_relaxed);
  const std::size_t latest = status.latest.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < kKeptPosts; ++i) {
    const RankStatus::Post& from = status.posts[(latest + kKeptPosts - i) % kKeptPosts];
    PostReport& to = report.posts[i];
    to.number = from.number.load(std::memory_order_relaxed);
    to.step = from.step.load(std::memory_order_relaxed);
    // The other rank may be writing: the copy ends with a 0 in any case.
    for (std::size_t at = 0; at + 1 < to.what.size(); ++at)
      to.what[at] = from.what[at].load(std::memory_order_relaxed);
  }
  std::ranges::sort(std::span(report.posts).subspan(1), std::greater<>(), &PostReport::number);
  return report;
}

enum class State { silent, no_answer, waits, computes };

State state_of(const RankReport& report, std::chrono::milliseconds deadline) {
  if (report.silent == RankReport::kNoAnswer) return State::no_answer;
  if (std::chrono::nanoseconds(report.silent) > deadline / 2) return State::silent;
  return report.waits ? State::waits : State::computes;
}

std::string last_posts_of(const RankReport& report, std::string_view state) {
  std::string text = fmt::format("rank {}: ", report.rank);
  const PostReport& latest = report.posts.front();
  if (latest.what.front() == '\0') return text + "has posted nothing";
  text += fmt::format("{}, {}, post {}: {}", state, step_name(latest.step), latest.number,
                      latest.what.data());
  std::string_view before = ", before it ";
  for (const PostReport& post : report.posts) {
    if (post.number == 0 || post.number >= latest.number) continue;
    text += fmt::format("{}{}: {}", std::exchange(before, ", "), post.number, post.what.data());
  }
  return text;
}

}  // namespace

std::array<char, 96> short_text(std::string_view text) {
  std::array<char, 96> kept = {};
  std::copy_n(text.begin(), std::min(text.size(), kept.size() - 1), kept.begin());
  return kept;
}

std::string describe(std::span<const RankReport> ranks) {
  std::string all;
  for (const RankReport& report : ranks.first(std::min(ranks.size(), kMostDescribed))) {
    all += all.empty() ? "" : "; ";
    all += last_posts_of(report, report.waits ? "waits" : "computes");
  }
  return all;
}

std::string describe(std::span<const RankReport> ranks, std::chrono::milliseconds deadline,
                     bool all) {
  std::string silent, no_answer, computing, each;
  std::size_t described = 0;
  for (const RankReport& report : ranks) {
    const State state = state_of(report, deadline);
    if (state == State::silent) {
      silent += fmt::format("{}rank {} has given no sign for {:.1f} s", silent.empty() ? "" : ", ",
                            report.rank, double(report.silent) * 1e-9);
    } else if (state == State::no_answer) {
      no_answer +=
          fmt::format("{}rank {} has given no answer", no_answer.empty() ? "" : ", ", report.rank);
    } else if (state == State::computes) {
      computing += fmt::format("{}rank {}", computing.empty() ? "" : ", ", report.rank);
    }
    if (state == State::no_answer || ++described > kMostDescribed) continue;
    each += each.empty() ? "" : "; ";
    each += last_posts_of(report, state == State::silent  ? "silent"
                                  : state == State::waits ? "waits"
                                                          : "computes");
  }
  // A host may give no answer since its processes wait for the ranks that are silent.
  const std::string missed = silent + (silent.empty() || no_answer.empty() ? "" : ", ") + no_answer;
  const std::string who = !missed.empty()      ? missed
                          : !computing.empty() ? computing + " still computes"
                          : all                ? "all ranks wait"
                                               : "all ranks of this host wait";
  return fmt::format("{} ({})", who, each);
}

RankStatusBoard::RankStatusBoard(RankStatus& own, std::vector<Known> ranks, bool all)
    : own_(own), ranks_(std::move(ranks)), all_(all) {}

std::int64_t RankStatusBoard::posts(std::string_view what, const CommunicationLabel& label) {
  const std::int64_t post = latest().number.load(std::memory_order_relaxed) + 1;
  is_at(post, label.step, fmt::format("{} in routine {}", what, label.routine));
  return post;
}

void RankStatusBoard::waits_to(std::string_view what) {
  const RankStatus::Post& before = latest();
  is_at(before.number.load(std::memory_order_relaxed) + 1,
        before.step.load(std::memory_order_relaxed), what);
  waits(true);
}

void RankStatusBoard::is_at(std::int64_t post, std::int64_t step, std::string_view what) {
  // Another text about the same communication takes the place of the one before.
  const auto same = std::ranges::find_if(own_.posts, [&](const RankStatus::Post& one) {
    return one.number.load(std::memory_order_relaxed) == post;
  });
  const std::size_t next = (own_.latest.load(std::memory_order_relaxed) + 1) % kKeptPosts;
  const std::size_t at = same != own_.posts.end() ? std::size_t(same - own_.posts.begin()) : next;
  RankStatus::Post& to = own_.posts[at];
  to.step.store(step, std::memory_order_relaxed);
  to.number.store(post, std::memory_order_relaxed);
  const std::size_t length = std::min(what.size(), to.what.size() - 1);
  for (std::size_t i = 0; i < length; ++i) to.what[i].store(what[i], std::memory_order_relaxed);
  to.what[length].store('\0', std::memory_order_relaxed);
  own_.latest.store(at, std::memory_order_relaxed);
}

void RankStatusBoard::lives() { own_.alive.store(now(), std::memory_order_relaxed); }

std::vector<RankReport> RankStatusBoard::reports() const {
  std::vector<RankReport> all;
  for (const auto& [rank, status] : ranks_) all.push_back(report_of(rank, *status));
  return all;
}

std::string RankStatusBoard::describe(std::chrono::milliseconds deadline) const {
  std::vector<RankReport> ranks = reports();
  std::optional<std::vector<RankReport>> others;
  if (!all_ && ask_others_) others = ask_others_();
  if (others) {
    ranks.insert(ranks.end(), others->begin(), others->end());
    std::ranges::sort(ranks, {}, &RankReport::rank);
  }
  return plimsoll::describe(ranks, deadline, all_ || others);
}

}  // namespace plimsoll
