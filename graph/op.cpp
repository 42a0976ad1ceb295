// Names of phases, streams and reductions; those of op kinds stand in ops.def.
#include "graph/op.h"

#include <algorithm>

namespace plimsoll {

namespace {
constexpr std::array<std::string_view, 5> kPhaseNames = {"forward", "recompute", "backward",
                                                         "backward_weight", "optimizer"};
constexpr std::array<std::string_view, kStreams> kStreamNames = {
    "compute",   "mp",   "data",      "world",         "context",   "experts",      "to_host",
    "to_device", "host", "send_next", "send_previous", "recv_next", "recv_previous"};
constexpr std::array<std::string_view, 2> kReductions = {"sum", "max"};
}  // namespace

double causal_scores(std::int64_t tokens, const AttentionParams& params) {
  const auto triangle = [](double of) { return of * (of + 1) / 2; };
  const auto s = double(tokens), w = double(params.window);
  if (params.window == 0 || w >= s) return triangle(s);
  if (!params.chunks) return w * s - w * (w - 1) / 2;
  const std::int64_t whole = tokens / params.window;
  return double(whole) * triangle(w) + triangle(s - double(whole) * w);
}

double share_in_window(const AttentionParams& params) {
  if (!params.causal) return 1;
  const double within = params.within_examples > 0 ? params.within_examples : 1;
  const auto s = double(params.sequence), w = double(params.window);
  if (params.window == 0 || w >= s) return within;
  return within * causal_scores(params.sequence, params) / (s * (s + 1) / 2);
}

PackedLayout packed_layout(std::int64_t elements, bool nested) {
  constexpr std::int64_t kFloat = 4;
  const auto parts = [](std::int64_t whole, std::int64_t part) {
    return (whole + part - 1) / part;
  };
  const auto in_floats = [&](std::int64_t bytes) { return parts(bytes, kFloat) * kFloat; };
  const std::int64_t blocks = parts(elements, kPackedBlock);
  PackedLayout layout{.scales = in_floats(parts(elements, 2)), .nested = nested};
  layout.bytes = layout.scales + blocks * kFloat;
  if (!nested) return layout;
  layout.outer = layout.scales + in_floats(blocks);
  layout.mean = layout.outer + parts(blocks, kOuterBlock) * kFloat;
  layout.bytes = layout.mean + kFloat;
  return layout;
}

std::string_view to_text(OpKind kind) { return kOpNames[std::size_t(kind)]; }
std::string_view to_text(Phase phase) { return kPhaseNames[std::size_t(phase)]; }
std::string_view to_text(Stream stream) { return kStreamNames[std::size_t(stream)]; }
std::string_view to_text(Reduction reduction) { return kReductions[std::size_t(reduction)]; }
std::string_view to_text(RotaryScaling scaling) { return kRotaryScalings[std::size_t(scaling)]; }
std::optional<OpKind> op_kind_from(std::string_view text) {
  const auto found = std::ranges::find(kOpNames, text);
  return found == kOpNames.end() ? std::nullopt : std::optional(OpKind(found - kOpNames.begin()));
}

}  // namespace plimsoll
