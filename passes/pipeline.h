// The pipeline is the ordered list of passes and its runner: Job + Strategy + Framework ->
// Programs.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/program.h"
#include "passes/strategy/pass_context.h"

namespace plimsoll {

/// A GraphPass is one pass of the list. `run` returns whether it changed the graph.
struct GraphPass {
  std::string_view name;
  std::string_view sentence;  ///< what the pass rewrites
  bool (*run)(Graph& graph, const PassContext& context);
};

/// Returns the passes in execution order.
std::span<const GraphPass> graph_passes();
/// Returns the names of all stages that can be printed: "forward", each graph pass, "cut_blocks",
/// "schedule", "plan_memory".
std::vector<std::string> stage_names();

/// Returns the text form of a stage, for the Program of one rank's class or of all classes. Up to
/// cut_blocks all ranks share one Graph.
using StageText = std::function<std::string(std::optional<std::int64_t> rank)>;
/// A StageObserver is called after every stage with its name and text.
using StageObserver = std::function<void(std::string_view stage, const StageText& text)>;

/// A Proof says how much is proven about Graphs and Programs.
enum class Proof : std::uint8_t {
  none,       ///< for candidates of a search; the chosen ones are lowered again with proof
  structure,  ///< Graphs (after every pass) and Programs are well formed
  order,      ///< in addition, nothing deadlocks and no two accesses to memory race
};

/// Addresses says whether buffers get their places in the arena. Times, live bytes and the
/// allocators of other frameworks do not depend on these places.
enum class Addresses : std::uint8_t { planned, left_out };

/// Runs all passes and, with proof, verifies after each that changed the graph. programs[i] is for
/// the class of ranks i. The strategy must be legal. A broken invariant aborts and names the pass.
/// A proof of order needs planned addresses.
std::vector<Program> lower(const PassContext& context, const StageObserver& observer = {},
                           Proof proof = Proof::order, Addresses addresses = Addresses::planned);

/// Returns the Graph after all graph passes, from which cut_blocks and schedule start.
Graph lower_graph(const PassContext& context, const StageObserver& observer = {},
                  Proof proof = Proof::order);

}  // namespace plimsoll
