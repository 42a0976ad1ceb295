// Indices, shapes and names of whole tensors follow from the parts that ranks hold.
#include "runtime/state/parts.h"

namespace plimsoll {

std::int64_t global_index(const Shape& local, const std::optional<Split>& split,
                          const Coordinates& at, std::int64_t index) {
  if (!split || parts_of(*split) == 1) return index;
  std::int64_t inner = 1;
  for (std::size_t d = std::size_t(split->dim) + 1; d < local.size(); ++d) inner *= local[d];
  const std::int64_t extent = local[std::size_t(split->dim)];
  const std::int64_t outer_index = index / (extent * inner);
  const std::int64_t along = index / inner % extent + extent * part_index(*split, at);
  const std::int64_t of_part =
      (outer_index * extent * split->degree + along) * inner + index % inner;
  // Experts are the outermost dimension.
  return split->experts == 1
             ? of_part
             : of_part + at[std::size_t(Axis::ep)] * elements(local) * split->degree;
}

Shape whole_shape(const Shape& local, const std::optional<Split>& split) {
  Shape shape = local;
  if (!split) return shape;
  shape[std::size_t(split->dim)] *= split->degree;
  shape[std::size_t(split->dim)] -= split->padding;
  shape[0] *= split->experts;
  return shape;
}

std::int64_t whole_elements(const Shape& local, const std::optional<Split>& split) {
  return elements(whole_shape(local, split));
}

std::string whole_name(const std::string& parameter, std::int64_t layer) {
  const std::size_t block = parameter.find('.');
  return parameter.substr(0, block) + "." + std::to_string(layer) +
         (block == parameter.npos ? "" : parameter.substr(block));
}

}  // namespace plimsoll
