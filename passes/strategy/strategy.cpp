// The meaning of a strategy for a job, and the rules that it must keep.
#include "passes/strategy/strategy.h"

#include <fmt/format.h>

#include <algorithm>

#include "passes/strategy/expert_rules.h"
#include "passes/strategy/offload_rules.h"
#include "passes/strategy/pipeline_order.h"
#include "passes/strategy/precision_rules.h"
#include "passes/strategy/recompute_rules.h"
#include "passes/strategy/sharding_rules.h"
#include "passes/strategy/stage_layout.h"
#include "passes/strategy/step_rules.h"
#include "passes/strategy/strategy_table.h"

namespace plimsoll {
namespace {

__extension__ using Wide = __int128;

Verdict degrees_are_legal(const Strategy& strategy, std::int64_t devices) {
  struct Degree {
    const char* name;
    std::int64_t value;
  };
  const Degree degrees[] = {{"mp", strategy.mp},
                            {"pp", strategy.pp},
                            {"dp", strategy.dp},
                            {"sharding_degree", strategy.sharding_degree},
                            {"cp", strategy.cp}};
  Wide product = 1;
  for (const Degree& degree : degrees) {
    if (degree.value < 1 || degree.value > kMostDegree) {
      return Verdict::no(
          fmt::format("{} is {}; it must be from 1 to {}", degree.name, degree.value, kMostDegree));
    }
    product *= degree.value;
  }
  if (product != devices) {
    return Verdict::no(
        fmt::format("mp {} x pp {} x dp {} x sharding_degree {}{} is not the number of devices, {}",
                    strategy.mp, strategy.pp, strategy.dp, strategy.sharding_degree,
                    strategy.cp > 1 ? fmt::format(" x cp {}", strategy.cp) : "", devices));
  }
  return Verdict::yes();
}

/// The vocabulary has no rule, it is padded to a multiple of mp; nor has hidden, which the heads
/// divide (check_job).
Verdict tensors_divide(const Job& job, const Strategy& strategy) {
  if (job.heads % strategy.mp != 0) {
    return Verdict::no(fmt::format("mp {} does not divide the {} heads", strategy.mp, job.heads));
  }
  if (job.kv_heads % strategy.mp != 0 && strategy.mp % job.kv_heads != 0) {
    return Verdict::no(
        fmt::format("mp {} neither divides the {} kv_heads nor is a multiple of them", strategy.mp,
                    job.kv_heads));
  }
  if (job.qk_norm_across_heads && strategy.mp > 1) {
    return Verdict::no(fmt::format(
        "qk_norm_across_heads norms all heads at once; mp {} splits them", strategy.mp));
  }
  if (job.ffn_hidden % strategy.mp != 0) {
    return Verdict::no(
        fmt::format("mp {} does not divide ffn_hidden {}", strategy.mp, job.ffn_hidden));
  }
  if (!job.branch) return Verdict::yes();
  if (job.branch->heads % strategy.mp != 0) {
    return Verdict::no(
        fmt::format("mp {} does not divide the {} branch heads", strategy.mp, job.branch->heads));
  }
  if (job.branch->ffn_hidden % strategy.mp != 0) {
    return Verdict::no(fmt::format("mp {} does not divide the branch's ffn_hidden {}", strategy.mp,
                                   job.branch->ffn_hidden));
  }
  return Verdict::yes();
}

/// Each rank has two of 2 cp chunks of a sequence; heads are exchanged whole.
Verdict context_is_legal(const Job& job, const Strategy& strategy) {
  if (strategy.cp == 1) {
    return strategy.tokens.context_exchange == Strategy().tokens.context_exchange
               ? Verdict::yes()
               : Verdict::no("context_exchange is how cp ranks share sequences; cp is 1");
  }
  if (job.family != Family::gpt && job.family != Family::llama) {
    return Verdict::no("cp: only decoders share sequences between ranks");
  }
  if (job.sinks && strategy.tokens.context_exchange == ContextExchange::all_to_all)
    return Verdict::no("context_exchange is all_to_all, which has no sinks; the others have");
  const std::int64_t parts =
      2 * strategy.cp * (strategy.tokens.sequence_parallel ? strategy.mp : 1);
  if (job.sequence % parts != 0) {
    return Verdict::no(fmt::format("cp {}: the sequence of {} is not {} equal parts", strategy.cp,
                                   job.sequence, parts));
  }
  const std::int64_t heads = std::max<std::int64_t>(job.kv_heads / strategy.mp, 1);
  if (strategy.tokens.context_exchange == ContextExchange::ring && job.window > 0 &&
      job.window < job.sequence) {
    return Verdict::no(fmt::format(
        "context_exchange is ring, which has no window of {} tokens; the others have", job.window));
  }
  if (strategy.tokens.context_exchange == ContextExchange::all_to_all && heads % strategy.cp != 0) {
    return Verdict::no(
        fmt::format("context_exchange is all_to_all; cp {} does not divide the {} "
                    "key and value heads of a rank",
                    strategy.cp, heads));
  }
  return Verdict::yes();
}

Verdict tokens_divide(const Job& job, const Strategy& strategy) {
  if (!strategy.tokens.sequence_parallel) return Verdict::yes();
  if (strategy.mp == 1) return Verdict::no("sequence_parallel splits tokens over mp, which is 1");
  if (job.sequence % strategy.mp != 0) {
    return Verdict::no(fmt::format("sequence_parallel: mp {} does not divide the sequence of {}",
                                   strategy.mp, job.sequence));
  }
  return Verdict::yes();
}

Verdict boundary_is_legal(const Strategy& strategy) {
  if (!strategy.pipeline.split_boundary) return Verdict::yes();
  if (strategy.mp == 1) return Verdict::no("split_boundary splits what mp ranks send; mp is 1");
  if (strategy.pp == 1) return Verdict::no("split_boundary splits what stages send; pp is 1");
  if (strategy.tokens.sequence_parallel) {
    return Verdict::no("split_boundary: with sequence_parallel boundary tensors are split already");
  }
  return Verdict::yes();
}

Verdict recompute_is_legal(const Job& job, const Strategy& strategy) {
  if (Verdict verdict = modules_are_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = loss_chunks_are_legal(job, strategy); !verdict) return verdict;
  const auto& list = strategy.recomputed.list;
  if (strategy.recomputed.layers == 0 && list.empty()) return Verdict::yes();
  if (strategy.recompute == Recompute::none) {
    return Verdict::no("recompute is none; recompute_layers and recompute_list choose its layers");
  }
  if (strategy.recompute == Recompute::per_op) {
    return Verdict::no("recompute is per_op, which is of all layers");
  }
  if (strategy.recomputed.layers > 0 && !list.empty()) {
    return Verdict::no("recompute_layers and recompute_list both choose the layers");
  }
  if (strategy.recomputed.layers < 0 || strategy.recomputed.layers > total_layers(job)) {
    return Verdict::no(fmt::format("recompute_layers is {}; the model has {} layers",
                                   strategy.recomputed.layers, total_layers(job)));
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] < 0 || list[i] >= total_layers(job)) {
      return Verdict::no(fmt::format("recompute_list names layer {}; layers are 0 to {}", list[i],
                                     total_layers(job) - 1));
    }
    if (i > 0 && list[i] <= list[i - 1]) {
      return Verdict::no("recompute_list is not in ascending order");
    }
  }
  return Verdict::yes();
}

/// Layers and what the model's ends count as, spread over the parts: every part has one of them.
Verdict even_split_is_legal(const Job& job, const Strategy& strategy) {
  const std::int64_t embedding = strategy.pipeline.embedding_as_layers,
                     loss = strategy.pipeline.loss_as_layers;
  const std::int64_t layers = dealt_layers(job),
                     parts = strategy.pp * strategy.pipeline.virtual_stages;
  if (embedding < 0 || loss < 0 || embedding > layers || loss > layers) {
    return Verdict::no(
        fmt::format("embedding_as_layers is {} and loss_as_layers {}; they must be from 0 to the "
                    "{} layers",
                    embedding, loss, layers));
  }
  if (embedding + loss > 0 && parts == 1) {
    return Verdict::no(
        "embedding_as_layers and loss_as_layers say how layers are spread over stages; pp is 1");
  }
  if (parts > layers + embedding + loss) {
    std::string ends;
    if (embedding + loss > 0) {
      ends = fmt::format(" and the {} that embedding and loss count as", embedding + loss);
    } else if (parts <= layers + 2) {
      ends = "; embedding_as_layers=1 and loss_as_layers=1 count the model's ends as layers";
    }
    return Verdict::no(fmt::format("pp {} x virtual_stages {} is more than the {} layers{}",
                                   strategy.pp, strategy.pipeline.virtual_stages, layers, ends));
  }
  const std::vector<std::int64_t> split = layers_per_part(job, strategy);
  const std::int64_t modules = total_layers(job) - layers;
  if (split.front() >= 0 && split.back() >= modules) return Verdict::yes();
  return Verdict::no(fmt::format(
      "embedding_as_layers {} or loss_as_layers {} is more than a chunk's share", embedding, loss));
}

/// A stage with MTP modules has a copy of the embedding's table. Only one has a copy.
Verdict modules_are_together(const Job& job, const Strategy& strategy) {
  for (const std::int64_t part : parts_of_modules(job, strategy.pipeline.layer_split)) {
    const std::int64_t stage = place_of(strategy.schedule, strategy.pp, part).stage;
    if (stage != stage_of_tied_table(job, strategy))
      return Verdict::no("layer_split gives several stages MTP modules; they go on one stage");
    if (job.tied_embeddings && stage != stage_of_head(strategy)) {
      return Verdict::no(
          "layer_split gives MTP modules to another stage than the head's; with tied_embeddings "
          "both read the embedding's table");
    }
  }
  return Verdict::yes();
}

Verdict stages_are_legal(const Job& job, const Strategy& strategy) {
  const std::int64_t layers = total_layers(job);
  const std::int64_t ends =
      strategy.pipeline.embedding_as_layers + strategy.pipeline.loss_as_layers;
  if (strategy.pp > dealt_layers(job) && strategy.pipeline.layer_split.empty() && ends == 0) {
    return Verdict::no(
        fmt::format("pp {} is more than the {} layers", strategy.pp, dealt_layers(job)));
  }
  if (strategy.pipeline.virtual_stages < 1 || strategy.pipeline.virtual_stages > kMostDegree) {
    return Verdict::no(fmt::format("virtual_stages is {}; it must be from 1 to {}",
                                   strategy.pipeline.virtual_stages, kMostDegree));
  }
  const std::int64_t parts = strategy.pp * strategy.pipeline.virtual_stages;
  const auto& split = strategy.pipeline.layer_split;
  if (split.empty()) return even_split_is_legal(job, strategy);
  if (ends != 0) {
    return Verdict::no(
        "embedding_as_layers and loss_as_layers spread layers evenly; layer_split says how many "
        "each chunk has");
  }
  if (static_cast<std::int64_t>(split.size()) != parts) {
    return Verdict::no(
        parts == strategy.pp
            ? fmt::format("layer_split has {} stages, pp is {}", split.size(), strategy.pp)
            : fmt::format("layer_split has {} chunks, pp x virtual_stages is {}", split.size(),
                          parts));
  }
  Wide sum = 0;
  for (const std::int64_t each : split) {
    if (each < 0) return Verdict::no("layer_split gives a chunk fewer layers than none");
    sum += each;
  }
  if (sum != layers) {
    return Verdict::no(fmt::format("layer_split does not sum to the {} layers", layers));
  }
  if (Verdict verdict = modules_are_together(job, strategy); !verdict) return verdict;
  const std::vector<std::int64_t> by_stage = layers_per_stage(job, strategy);
  for (std::int64_t stage = 0; stage < strategy.pp; ++stage) {
    const bool end = parts > 1 && (stage == 0 || stage == stage_of_head(strategy));
    if (by_stage[std::size_t(stage)] > 0 || end) continue;
    return Verdict::no(fmt::format(
        "layer_split gives stage {} no layer; only stages that have an end of the model may have "
        "none",
        stage));
  }
  return Verdict::yes();
}

Verdict batch_divides(const Job& job, const Strategy& strategy) {
  if (strategy.micro_batch < 1) {
    return Verdict::no(
        fmt::format("micro_batch is {}; it must be at least 1", strategy.micro_batch));
  }
  const std::int64_t width = strategy.dp * strategy.sharding_degree;
  if (job.global_batch % (Wide{strategy.micro_batch} * width) != 0) {
    return Verdict::no(
        fmt::format("global batch {} is not divisible by micro_batch {} x batch width {} (dp x "
                    "sharding_degree)",
                    job.global_batch, strategy.micro_batch, width));
  }
  return Verdict::yes();
}

/// Data ranks come in pairs that swap micro-batches.
Verdict halves_are_legal(const Strategy& strategy) {
  if (!has_halves(grid_of(strategy))) {
    return Verdict::no(
        fmt::format("schedule dualpipe has two halves of the data ranks; dp {} and "
                    "sharding_degree {} are odd",
                    strategy.dp, strategy.sharding_degree));
  }
  return Verdict::yes();
}

/// The batch divides. Published sends are freed as Paddle PRs 34086 and 34230 do, which hold for
/// plain 1F1B only.
Verdict schedule_is_legal(const Job& job, const Strategy& strategy) {
  const std::int64_t m = micro_batches(job, strategy);
  const std::string_view name = kSchedules[std::size_t(strategy.schedule)];
  if (is_placed_as_v(strategy.schedule)) {
    if (strategy.pipeline.virtual_stages != 2) {
      return Verdict::no(fmt::format("schedule {} has 2 virtual_stages; there are {}", name,
                                     strategy.pipeline.virtual_stages));
    }
    if (strategy.pp == 1) return Verdict::no(fmt::format("schedule {} needs pp above 1", name));
    if (swaps_halves(strategy.schedule)) {
      if (Verdict verdict = halves_are_legal(strategy); !verdict) return verdict;
    }
  } else if (strategy.pipeline.virtual_stages > 1) {
    if (strategy.schedule != Schedule::one_f_one_b) {
      return Verdict::no(fmt::format("schedule {} has 1 virtual stage; there are {}", name,
                                     strategy.pipeline.virtual_stages));
    }
    if (strategy.pp == 1) return Verdict::no("virtual_stages above 1 need pp above 1");
    if (m % strategy.pp != 0) {
      return Verdict::no(
          fmt::format("virtual_stages {} run groups of pp {} micro-batches; there are {}",
                      strategy.pipeline.virtual_stages, strategy.pp, m));
    }
  }
  if (strategy.pipeline.send_lifetime != SendLifetime::published) return Verdict::yes();
  if (strategy.pipeline.virtual_stages > 1) {
    return Verdict::no(
        "send_lifetime is published; with virtual_stages the stages of the model are not monotone");
  }
  if (strategy.schedule != Schedule::one_f_one_b) {
    return Verdict::no("send_lifetime is published; that goes with schedule 1f1b");
  }
  if (m < strategy.pp) {
    return Verdict::no(
        fmt::format("send_lifetime is published; pp {} then needs more than {} micro-batches, "
                    "there are {}",
                    strategy.pp, strategy.pp - 1, m));
  }
  return Verdict::yes();
}

Verdict gathers_are_legal(const Strategy& strategy) {
  if (strategy.gathers.prefetch_depth < 0 || strategy.gathers.persistence_threshold < 0) {
    return Verdict::no("prefetch_depth and persistence_threshold must not be negative");
  }
  if (strategy.gathers.segment_broadcast_bytes <= Bytes(0)) {
    return Verdict::no("segment_broadcast_bytes must be positive");
  }
  return Verdict::yes();
}

/// Choices about gathers where parameters are used. What is broadcast for one op or one segment has
/// no later use to stay for, and for one op none ahead of which it could come.
Verdict stage_three_is_meant(const Strategy& strategy) {
  const Strategy usual;
  const auto usual_is = [&](auto member) { return member(strategy) == member(usual); };
  const bool use = strategy.gathers.unit == ParameterGather::use;
  const bool segment = strategy.gathers.unit == ParameterGather::segment;
  struct Requirement {
    const char* key;
    bool usual, counts;  ///< in stage 3, as `gather` is
  };
  const Requirement requirements[] = {
      {"gather", usual_is(FIELD(gathers.unit)), true},
      {"segment_broadcast_bytes", usual_is(FIELD(gathers.segment_broadcast_bytes)), segment},
      {"prefetch_depth", usual_is(FIELD(gathers.prefetch_depth)), !use},
      {"max_live_bytes", usual_is(FIELD(gathers.max_live_bytes)), !use},
      {"reuse_distance_bytes", usual_is(FIELD(gathers.reuse_distance_bytes)), !use && !segment},
      {"persistence_threshold", usual_is(FIELD(gathers.persistence_threshold)), true},
      {"keep_gathered", usual_is(FIELD(gathers.keep)), !use && !segment},
      {"offload_parameters", usual_is(FIELD(gathers.offload)), true},
  };
  for (const auto& [key, is_usual, counts] : requirements) {
    if (is_usual) continue;
    if (strategy.sharding_stage != 3) {
      return Verdict::no(
          fmt::format("{} is for sharding_stage 3, which gathers parameters for their uses; "
                      "the stage is {}",
                      key, strategy.sharding_stage));
    }
    if (!counts) {
      return Verdict::no(fmt::format("{} changes nothing if gather is {}", key,
                                     use       ? "use"
                                     : segment ? "segment"
                                               : "not segment"));
    }
  }
  return Verdict::yes();
}

Verdict sharding_is_legal(const Strategy& strategy) {
  if (strategy.sharding_stage < 0 || strategy.sharding_stage > 3) {
    return Verdict::no(
        fmt::format("sharding_stage is {}; it must be from 0 to 3", strategy.sharding_stage));
  }
  const bool by_context = strategy.cp > 1 && strategy.sharding_degree == 1;  // cp shards alone
  // A rank without others gathers from the host's memory.
  const bool by_host = strategy.sharding_stage == 3 && strategy.gathers.offload;
  if (!by_context && !by_host && (strategy.sharding_stage > 0) != (strategy.sharding_degree > 1)) {
    return Verdict::no(
        fmt::format("sharding_stage {} with sharding_degree {}: stages 1 to 3 go with a "
                    "degree above 1, stage 0 with degree 1, and stage 3 also with "
                    "offload_parameters",
                    strategy.sharding_stage, strategy.sharding_degree));
  }
  if (strategy.gradients.reduction == GradReduction::per_micro_batch &&
      strategy.sharding_stage == 1) {
    return Verdict::no("grad_reduction is per_micro_batch with sharding_stage 1: that is stage 2");
  }
  if (Verdict verdict = gathers_are_legal(strategy); !verdict) return verdict;
  return stage_three_is_meant(strategy);
}

/// Muon and Adafactor update whole matrices, one after the other.
Verdict matrices_are_legal(const Job& job, const Strategy& strategy) {
  if (!updates_matrices(job)) return Verdict::yes();
  const auto no = [&](std::string_view why) {
    const bool muon = job.optimizer.kind == OptimizerKind::muon;
    return Verdict::no(fmt::format("the optimizer is {}{}", muon ? "muon" : "adafactor", why));
  };
  if (strategy.optimizer.flatten != Flatten::none)
    return no(", which updates matrices one by one: flatten must be none");
  if (optimizer_shards(strategy) > 1 && (has_frozen(job) || strategy.cp > 1))
    return no(": with frozen parameters or cp its states are whole, and sharding_stage must be 0");
  if (optimizer_shards(strategy) > 1 && strategy.owners.sharding_owner == ShardingOwner::elements)
    return no("; ranges of elements cut through matrices: sharding_owner must not be elements");
  return Verdict::yes();
}

Verdict buffers_are_legal(const Strategy& strategy) {
  if (strategy.pipeline.send_slots < 1) {
    return Verdict::no(
        fmt::format("send_slots is {}; it must be at least 1", strategy.pipeline.send_slots));
  }
  if (strategy.gradients.bucket_bytes < kLeastBucket) {
    return Verdict::no(fmt::format("grad_bucket_bytes is {}; it must be at least {}",
                                   strategy.gradients.bucket_bytes.count(), kLeastBucket.count()));
  }
  return Verdict::yes();
}

}  // namespace

std::int64_t micro_batches(const Job& job, const Strategy& strategy) {
  const std::int64_t per_micro_batch =
      strategy.micro_batch * strategy.dp * strategy.sharding_degree;
  INVARIANT(per_micro_batch > 0 && job.global_batch % per_micro_batch == 0,
            "a legal strategy divides the batch");
  return job.global_batch / per_micro_batch;
}

bool recomputes(const Strategy& strategy, std::int64_t index, std::int64_t layer) {
  if (strategy.recompute == Recompute::none) return false;
  if (strategy.recompute == Recompute::per_op) return layer % 2 == 1;
  const auto& list = strategy.recomputed.list;
  if (!list.empty()) return std::find(list.begin(), list.end(), layer) != list.end();
  return strategy.recomputed.layers == 0 || index < strategy.recomputed.layers;
}

void drop_recompute(Strategy& strategy) {
  strategy.recompute = Recompute::none;
  strategy.recomputed.layers = 0;
  strategy.recomputed.list.clear();
  strategy.recomputed.modules = {};
}

Verdict legal(const Job& job, const Strategy& strategy, std::int64_t devices) {
  if (Verdict verdict = degrees_are_legal(strategy, devices); !verdict) return verdict;
  if (Verdict verdict = tensors_divide(job, strategy); !verdict) return verdict;
  if (Verdict verdict = tokens_divide(job, strategy); !verdict) return verdict;
  if (Verdict verdict = context_is_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = experts_are_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = recompute_is_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = boundary_is_legal(strategy); !verdict) return verdict;
  if (Verdict verdict = stages_are_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = sharding_is_legal(strategy); !verdict) return verdict;
  if (Verdict verdict = batch_divides(job, strategy); !verdict) return verdict;
  const std::int64_t programs = rank_classes(strategy) / strategy.pp;
  if (Verdict verdict = step_is_bounded(job, strategy, programs); !verdict) return verdict;
  if (Verdict verdict = schedule_is_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = matrices_are_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = offload_is_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = paging_is_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = activations_are_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = parameters_are_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = precision_is_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = owners_are_legal(strategy); !verdict) return verdict;
  return buffers_are_legal(strategy);
}

}  // namespace plimsoll
