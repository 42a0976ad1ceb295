// The ordered list of passes and its runner: Job + Strategy + Framework -> Programs.
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

/// A graph pass: returns whether it changed the graph.
struct GraphPass {
  std::string_view name;
  std::string_view sentence;  ///< what it rewrites
  bool (*run)(Graph& graph, const PassContext& context);
};

/// In execution order.
std::span<const GraphPass> graph_passes();
/// Names of every stage that can be dumped: "forward", each graph pass, "cut_blocks", "schedule",
/// "plan_memory".
std::vector<std::string> stage_names();

/// The text form of a stage, on demand: of the Program of one rank's class, or of all classes. Up
/// to cut_blocks all ranks share one Graph.
using StageText = std::function<std::string(std::optional<std::int64_t> rank)>;
/// Called after every stage with its name and text.
using StageObserver = std::function<void(std::string_view stage, const StageText& text)>;

/// How much is proven about Graphs and Programs.
enum class Proof : std::uint8_t {
  none,       ///< for candidates of a search: what becomes of them is lowered again with proof
  structure,  ///< that they are well formed, Graphs after every pass
  order,      ///< also that nothing deadlocks and no two accesses to memory race
};

/// Whether buffers get their places in the arena. Times, live bytes and the allocators of other
/// frameworks do not depend on these.
enum class Addresses : std::uint8_t { planned, left_out };

/// Runs all passes and, with proof, verifies after each. programs[i] is the class of stage i. The
/// strategy must be legal. Broken invariants abort naming the pass. A proof of order needs planned
/// addresses.
std::vector<Program> lower(const PassContext& context, const StageObserver& observer = {},
                           Proof proof = Proof::order, Addresses addresses = Addresses::planned);

/// The Graph after all graph passes (what cut_blocks and schedule start from).
Graph lower_graph(const PassContext& context, const StageObserver& observer = {},
                  Proof proof = Proof::order);

}  // namespace plimsoll
