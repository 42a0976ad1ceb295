// Backends are made by name, and the ranges of the flat arenas that a rank owns are listed.
#include "runtime/backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/cpu/backend.h"
#include "runtime/null/backend.h"

namespace plimsoll {

namespace {

/// Returns the number of copies of a segment. A tied copy that another stage counts has no share in
/// the norm, but as many copies as any other tensor that is split like it.
double copies_of(const Segment& segment, const Grid& grid) {
  if (segment.norm_weight > 0) return 1 / segment.norm_weight;
  return segment.split ? 1 : double(grid[Axis::mp]);
}

struct AddedBackend {
  std::string name;
  std::unique_ptr<Backend> (*make)(std::int64_t local_rank);
};
std::vector<AddedBackend>& added_backends() {
  static std::vector<AddedBackend> backends;
  return backends;
}

}  // namespace

std::string step_name(std::int64_t step) {
  return step < 0 ? fmt::format("held-out batch {}", -step) : fmt::format("step {}", step + 1);
}

std::vector<OwnedRange> owned_ranges(const Program& program, const Coordinates& at) {
  std::vector<OwnedRange> ranges;
  std::int64_t state_begin = 0;  // state arenas are this rank's parts, one after the other
  auto segment = program.segments.begin();
  for (const Bucket& bucket : program.buckets) {
    const auto [begin, part, owner, experts] = owned_part(program, bucket, at);
    if (part == 0) continue;
    const std::int64_t end = begin + part;
    const auto ends_before = [first = begin](const Segment& s) {
      return s.offset + s.elements <= first;
    };
    segment = std::find_if_not(segment, program.segments.end(), ends_before);
    for (auto s = segment; s != program.segments.end() && s->offset < end; ++s) {
      OwnedRange range;
      range.arena_offset = std::max(begin, s->offset);
      range.elements = std::min(end, s->offset + s->elements) - range.arena_offset;
      range.state_offset = state_begin + (range.arena_offset - begin);
      range.norm_weight = s->norm_weight;
      range.segment = s - program.segments.begin();
      range.copies = copies_of(*s, program.grid);
      range.decay = s->decay;
      range.weight_decay = s->weight_decay;
      range.clip = s->clip;
      range.rate = s->rate;
      range.group = s->group;
      if (range.elements > 0) ranges.push_back(range);
    }
    state_begin += part;
  }
  return ranges;
}

std::unique_ptr<Backend> make_backend(std::string_view name, std::int64_t local_rank) {
  if (name == "null") return make_null_backend();
  if (name == "cpu") return make_cpu_backend();
  for (const AddedBackend& backend : added_backends()) {
    if (backend.name == name) return backend.make(local_rank);
  }
  throw UsageError(fmt::format("backend '{}' is not built in; known: {}", name, backend_names()));
}

void add_backend(std::string_view name, std::unique_ptr<Backend> (*make)(std::int64_t local_rank)) {
  added_backends().push_back({std::string(name), make});
}

std::string backend_names() {
  std::string names = "null, cpu";
  for (const AddedBackend& backend : added_backends()) names += ", " + backend.name;
  return names;
}

}  // namespace plimsoll
