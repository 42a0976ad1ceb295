// A rank holds a part of each whole tensor. This is the one mapping between both: initial values,
// saved ones and loaded ones go through it, so that they do not depend on the strategy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "graph/grid.h"
#include "graph/program.h"

namespace plimsoll {

/// Returns the index in the whole parameter of element `index` of the part held at `at`. Both are
/// row-major.
std::int64_t global_index(const Shape& local, const std::optional<Split>& split,
                          const Coordinates& at, std::int64_t index);

/// Returns the elements of the whole tensor, without its padding: these come first.
std::int64_t whole_elements(const Shape& local, const std::optional<Split>& split);
/// Returns the shape of the whole tensor without its padding.
Shape whole_shape(const Shape& local, const std::optional<Split>& split);
/// Returns the name of the whole tensor: the parameter's with its layer behind the block, such as
/// "layer.3.fc1.weight".
std::string whole_name(const std::string& parameter, std::int64_t layer);

/// Calls work(begin, whole, length) for elements [first, first + count) of the part held at `at`,
/// in runs that lie together in the whole tensor. A run begins `begin` elements behind `first`, and
/// at element `whole` of the tensor.
template <class Work>
void for_each_run(const Shape& local, const std::optional<Split>& split, const Coordinates& at,
                  std::int64_t first, std::int64_t count, const Work& work) {
  std::int64_t together = 1;  // elements behind each other, of one index of the outer dimensions
  const std::size_t dim = split && parts_of(*split) > 1 ? std::size_t(split->dim) : 0;
  for (std::size_t d = dim; d < local.size(); ++d) together *= local[d];
  for (std::int64_t begin = 0; begin < count;) {
    const std::int64_t index = first + begin;
    const std::int64_t length = std::min(together - index % together, count - begin);
    work(begin, global_index(local, split, at, index), length);
    begin += length;
  }
}

}  // namespace plimsoll
