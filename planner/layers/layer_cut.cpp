// Dynamic programming over stages, from the last one back.
#include "planner/layers/layer_cut.h"

#include <algorithm>
#include <tuple>

#include "planner/bounds/call_path.h"

namespace plimsoll {
namespace {

/// Choices for a stage and all later ones, with some layers left for them.
struct Suffix {
  Picoseconds passes;    ///< of one micro-batch through all of them
  Picoseconds step;      ///< the objective, of these stages alone
  double spread = 0;     ///< sum of squares of their work, in seconds
  StageChoice choice;    ///< of the first of these stages
  std::size_t next = 0;  ///< the rest, among those of the next stage
};

/// The time that one stage adds to the step. A micro-batch takes `behind` on the stages after it.
Picoseconds own_time(const StageOption& option, Picoseconds behind, std::int64_t stages_left,
                     std::int64_t micro_batches) {
  const std::int64_t ahead = std::min(stages_left, micro_batches) - 1;
  const Picoseconds meanwhile = repeated(option.forward, ahead);
  const Picoseconds wait = std::max(behind, meanwhile) - meanwhile;
  return repeated(option.work, micro_batches) + wait;
}

Suffix before(const StageOption& option, std::int64_t layers, const Suffix& rest,
              std::int64_t stages_left, std::int64_t micro_batches) {
  const double work = option.work.seconds().value();
  return {option.passes + rest.passes,
          std::max(option.passes + rest.step,
                   own_time(option, rest.passes, stages_left, micro_batches)),
          work * work + rest.spread,
          {layers, option.recomputed},
          0};
}

bool beats(const Suffix& a, const Suffix& b) {
  if (a.passes > b.passes || a.step > b.step) return false;
  return a.passes < b.passes || a.step < b.step || a.spread <= b.spread;
}

void keep(const Suffix& candidate, std::vector<Suffix>& kept) {
  if (std::ranges::any_of(kept, [&](const Suffix& other) { return beats(other, candidate); }))
    return;
  std::erase_if(kept, [&](const Suffix& other) { return beats(candidate, other); });
  kept.push_back(candidate);
}

class CutFinder {
 public:
  CutFinder(const CutProblem& problem, const StageOptions& options)
      : problem_(problem),
        options_(options),
        kept_(std::size_t(problem.stages),
              std::vector<std::vector<Suffix>>(std::size_t(problem.layers) + 1)) {}

  std::optional<LayerCut> find() {
    for (std::int64_t stage = problem_.stages - 1; stage >= 0; --stage) {
      for (std::int64_t layers = 0; layers <= problem_.layers; ++layers) add(stage, layers);
    }
    const std::vector<Suffix>& all = kept_.front()[std::size_t(problem_.layers)];
    if (all.empty()) return std::nullopt;
    const auto least = std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.step, a.passes) < std::tuple(b.step, b.passes);
    });
    return cut_of(*least);
  }

 private:
  /// Keeps choices below the limit. The objective only grows with the stages in front.
  void add(const Suffix& suffix, std::vector<Suffix>& kept) const {
    if (!problem_.limit || suffix.step < *problem_.limit) keep(suffix, kept);
  }

  /// Extends every cut of the later stages by a stage with so many layers.
  void add(std::int64_t stage, std::int64_t layers) {
    const bool last = stage + 1 == problem_.stages;
    const std::int64_t stages_left = problem_.stages - stage;
    for (const StageOption& option : options_(stage, layers)) {
      if (last) {
        add(before(option, layers, {}, stages_left, problem_.micro_batches),
            kept_.back()[std::size_t(layers)]);
        continue;
      }
      // The first stage has what the others leave, all of the model between them.
      const std::int64_t first_left = stage == 0 ? problem_.layers : layers;
      for (std::int64_t left = first_left; left <= problem_.layers; ++left) {
        const std::vector<Suffix>& rest = kept_[std::size_t(stage) + 1][std::size_t(left - layers)];
        for (std::size_t i = 0; i < rest.size(); ++i) {
          Suffix with = before(option, layers, rest[i], stages_left, problem_.micro_batches);
          with.next = i;
          add(with, kept_[std::size_t(stage)][std::size_t(left)]);
        }
      }
    }
  }

  LayerCut cut_of(const Suffix& first) const {
    LayerCut cut{{first.choice}, first.step};
    const Suffix* suffix = &first;
    std::int64_t left = problem_.layers;
    for (std::size_t stage = 1; stage < kept_.size(); ++stage) {
      left -= suffix->choice.layers;
      suffix = &kept_[stage][std::size_t(left)][suffix->next];
      cut.stages.push_back(suffix->choice);
    }
    return cut;
  }

  const CutProblem& problem_;
  const StageOptions& options_;
  std::vector<std::vector<std::vector<Suffix>>> kept_;  ///< by stage and layers left
};

}  // namespace

Picoseconds pipeline_objective(std::span<const StageOption> stages, std::int64_t micro_batches) {
  Picoseconds behind, longest;
  for (std::size_t s = stages.size(); s-- > 0;) {
    const auto left = std::int64_t(stages.size() - s);
    longest =
        std::max(stages[s].passes + longest, own_time(stages[s], behind, left, micro_batches));
    behind += stages[s].passes;
  }
  return longest;
}

std::optional<LayerCut> best_cut(const CutProblem& problem, const StageOptions& options) {
  return CutFinder(problem, options).find();
}

}  // namespace plimsoll
