// Strategies of jobs are drawn at random until they are legal.
#include "tests/passes/random_strategies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "models/framework/framework.h"
#include "passes/strategy/pipeline_order.h"
#include "passes/strategy/recompute_rules.h"
#include "passes/strategy/sharding_rules.h"
#include "tests/passes/random_jobs.h"
#include "tests/random_values.h"

namespace plimsoll {
namespace {

/// Micro-batches have a multiple of these sequences.
std::int64_t least_micro_batch(const Job& job) {
  return job.experts ? job.experts->balance_sequences : 1;
}

bool is_legal(const Draw& draw) {
  return bool(legal(draw.job, draw.strategy, draw.devices)) &&
         bool(legal(bundled_framework(), draw.strategy));
}

/// Gives every prime factor of the number of devices to one axis.
void draw_degrees(Random& random, Draw& draw) {
  Strategy& strategy = draw.strategy;
  strategy.mp = strategy.pp = strategy.dp = strategy.sharding_degree = strategy.cp = 1;
  std::int64_t left = draw.devices;
  for (std::int64_t prime = 2; left > 1; left % prime == 0 ? prime : ++prime) {
    if (left % prime != 0) continue;
    // Only decoders share sequences, so cp is twice as likely as the others.
    const std::array<std::int64_t*, 6> axes = {&strategy.mp, &strategy.pp,
                                               &strategy.dp, &strategy.sharding_degree,
                                               &strategy.cp, &strategy.cp};
    *axes[random() % axes.size()] *= prime;
    left /= prime;
  }
  strategy.sharding_stage = strategy.sharding_degree > 1 ? 1 : 0;
  if (updates_matrices(draw.job)) {  // what goes with it
    strategy.optimizer.flatten = Flatten::none;
    strategy.owners.sharding_owner =
        strategy.sharding_degree > 1 ? one_of(random, {ShardingOwner::prefix, ShardingOwner::greedy,
                                                       ShardingOwner::sorted_greedy})
                                     : ShardingOwner::elements;
  }
  const auto exchange = one_of(
      random, {ContextExchange::ring, ContextExchange::all_gather, ContextExchange::all_to_all});
  strategy.tokens.context_exchange = strategy.cp > 1 ? exchange : ContextExchange::ring;
}

void draw_layer_split(Random& random, Draw& draw) {
  std::int64_t left = total_layers(draw.job);
  const std::int64_t parts = draw.strategy.pp * draw.strategy.pipeline.virtual_stages;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t others = parts - part - 1;
    const std::int64_t layers =
        others == 0 ? left : 1 + std::int64_t(random() % std::uint64_t(left - others));
    draw.strategy.pipeline.layer_split.push_back(layers);
    left -= layers;
  }
  // Some chunk gives its layers to the one behind it.
  std::vector<std::int64_t>& split = draw.strategy.pipeline.layer_split;
  if (parts > 1 && random() % 3 == 0) {
    const std::size_t part = random() % std::uint64_t(parts - 1);
    split[part + 1] += std::exchange(split[part], 0);
  }
}

/// Some of the modules that the job has. Parts of others are left out.
SetOf<RecomputedModule> draw_modules(Random& random, const Job& job) {
  SetOf<RecomputedModule> modules;
  for (std::size_t i = 0; i < std::size(kRecomputedModules); ++i) {
    if (coin(random) && has_module(job, RecomputedModule(i))) modules.add(RecomputedModule(i));
  }
  return without_parts(modules);
}

/// One choice beside the degrees. It may depend on what is drawn already and may be illegal there:
/// then it is taken back.
struct Switch {
  std::string_view field;
  void (*draw)(Random& random, Draw& draw);
};

const Switch kSwitches[] = {
    {"micro_batch",
     [](Random& random, Draw& draw) {
       draw.strategy.micro_batch =
           least_micro_batch(draw.job) * one_of<std::int64_t>(random, {1, 1, 2, 3, 4});
     }},
    {"recompute",
     [](Random& random, Draw& draw) {
       draw.strategy.recompute = one_of(
           random, {Recompute::none, Recompute::selective, Recompute::full, Recompute::modules});
       draw.strategy.recomputed.modules = {};
       if (draw.strategy.recompute == Recompute::modules)
         draw.strategy.recomputed.modules = draw_modules(random, draw.job);
     }},
    {"grad_bucket_bytes",
     [](Random& random, Draw& draw) {
       draw.strategy.gradients.bucket_bytes = Bytes(std::int64_t{4096} << random() % 8);
     }},
    {"send_slots",
     [](Random& random, Draw& draw) {
       draw.strategy.pipeline.send_slots = one_of<std::int64_t>(random, {1, 2, 3});
     }},
    {"rank_order",
     [](Random& random, Draw& draw) {
       draw.strategy.rank_order = RankOrder(random() % std::size(kRankOrders));
     }},
    {"sequence_parallel",
     [](Random& random, Draw& draw) { draw.strategy.tokens.sequence_parallel = coin(random); }},
    {"ep",
     [](Random& random, Draw& draw) {
       if (!draw.job.experts) return;
       Strategy& strategy = draw.strategy;
       const Grid grid = grid_of(strategy);
       std::int64_t folded = 1;
       for (const Axis axis : Grid::folded()) folded *= grid[axis];
       strategy.ep = strategy.experts.etp = 1;
       for (const std::int64_t degree : {2, 3, 4, 6, 8}) {
         const bool holds =
             folded % (degree * strategy.experts.etp) == 0 && draw.job.experts->count % degree == 0;
         if (holds && random() % 3 != 0) strategy.ep = degree;
         const bool shares = !draw.job.experts->bias && folded % (degree * strategy.ep) == 0 &&
                             draw.job.experts->ffn_hidden % degree == 0;
         if (shares && random() % 3 != 0) strategy.experts.etp = degree;
       }
       if (coin(random) && strategy.experts.etp == 1) strategy.experts.etp = 0;
       strategy.experts.dispatch =
           one_of(random, {ExpertDispatch::all_to_all, ExpertDispatch::all_gather});
       strategy.experts.rows_percent = 100 * strategy.ep;  // room for whatever the router chooses
       const Strategy usual;                               // what goes with it
       strategy.tokens.sequence_parallel = strategy.mp > 1;
       strategy.rank_order = usual.rank_order;
       strategy.gradients.reduction = usual.gradients.reduction;
       strategy.optimizer.flatten = usual.optimizer.flatten;
       strategy.owners.sharding_owner = usual.owners.sharding_owner;
       strategy.owners.collective_fusion = usual.owners.collective_fusion;
       strategy.gathers.bucket_bytes = usual.gathers.bucket_bytes;
       strategy.experts.overlap_shared = coin(random);
       const bool travel = strategy.ep * experts_tensor_parallel(strategy) > 1;
       const bool repeats = strategy.recomputed.modules.has(RecomputedModule::shared_experts);
       if (draw.job.experts->shared_ffn_hidden == 0 || !experts_apart(strategy) || !travel ||
           repeats)
         strategy.experts.overlap_shared = false;
       if (!is_legal(draw))
         strategy.gathers.persistence_threshold = usual.gathers.persistence_threshold;
     }},
    {"split_boundary",
     [](Random& random, Draw& draw) { draw.strategy.pipeline.split_boundary = random() % 4 != 0; }},
    {"recompute_layers",
     [](Random& random, Draw& draw) {
       if (coin(random)) draw.strategy.recomputed.layers = std::int64_t(1 + random() % 3);
     }},
    {"recompute_list",
     [](Random& random, Draw& draw) {
       for (std::int64_t layer = 0; layer < total_layers(draw.job); ++layer) {
         if (random() % 3 == 0) draw.strategy.recomputed.list.push_back(layer);
       }
     }},
    {"offload_activations_percent",
     [](Random& random, Draw& draw) {
       if (coin(random)) return;
       OffloadedChoices& offloaded = draw.strategy.offloaded;
       offloaded.percent = one_of<std::int64_t>(random, {100, 100, 75, 40, 10});
       if (draw.strategy.recompute == Recompute::full) offloaded.percent = 100;
       if (coin(random)) offloaded.layers = std::int64_t(1 + random() % 3);
     }},
    {"cast_placement",
     [](Random& random, Draw& draw) {
       draw.strategy.optimizer.cast_placement = one_of(
           random, {CastPlacement::fused, CastPlacement::after_update, CastPlacement::every_use});
     }},
    {"flatten",
     [](Random& random, Draw& draw) {
       draw.strategy.optimizer.flatten =
           one_of(random, {Flatten::fused, Flatten::fused, Flatten::coalesced, Flatten::none});
     }},
    {"sharding_stage",
     [](Random& random, Draw& draw) {
       if (draw.strategy.sharding_degree > 1 || (draw.strategy.cp > 1 && coin(random)))
         draw.strategy.sharding_stage = one_of<std::int64_t>(random, {1, 2, 3, 3, 3, 3});
     }},
    {"grad_reduction",
     [](Random& random, Draw& draw) {
       draw.strategy.gradients.reduction =
           one_of(random, {GradReduction::at_end, GradReduction::per_micro_batch});
     }},
    {"gradient_merge",
     [](Random& random, Draw& draw) {
       draw.strategy.gradients.merge =
           one_of(random, {GradientMerge::direct, GradientMerge::direct, GradientMerge::fused,
                           GradientMerge::tensor});
     }},
    {"gradient_type",
     [](Random& random, Draw& draw) {
       draw.strategy.precision.gradients =
           one_of(random, {GradientType::f32, GradientType::computed});
     }},
    {"overlap_grad_reduce",
     [](Random& random, Draw& draw) { draw.strategy.gradients.overlap = coin(random); }},
    {"overlap_param_gather",
     [](Random& random, Draw& draw) { draw.strategy.gathers.overlap = coin(random); }},
    {"gather",
     [](Random& random, Draw& draw) {
       Strategy& strategy = draw.strategy;
       strategy.gathers.unit = one_of(
           random, {ParameterGather::layer, ParameterGather::module, ParameterGather::tensor,
                    ParameterGather::use, ParameterGather::segment, ParameterGather::segment});
       const Bytes limit(std::int64_t{512} << random() % 10);
       const auto owner = one_of(
           random, {ShardingOwner::prefix, ShardingOwner::greedy, ShardingOwner::sorted_greedy});
       if (strategy.gathers.unit < ParameterGather::use) return;
       const Strategy usual;  // what goes with it
       if (strategy.owners.sharding_owner == ShardingOwner::elements)
         strategy.owners.sharding_owner = owner;
       if (strategy.gathers.unit == ParameterGather::segment)
         strategy.gathers.segment_broadcast_bytes = limit;
       strategy.gathers.reuse_distance_bytes = usual.gathers.reuse_distance_bytes;
       strategy.gathers.keep = usual.gathers.keep;
       if (strategy.gathers.unit == ParameterGather::segment) return;
       strategy.gathers.prefetch_depth = usual.gathers.prefetch_depth;
       strategy.gathers.max_live_bytes = usual.gathers.max_live_bytes;
     }},
    {"prefetch_depth",
     [](Random& random, Draw& draw) {
       draw.strategy.gathers.prefetch_depth = one_of<std::int64_t>(random, {0, 1, 1, 2, 5});
     }},
    {"max_live_bytes",
     [](Random& random, Draw& draw) {
       if (coin(random))
         draw.strategy.gathers.max_live_bytes = Bytes(std::int64_t{1024} << random() % 8);
     }},
    {"reuse_distance_bytes",
     [](Random& random, Draw& draw) {
       if (coin(random))
         draw.strategy.gathers.reuse_distance_bytes = Bytes(std::int64_t{1024} << random() % 9);
     }},
    {"persistence_threshold",
     [](Random& random, Draw& draw) {
       draw.strategy.gathers.persistence_threshold =
           one_of<std::int64_t>(random, {0, 0, 100, 1000, 100000});
     }},
    {"keep_gathered",
     [](Random& random, Draw& draw) { draw.strategy.gathers.keep = coin(random); }},
    {"sharding_owner",
     [](Random& random, Draw& draw) {
       if (draw.strategy.sharding_degree == 1 || coin(random)) return;
       draw.strategy.owners.sharding_owner = one_of(
           random, {ShardingOwner::prefix, ShardingOwner::greedy, ShardingOwner::sorted_greedy});
       draw.strategy.owners.collective_fusion = one_of(
           random, {CollectiveFusion::arena, CollectiveFusion::coalesced, CollectiveFusion::none});
       draw.strategy.gathers.bucket_bytes = Bytes(std::int64_t{4096} << random() % 8);
     }},
    {"layer_split",
     [](Random& random, Draw& draw) {
       Strategy& strategy = draw.strategy;
       strategy.pipeline.layer_split.clear();
       const std::int64_t parts = strategy.pp * strategy.pipeline.virtual_stages;
       if (strategy.pp > 1 && parts <= total_layers(draw.job) && coin(random))
         draw_layer_split(random, draw);
     }},
    {"schedule",
     [](Random& random, Draw& draw) {
       draw.strategy.schedule = Schedule(random() % std::size(kSchedules));
       const std::int64_t parts = 2 * draw.strategy.pp;  // of a V, which few draws can have
       if (parts > 2 && total_layers(draw.job) >= parts && coin(random)) {
         const bool halves = has_halves(grid_of(draw.strategy));
         draw.strategy.schedule =
             one_of(random, {Schedule::zb_v, Schedule::v_half, Schedule::v_min,
                             halves ? Schedule::dualpipe : Schedule::dualpipe_v});
       }
       if (is_placed_as_v(draw.strategy.schedule)) {
         draw.strategy.pipeline.virtual_stages = 2;  // what goes with it
         draw.strategy.pipeline.layer_split.clear();
       } else if (draw.strategy.schedule != Schedule::one_f_one_b) {
         draw.strategy.pipeline.virtual_stages = 1;
       }
     }},
    {"embedding_as_layers",
     [](Random& random, Draw& draw) {
       if (draw.strategy.pipeline.layer_split.empty())
         draw.strategy.pipeline.embedding_as_layers = one_of<std::int64_t>(random, {0, 1, 1, 2});
     }},
    {"loss_as_layers",
     [](Random& random, Draw& draw) {
       if (draw.strategy.pipeline.layer_split.empty())
         draw.strategy.pipeline.loss_as_layers = one_of<std::int64_t>(random, {0, 1, 1, 2});
     }},
    {"virtual_stages",
     [](Random& random, Draw& draw) {
       const Strategy& s = draw.strategy;
       const std::int64_t most =  // a layer in each, or an end of the model
           (total_layers(draw.job) + s.pipeline.embedding_as_layers + s.pipeline.loss_as_layers) /
           s.pp;
       if (draw.strategy.pp == 1 || most < 2 || random() % 4 == 0) return;
       if (is_placed_as_v(s.schedule) && random() % 4 != 0) return;
       draw.strategy.pipeline.virtual_stages =
           std::min(most, one_of<std::int64_t>(random, {2, 3, 3}));
       draw.strategy.schedule = Schedule::one_f_one_b;  // what goes with it
       draw.strategy.pipeline.send_lifetime =
           one_of(random, {SendLifetime::event, SendLifetime::held});
       draw.strategy.micro_batch = least_micro_batch(draw.job);
       draw.strategy.pipeline.layer_split.clear();
     }},
    {"send_lifetime",
     [](Random& random, Draw& draw) {
       draw.strategy.pipeline.send_lifetime =
           one_of(random, {SendLifetime::event, SendLifetime::held, SendLifetime::published});
     }},
    {"overlap_expert_exchange",
     [](Random& random, Draw& draw) {
       if (!draw.job.experts || random() % 4 == 0) return;
       draw.strategy.experts.overlap_exchange = true;
       draw.strategy.pipeline.send_lifetime = SendLifetime::event;  // what goes with it
       draw.strategy.gradients.merge = GradientMerge::direct;
     }},
};

/// Draws devices and a strategy for the job that is drawn.
void draw_strategy(Random& random, Draw& drawn) {
  drawn.devices = one_of<std::int64_t>(random, {1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8, 8});
  drawn.strategy.micro_batch = least_micro_batch(drawn.job);
  do {
    draw_degrees(random, drawn);
    if (random() % 64 == 0) drawn.devices = 1;  // this job cannot be split over so many
  } while (!is_legal(drawn));
  // In random order, so that no switch always yields to the same other; but first the stage, which
  // some need, and last the gradients' type, which needs several.
  std::vector<const Switch*> order;
  for (const Switch& one : kSwitches) {
    if (one.field == "sharding_stage" || one.field == "gradient_type") continue;
    order.insert(order.begin() + std::ptrdiff_t(random() % (order.size() + 1)), &one);
  }
  const auto named = [](std::string_view field) {
    return std::find_if(std::begin(kSwitches), std::end(kSwitches),
                        [&](const Switch& one) { return one.field == field; });
  };
  order.insert(order.begin(), named("sharding_stage"));
  order.push_back(named("gradient_type"));
  for (const Switch* one : order) {
    const Draw before = drawn;
    one->draw(random, drawn);
    if (!is_legal(drawn)) drawn = before;
  }
  INVARIANT(is_legal(drawn), "a draw is legal");
}

/// Narrow states of AdamW, with what goes with them. The loss and the gradients of the first step
/// stay as they are.
void draw_states(Random& random, Draw& drawn) {
  const Draw before = drawn;
  Strategy& strategy = drawn.strategy;
  strategy.optimizer.cast_placement = {};
  strategy.optimizer.flatten = {};
  strategy.owners = {};
  strategy.gathers.bucket_bytes = Strategy().gathers.bucket_bytes;
  strategy.gathers.segment_broadcast_bytes = Strategy().gathers.segment_broadcast_bytes;
  if (strategy.gathers.unit >= ParameterGather::use) strategy.gathers.unit = {};
  PrecisionChoices& precision = strategy.precision;
  precision.main_parameters = one_of(random, {MasterType::f32, MasterType::none, MasterType::none});
  precision.moments =
      one_of(random, {MomentType::f32, MomentType::bf16, MomentType::block8, MomentType::block8});
  if (coin(random)) precision.gradients = precision.main_gradients = GradientType::computed;
  precision.stochastic_rounding = coin(random) && precision.main_parameters == MasterType::none;
  // In 8 bits second moments of rounding noise are 0, and epsilon alone bounds the step.
  if (precision.moments == MomentType::block8) drawn.job.optimizer.epsilon = 1e-5;
  if (!is_legal(drawn)) drawn = before;
}

/// Some draws have Muon or Adafactor instead of their optimizer.
void draw_matrices(Draw& drawn) {
  Random random(drawn.seed + 16384);
  const std::uint64_t which = random() % 6;
  if (drawn.job.experts || which > 1) return;
  drawn.job.optimizer.kind = which == 0 ? OptimizerKind::muon : OptimizerKind::adafactor;
  drawn.job.optimizer.learning_rate = 1e-3;
  drawn.job.optimizer.momentum = one_of(random, {0.9, 0.95});
}

/// Half of the draws that can have it compute the loss in chunks.
void draw_loss_chunks(Draw& drawn) {
  Random random(drawn.seed + 12288);
  if (coin(random)) return;
  const Draw before = drawn;
  drawn.strategy.loss_chunks = one_of<std::int64_t>(random, {2, 2, 3, 4});
  if (!is_legal(drawn)) drawn = before;
}

/// Some of the draws that can have it update a share of the parameters on the host, or have their
/// moments there.
void draw_host_updates(Draw& drawn) {
  Random random(drawn.seed + 20480);
  if (coin(random)) return;
  const Draw before = drawn;
  OptimizerChoices& optimizer = drawn.strategy.optimizer;
  optimizer.offload_percent = one_of<std::int64_t>(random, {100, 60, 50, 25, 3});
  optimizer.overlap_offload = coin(random);
  if (coin(random)) optimizer.flatten = {};
  if (!is_legal(drawn) || random() % 3 == 0) {
    optimizer.offload_percent = 0;
    optimizer.overlap_offload = false;
    optimizer.paged = true;
  }
  if (!is_legal(drawn)) drawn = before;
}

/// Some draws without a pipeline free gradients in backward; their job clips none.
void draw_release(Draw& drawn) {
  Random random(drawn.seed + 16384);
  if (coin(random) || drawn.strategy.pp > 1) return;
  const Draw before = drawn;
  Strategy& strategy = drawn.strategy;
  strategy.gradients.release = true;
  drawn.job.clip_norm = 0;
  strategy.micro_batch = drawn.job.global_batch / (strategy.dp * strategy.sharding_degree);
  strategy.optimizer = {};
  strategy.gradients.merge = {};
  strategy.precision.main_gradients = strategy.precision.gradients;
  if (!is_legal(drawn)) drawn = before;
}

/// Some of the draws with an auxiliary loss and without a pipeline have one over all layers.
void draw_layer_balance(Draw& drawn) {
  Random random(drawn.seed + 20480);
  if (!drawn.job.experts || drawn.job.experts->balance_loss == 0 || coin(random)) return;
  const Draw before = drawn;
  drawn.job.experts->balance_layers = true;
  drawn.job.experts->balance_sequences = drawn.strategy.micro_batch;
  if (!is_legal(drawn)) drawn = before;
}

/// Some draws have parameters in the host's memory, where those that are trained are updated.
void draw_host_parameters(Draw& drawn) {
  Random random(drawn.seed + 24576);
  if (random() % (has_frozen(drawn.job) ? 2 : 4) != 0) return;
  const Draw before = drawn;
  if (!has_frozen(drawn.job) || coin(random)) drawn.strategy.optimizer = {.offload_percent = 100};
  drawn.strategy.sharding_stage = 3;
  drawn.strategy.gathers.offload = true;
  if (!is_legal(drawn)) drawn = before;
}

}  // namespace

Draw draw(std::uint64_t seed) {
  Random random(seed);
  Draw drawn{.seed = seed, .job = draw_job(random), .strategy = {}};
  Random of_frozen(seed + 4096);
  if (of_frozen() % 3 == 0) draw_frozen(of_frozen, drawn.job);
  if (of_frozen() % 3 == 0) draw_lengths(of_frozen, drawn.job);
  draw_matrices(drawn);
  draw_strategy(random, drawn);
  Random of_states(seed + 8192);
  draw_states(of_states, drawn);
  draw_loss_chunks(drawn);
  draw_release(drawn);
  draw_host_updates(drawn);
  draw_layer_balance(drawn);
  draw_host_parameters(drawn);
  return drawn;
}

Draw draw_for(const Job& job, std::uint64_t seed) {
  Random random(seed);
  Draw drawn{.seed = seed, .job = job, .strategy = {}};
  draw_strategy(random, drawn);
  return drawn;
}

Strategy serial(const Job& job) {
  Strategy strategy;
  const bool of_micro_batches = job.experts && job.experts->balance_layers;
  strategy.micro_batch = of_micro_batches ? job.experts->balance_sequences : job.global_batch;
  if (updates_matrices(job)) strategy.optimizer.flatten = Flatten::none;
  return strategy;
}

Strategy serial(const Draw& draw) {
  Strategy strategy = serial(draw.job);
  strategy.precision.main_parameters = draw.strategy.precision.main_parameters;
  strategy.precision.moments = draw.strategy.precision.moments;
  strategy.precision.stochastic_rounding = draw.strategy.precision.stochastic_rounding;
  return strategy;
}

std::string describe(const Draw& draw) {
  return fmt::format("draw {} on {} ranks: {}\n{}", draw.seed, draw.devices,
                     strategy_summary(draw.strategy), job_text(draw.job));
}

}  // namespace plimsoll
