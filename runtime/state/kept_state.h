// Kept state is what a training needs to go on behind a step: parameters in full precision, the
// optimizer's moments, routers' selection biases, and the step's scalars. Its tensors are whole
// ones, so that any strategy of a job reads what another wrote.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/program.h"
#include "runtime/arena.h"
#include "runtime/state/arena_values.h"

namespace plimsoll {

/// A KeptKind is a value that each element of a parameter has, or with Adafactor each row or
/// column.
enum class KeptKind : std::uint8_t {
  parameter,      ///< the value that updates work on
  first_moment,   ///< of AdamW and LAMB; of SGD and Muon the velocity, of Adafactor's rows one each
  second_moment,  ///< of AdamW and LAMB; of Adafactor's columns
};

/// A WholeTensor is one tensor of the kept state.
struct WholeTensor {
  std::string name;  ///< whole_name() of parts.h
  Shape shape;
  std::vector<Shape> moments = {};  ///< selection biases have none, matrices of Muon one
  bool operator==(const WholeTensor&) const = default;
};
/// Returns the tensors of a job by name, each once, from all its Programs.
std::vector<WholeTensor> whole_tensors(std::span<const Program> programs);
/// Returns the most moments that the optimizer of the Programs keeps of a tensor: 0, 1 or 2.
std::size_t kept_moments(std::span<const Program> programs);

/// A StateReader gives elements of whole tensors.
class StateReader {
 public:
  virtual ~StateReader() = default;
  /// Sets `values` to elements of a tensor, from `first` on. Throws EnvironmentError.
  virtual void read(KeptKind kind, const std::string& tensor, std::int64_t first,
                    std::span<float> values) = 0;
  virtual Scalars scalars() const = 0;
};
/// A StateWriter takes them.
class StateWriter {
 public:
  virtual ~StateWriter() = default;
  /// Takes elements of a tensor, from `first` on. Throws EnvironmentError.
  virtual void write(KeptKind kind, const std::string& tensor, std::int64_t first,
                     std::span<const float> values) = 0;
};

/// Sets all that the rank at `at` keeps to what `reader` gives. Padding becomes zero.
void load_state(const Program& program, Arena& arena, const Coordinates& at, StateReader& reader);

/// A WriteShare says which of the elements that a rank has it writes. Where several ranks have the
/// same, only the lowest does.
struct WriteShare {
  std::vector<bool> ranges;  ///< by kind, and then in ascending order
  std::vector<bool> biases;  ///< by selection bias of the rank, in order of its calls
};
/// Returns the shares of ranks 0 to `last`.
std::vector<WriteShare> write_shares(std::span<const Program> programs, std::int64_t last);

/// Gives `writer` the rank's share of the state.
void save_state(const Program& program, const Arena& arena, const Coordinates& at,
                const WriteShare& share, StateWriter& writer);

}  // namespace plimsoll
