// ElementTypes says which elements of an arena have which type, and where they lie in it. Offsets
// in elements are common to all arenas of a stage; offsets in bytes differ between arenas of
// different types.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/tensor.h"

namespace plimsoll {

class ElementTypes {
 public:
  /// Adds elements of this type at the end.
  void append(std::int64_t elements, DType type) {
    if (runs_.empty() || runs_.back().type != type) runs_.push_back({elements_, bytes_, type});
    elements_ += elements;
    bytes_ += elements * bytes_of(type);
  }
  /// Returns the bytes from the start of the arena to an element, or to the arena's end.
  Bytes offset(std::int64_t element) const {
    if (runs_.empty()) return {};
    const Run& run = run_of(element);
    return run.bytes + (element - run.begin) * bytes_of(run.type);
  }
  DType at(std::int64_t element) const { return runs_.empty() ? DType::f32 : run_of(element).type; }
  /// Returns the bytes of elements [begin, begin + count).
  Bytes bytes(std::int64_t begin, std::int64_t count) const {
    return offset(begin + count) - offset(begin);
  }

 private:
  struct Run {
    std::int64_t begin = 0;  ///< elements
    Bytes bytes;             ///< from the start of the arena
    DType type = DType::f32;
  };
  const Run& run_of(std::int64_t element) const {
    std::size_t i = runs_.size() - 1;
    while (i > 0 && runs_[i].begin > element) --i;
    return runs_[i];
  }

  std::vector<Run> runs_;
  std::int64_t elements_ = 0;
  Bytes bytes_;
};

}  // namespace plimsoll
