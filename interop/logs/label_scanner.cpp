// The automaton is built breadth first: a missing transition is that of the longest proper suffix.
#include "interop/logs/label_scanner.h"

#include <algorithm>

#include "base/error.h"

namespace plimsoll {

LabelScanner::LabelScanner(const std::vector<std::string>& labels) {
  for (const std::string& label : labels) {
    for (const char c : label) {
      std::uint8_t& kind = kinds_[static_cast<unsigned char>(c)];
      if (kind == 0) kind = static_cast<std::uint8_t>(width_++);
    }
  }
  const auto add_state = [&] {
    next_.resize(next_.size() + width_);
    ends_.emplace_back();
    return static_cast<std::uint16_t>(ends_.size() - 1);
  };
  add_state();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    std::size_t state = 0;
    for (const char c : labels[i]) {
      const std::size_t at = state * width_ + kinds_[static_cast<unsigned char>(c)];
      if (next_[at] == 0) {
        INVARIANT(ends_.size() < 65'535, "states of the labels");
        const std::uint16_t added = add_state();
        next_[at] = added;
      }
      state = next_[at];
    }
    ends_[state].push_back(static_cast<std::uint16_t>(i));
    lengths_.push_back(labels[i].size());
  }
  std::vector<std::uint16_t> suffix(ends_.size(), 0), queue = {0};
  for (std::size_t at = 0; at < queue.size(); ++at) {
    const std::uint16_t state = queue[at];
    for (std::size_t kind = 1; kind < width_; ++kind) {
      std::uint16_t& child = next_[state * width_ + kind];
      const std::uint16_t other = state == 0 ? 0 : next_[suffix[state] * width_ + kind];
      if (child == 0) {
        child = other;
        continue;
      }
      suffix[child] = other;
      ends_[child].insert(ends_[child].end(), ends_[other].begin(), ends_[other].end());
      queue.push_back(child);
    }
  }
  for (const auto& ends : ends_) any_.push_back(!ends.empty());
}

void LabelScanner::scan(std::string_view line, std::vector<LabelHit>& hits) const {
  hits.clear();
  std::size_t state = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    state = next_[state * width_ + kinds_[static_cast<unsigned char>(line[i])]];
    if (any_[state] == 0) [[likely]]
      continue;
    for (const std::uint16_t label : ends_[state]) {
      hits.push_back({label, i + 1 - lengths_[label], i + 1});
    }
  }
}

}  // namespace plimsoll
