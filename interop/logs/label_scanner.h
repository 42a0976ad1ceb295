// All labels that occur in a line are found in one pass over its bytes (Aho and Corasick, 1975).
// Internal to interop/logs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct LabelHit {
  std::size_t label;  ///< index among the labels
  std::size_t begin, end;
};

class LabelScanner {
 public:
  explicit LabelScanner(const std::vector<std::string>& labels);
  /// Puts the labels of the line into `hits`, in order of their ends; the longer first.
  void scan(std::string_view line, std::vector<LabelHit>& hits) const;

 private:
  std::array<std::uint8_t, 256> kinds_ = {};      ///< bytes that no label has are of kind 0
  std::size_t width_ = 1;                         ///< kinds
  std::vector<std::uint16_t> next_;               ///< by state and kind
  std::vector<std::vector<std::uint16_t>> ends_;  ///< labels that end in a state
  std::vector<std::uint8_t> any_;                 ///< whether some label ends in a state
  std::vector<std::size_t> lengths_;
};

}  // namespace plimsoll
