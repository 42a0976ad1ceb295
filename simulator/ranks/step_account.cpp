// Adds up the costs of the ops of a rank's step.
#include "simulator/ranks/step_account.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "graph/op_table.h"

namespace plimsoll {
namespace {

/// Calls see(op, its routine, its estimate, its channel or null, how often it runs) for every op.
template <class See>
void for_each_op(const Expansion& expansion, const RankTopology& topology, std::int64_t rank,
                 See see) {
  const std::vector<RankChannel>& channels = topology.channels[std::size_t(rank)];
  for (std::size_t r = 0; r < expansion.calls.size(); ++r) {
    const RoutineFacts& facts = expansion.routines[r];
    const Routine& routine = expansion.program->routines[r];
    for (std::size_t op = 0; op < facts.channel_op.size(); ++op) {
      if (facts.channel_op[op] == RoutineFacts::kLocal) {
        see(routine.ops[op], routine, facts.local[op], nullptr, expansion.calls[r]);
        continue;
      }
      const ChannelOp& channel_op = expansion.channel_ops[facts.channel_op[op]];
      const RankChannel& channel = channels[channel_op.channel];
      see(routine.ops[op], routine, topology.costs[channel.cost][channel_op.position], &channel,
          expansion.calls[r]);
    }
  }
}

/// The shape that an op's cost depends on, by its kind.
std::string name_of(const Op& op, const Routine& routine, const RankChannel* channel,
                    const RankTopology& topology) {
  const auto& tensors = routine.tensors;
  const std::string_view kind = to_text(op.kind);
  const std::string_view type = to_text(compute_dtype(op, tensors));
  if (channel != nullptr) {
    const std::string text = fmt::format("{} {} {}", kind, to_text(bytes_moved(op, tensors)), type);
    if (!channel->grouped) return text;
    const GroupSpread& spread = topology.instances[channel->instance].spread;
    const std::string on = spread.nodes > 1 ? fmt::format(" on {} nodes", spread.nodes) : "";
    return fmt::format("{} over {} ranks{}", text, spread.ranks, on);
  }
  if (row(op.kind).op_class == OpClass::matmul) {
    const MatmulShape shape = matmul_shape(op, tensors);
    const std::string batch = shape.batch > 1 ? fmt::format("{} x ", shape.batch) : "";
    return fmt::format("{} {}{}x{}x{} {}", kind, batch, shape.m, shape.n, shape.k, type);
  }
  if (row(op.kind).op_class == OpClass::attention) {
    const bool backward = op.kind == OpKind::flash_attention_backward;
    const Shape& shape = tensors[op.inputs.at(backward ? 1 : 0).index()].shape;
    return fmt::format("{} {} tokens x {} heads x {} {}", kind, shape[0], shape[2], shape[3], type);
  }
  return fmt::format("{} {} {}", kind, to_text(bytes_moved(op, tensors)), type);
}

}  // namespace

StepAccount account_for(const Expansion& expansion, const RankTopology& topology,
                        std::int64_t rank) {
  StepAccount account;
  for_each_op(expansion, topology, rank,
              [&](const Op&, const Routine&, const Estimate& estimate, const RankChannel* channel,
                  std::int64_t calls) {
                std::int64_t all = 0;
                if (__builtin_mul_overflow(to_picoseconds(estimate.time).count(), calls, &all))
                  throw InfeasibleError("a step would take longer than the clock can hold");
                const Picoseconds time(all);
                if (channel == nullptr) account.local += time;
                account.worst = std::max(account.worst, estimate.provenance);
                account.by_provenance[std::size_t(estimate.provenance)] += time.seconds();
              });
  return account;
}

Seconds open_time(const Expansion& expansion, const RankTopology& topology, std::int64_t rank) {
  double together = 0;
  // Equal costs are those of one op, whatever routine calls it.
  std::map<std::pair<Seconds, Seconds>, double> apart;
  for_each_op(expansion, topology, rank,
              [&](const Op&, const Routine&, const Estimate& estimate, const RankChannel*,
                  std::int64_t calls) {
                const bool stated = estimate.provenance == Provenance::datasheet;
                const Seconds half = stated ? estimate.time * kDatasheetHalfWidth : estimate.spread;
                const double open = half.value() * double(calls);
                const bool interpolated = estimate.provenance == Provenance::interpolated;
                (interpolated ? apart[{estimate.time, estimate.spread}] : together) += open;
              });
  double squares = together * together;
  for (const auto& [op, open] : apart) squares += open * open;
  return Seconds(std::sqrt(squares));
}

MeasuredShares measured_shares(const Expansion& expansion, const RankTopology& topology,
                               std::int64_t rank) {
  struct Sums {
    Seconds all, measured, open;
    double share() const { return all > Seconds(0) ? measured / all : 0; }
  };
  Sums kernels, communications;
  for_each_op(expansion, topology, rank,
              [&](const Op&, const Routine&, const Estimate& estimate, const RankChannel* channel,
                  std::int64_t calls) {
                Sums& sums = channel == nullptr ? kernels : communications;
                sums.all += estimate.time * double(calls);
                if (!estimate.of_calibration) return;
                sums.measured += estimate.time * double(calls);
                sums.open += estimate.spread * double(calls);
              });
  const Seconds measured = communications.measured;
  return {kernels.share(), communications.share(),
          measured > Seconds(0) ? communications.open / measured : 0};
}

std::vector<OutOfRange> out_of_range(const Expansion& expansion, const RankTopology& topology,
                                     std::int64_t rank) {
  std::map<std::string, Seconds> times;
  for_each_op(expansion, topology, rank,
              [&](const Op& op, const Routine& routine, const Estimate& estimate,
                  const RankChannel* channel, std::int64_t calls) {
                if (estimate.provenance != Provenance::extrapolated) return;
                if (estimate.time == Seconds(0)) return;
                times[name_of(op, routine, channel, topology)] += estimate.time * double(calls);
              });
  std::vector<OutOfRange> result;
  for (const auto& [what, time] : times) result.push_back({what, time});
  std::stable_sort(result.begin(), result.end(),
                   [](const OutOfRange& a, const OutOfRange& b) { return a.time > b.time; });
  return result;
}

}  // namespace plimsoll
