// The tiny pipeline of the reference's section 7.A as a Graph: a table of tokens and two fully
// connected layers on the first stage, four on the last, which have no activations between them.
#pragma once

#include <string>
#include <vector>

#include "graph/program.h"
#include "models/framework/framework.h"
#include "models/job/job.h"

namespace plimsoll {

/// SGD with momentum, no clipping.
Job tiny_job();

/// Forward ops in f32: parameters w1, b1, w2, b2 | w3, b3, w4, b4, w5, b5 (64 x 64 and 64) and w6,
/// b6 (64 x 2 and 2); or of another width.
Graph tiny_net(const Job& job, std::int64_t width = 64);

/// A table, then a layer of nothing but `tensors` weights of 8 x 8 on either stage.
Graph equal_weights(const Job& job, std::int64_t tensors);

/// Programs of the last of two stages, by owner, after all passes.
std::vector<Program> last_stage(const Job& job, Graph graph, const std::string& fields,
                                const Framework& framework = bundled_framework());

/// Ops of the calls of these phases in issue order, without the one that begins the step; runs of
/// one kind written as KIND xN, collectives with their group.
std::vector<std::string> op_list(const Program& program, const std::vector<Phase>& phases);

}  // namespace plimsoll
