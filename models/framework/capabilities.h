// Capabilities: which strategies a framework can run, each limit with the document or code that
// says so. legal() in passes/strategy/strategy.h applies them. Default: what the bundled runtime
// runs, which is all that needs no other kernels.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "graph/tensor.h"

namespace plimsoll {

// Choices of a strategy that frameworks differ in, with the words for them in files and in text.

enum class Schedule : std::uint8_t {
  one_f_one_b,  ///< with virtual_stages > 1, Megatron-LM's interleaved order
  gpipe,        ///< all forwards, then all backwards
  zb_h1,        ///< 1F1B with late weight gradients (Qi et al. 2023, arXiv 2401.10241)
};
inline constexpr std::string_view kSchedules[] = {"1f1b", "gpipe", "zb_h1"};

/// Backward repeats this instead of keeping it: nothing; the attention core of each layer
/// (Korthikanti et al. 2022, arXiv 2205.05198); each layer; of each layer all but attention and
/// every second linear layer (Liang et al. 2024, arXiv 2410.06511, section 2.1: selective, by op).
enum class Recompute : std::uint8_t { none, selective, full, per_op };
inline constexpr std::string_view kRecomputes[] = {"none", "selective", "full", "per_op"};

/// The layers that a recompute of whole layers is of.
enum class RecomputedLayers : std::uint8_t {
  all,
  first,      ///< so many of each stage, or of each of its chunks (Strategy::recompute_layers)
  every_nth,  ///< 0, n, 2n, ... (Strategy::recompute_list)
  listed,     ///< any (Strategy::recompute_list)
};
inline constexpr std::string_view kRecomputedLayers[] = {"all", "first", "every_nth", "listed"};

/// Linear layers of the blocks in 8-bit floating point, by how their operands are scaled: with the
/// largest value of earlier steps, or with that of the tensor itself, of the tensor or of each row.
/// The first two as Transformer Engine does it (recipes DelayedScaling and Float8CurrentScaling),
/// the others as torchao (docs/how-it-works/layers.md). Everything else stays in the job's type.
enum class Fp8 : std::uint8_t { none, delayed, current, tensorwise, rowwise };
inline constexpr std::string_view kFp8s[] = {"none", "delayed", "current", "tensorwise", "rowwise"};

/// How ranks that share sequences exchange keys and values (docs/how-it-works/splitting-layers.md).
enum class ContextExchange : std::uint8_t { ring, all_gather, all_to_all };
inline constexpr std::string_view kContextExchanges[] = {"ring", "all_gather", "all_to_all"};

/// A type of gradients: f32, or the job's precision.
enum class GradientType : std::uint8_t { f32, computed };
inline constexpr std::string_view kGradientTypes[] = {"f32", "computed"};

/// A type of the parameters that the update works on, where the job is in 16 bits.
enum class MasterType : std::uint8_t {
  f32,
  f16,
  remainder,  ///< the 16 bits of the f32 value that the bf16 parameter has not
};
inline constexpr std::string_view kMasterTypes[] = {"f32", "f16", "remainder"};

/// A type of the optimizer's moments; fp8: 8 bits.
enum class MomentType : std::uint8_t { f32, bf16, f16, fp8 };
inline constexpr std::string_view kMomentTypes[] = {"f32", "bf16", "f16", "fp8"};

/// In which order ranks are numbered: the axis that changes fastest first. Ranks that split tensors
/// follow each other, then those that split sequences.
enum class RankOrder : std::uint8_t {
  sharding_dp_pp,
  sharding_pp_dp,
  pp_sharding_dp,
  dp_sharding_pp,
  dp_pp_sharding,
  pp_dp_sharding,
};
inline constexpr std::string_view kRankOrders[] = {"mp-cp-sharding-dp-pp", "mp-cp-sharding-pp-dp",
                                                   "mp-cp-pp-sharding-dp", "mp-cp-dp-sharding-pp",
                                                   "mp-cp-dp-pp-sharding", "mp-cp-pp-dp-sharding"};

/// A set of enumerators, or of integers from 0 to 31.
template <class T>
class SetOf {
 public:
  constexpr SetOf() = default;
  constexpr SetOf(std::initializer_list<T> values) {
    for (T value : values) add(value);
  }
  constexpr void add(T value) { bits_ |= bit(value); }
  constexpr bool has(T value) const { return (bits_ & bit(value)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  bool operator==(const SetOf&) const = default;

 private:
  static constexpr std::uint32_t bit(T value) { return std::uint32_t{1} << unsigned(value); }
  std::uint32_t bits_ = 0;
};

/// The values of one kind of choice that a framework has, and the document or code that says so;
/// the source is empty where all is there that there is. Sources have no numbers that stand alone:
/// the search counts refusals by their text.
template <class T>
struct Sourced {
  T value{};
  std::string source{};
  bool operator==(const Sourced&) const = default;
};

struct Capabilities {
  // How ranks share the work.
  Sourced<bool> pipeline{true};
  Sourced<bool> tensor_parallel{true};
  /// Ranks that each have the whole model: alone, and beside pipelines or split tensors.
  Sourced<bool> replicas{true}, replicas_beside_others{true};
  /// Stages of ZeRO (Strategy::sharding_stage), without and with a pipeline. In a pipeline stage 1
  /// is whatever keeps gradients and parameters whole until the last micro-batch.
  Sourced<SetOf<std::int64_t>> sharding_stages{{1, 2, 3}}, pipeline_sharding_stages{{1, 2, 3}};
  /// Several sets of ranks that each share out one copy (dp and sharding_degree above 1).
  Sourced<bool> replicated_shards{true};
  /// Whole tensors can be owned (Strategy::sharding_owner).
  Sourced<bool> whole_owners{true};
  /// The orders in which the framework can number ranks (Strategy::rank_order).
  Sourced<SetOf<RankOrder>> rank_orders{{RankOrder::sharding_dp_pp, RankOrder::sharding_pp_dp,
                                         RankOrder::pp_sharding_dp, RankOrder::dp_sharding_pp,
                                         RankOrder::dp_pp_sharding, RankOrder::pp_dp_sharding}};

  // Pipelines.
  Sourced<SetOf<Schedule>> schedules{{Schedule::one_f_one_b, Schedule::gpipe, Schedule::zb_h1}};
  Sourced<bool> virtual_stages{true};
  /// Stages, or their chunks, can have different numbers of layers; those at the ends none.
  Sourced<bool> uneven_split{true}, empty_parts{true};
  Sourced<bool> split_boundary{true};

  // Layers.
  Sourced<SetOf<Recompute>> recompute{{Recompute::none, Recompute::selective, Recompute::full}};
  Sourced<SetOf<RecomputedLayers>> recomputed_layers{
      {RecomputedLayers::all, RecomputedLayers::first, RecomputedLayers::every_nth,
       RecomputedLayers::listed}};
  /// Ranks can share the tokens of a sequence (Strategy::cp); empty: none can.
  Sourced<SetOf<ContextExchange>> context_exchange;
  Sourced<SetOf<Fp8>> fp8{{Fp8::none}};

  // Precision of gradients and of the optimizer's state.
  Sourced<SetOf<GradientType>> gradient_types{{GradientType::f32, GradientType::computed}};
  /// Precisions of jobs whose gradients are of type computed where it is not told otherwise.
  Sourced<SetOf<DType>> computed_by_default;
  /// Types of the gradients that the update reads.
  Sourced<SetOf<GradientType>> main_gradient_types{{GradientType::f32}};
  Sourced<SetOf<MasterType>> master_types{{MasterType::f32}};
  Sourced<SetOf<MomentType>> moment_types{{MomentType::f32}};
  /// Narrow types of these three, and parameters in 8 bits, work without sharding, too.
  Sourced<bool> narrow_states_unsharded{true};
  /// Linear layers' parameters can be kept and gathered in 8 bits (Strategy::fp8_parameters).
  Sourced<bool> fp8_parameters{false};

  // Sharding stage 3.
  Sourced<std::int64_t> most_prefetch_depth{std::int64_t{1} << 16};
  Sourced<bool> keeps_gathered{true};
  /// max_live_bytes, reuse_distance_bytes and persistence_threshold of a strategy.
  Sourced<bool> live_limits{true};

  bool operator==(const Capabilities&) const = default;
};

}  // namespace plimsoll
