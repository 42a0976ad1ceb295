// The host writes parameters into a rank's arena, initial ones or others, and reads parameters,
// gradients and scalars from it between steps.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "graph/program.h"
#include "runtime/arena.h"

namespace plimsoll {

class RankDevice;

/// Returns the one buffer of a role that lives between steps.
std::optional<BufferId> persistent_of(const Program& program, TensorRole role);
/// Returns the buffers of masters that live between steps: the device's, and the host's, which are
/// the last elements of what a rank updates.
std::vector<BufferId> masters_of(const Program& program);

/// A TypedRange is a run of elements of one type in the parameter arena: a segment with the padding
/// behind it.
struct TypedRange {
  std::int64_t begin = 0, elements = 0;
  DType type = DType::f32;
  Bytes offset;  ///< bytes from the start of the arena
};
/// Returns the ranges of the whole arena, from its start. Where the arena holds the parts that a
/// rank owns (stage 3), it returns one range of the type that all parts have.
std::vector<TypedRange> parameter_ranges(const Program& program, Bytes arena);
/// Returns whether an arena of so many elements has all segments, and not only the parts that a
/// rank owns.
bool is_whole(const Program& program, std::int64_t elements);

/// A FillSegment sets `values`, which are elements of a segment from its element `first` on.
using FillSegment =
    std::function<void(const Segment& segment, std::int64_t first, std::span<float> values)>;
/// Fills the segments of an f32 arena; elements between segments stay unchanged. The arena is
/// whole, or has the parts that this rank owns, one after the other: masters and moments under
/// sharding, parameters in stage 3. `fill` may run on several threads (0: all cores).
void fill_segments(const Program& program, const Coordinates& at, std::span<float> arena,
                   std::int64_t threads, const FillSegment& fill);
/// Fills parameters and masters. Parameters of other types are the values rounded, and masters are
/// the values.
void fill_parameters(const Program& program, Arena& arena, const Coordinates& at,
                     std::int64_t threads, const FillSegment& fill);
/// Writes frozen parameters, which training never changes and checkpoints do not have. In sharding
/// stage 3 a rank has its part of each range.
void initialize_frozen(const Program& program, Arena& arena, const Coordinates& at,
                       std::int64_t seed);
/// Writes initial parameters, masters and frozen parameters.
void initialize_arena(const Program& program, Arena& arena, const Coordinates& at,
                      std::int64_t seed);

/// Returns the values of the parameter arena as f32.
std::vector<float> parameter_values(const Program& program, const Arena& arena);
/// Returns the values of the step's gradients as f32.
std::vector<float> gradient_values(const Program& program, const Arena& arena);

/// The bytes of a buffer at one time.
struct BufferCopy {
  BufferId id;
  std::vector<std::byte> bytes;
};
/// Copies scalars, selection biases and loads of experts: what a step changes though its update
/// changes nothing.
std::vector<BufferCopy> copy_changed_without_update(const Program& program, const Arena& arena);
void restore(const std::vector<BufferCopy>& copies, Arena& arena);

using Scalars = std::array<float, std::size_t(kScalars)>;
/// Returns the address of the step's scalars, and null for a Program without any.
const std::byte* find_scalars(const Program& program, const Arena& arena, const Coordinates& at);
/// Reads the scalars at an address of find_scalars(). They are 0 where it is null.
Scalars read_scalars(const std::byte* scalars, RankDevice* device);
/// Sets the step's scalars, where the Program has some.
void change_scalars(const Program& program, Arena& arena, const Coordinates& at,
                    const Scalars& scalars);

}  // namespace plimsoll
