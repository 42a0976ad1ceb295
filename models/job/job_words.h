// This header has the words that files use for the enumerations of a job.
#pragma once

#include <array>
#include <string_view>

#include "graph/tensor.h"

namespace plimsoll {

// The words are in the order of the enumerations (models/job/job.h).
inline constexpr std::array<std::string_view, 4> kFamilies = {"gpt", "llama", "bert", "ernie"};
inline constexpr std::array<std::string_view, 4> kActivations = {"swiglu", "squared_relu", "geglu",
                                                                 "gelu"};
inline constexpr std::array<std::string_view, 2> kNorms = {"rms_norm", "layer_norm"};
inline constexpr std::array<std::string_view, 3> kNormPlaces = {"before", "around", "after"};
inline constexpr std::array<std::string_view, 3> kMlpInputs = {"attended", "own_norm",
                                                               "shared_norm"};
inline constexpr std::array<std::string_view, 2> kRouterScores = {"softmax", "sigmoid"};
inline constexpr std::array<std::string_view, 13> kAdapterTargets = {
    "query",   "key",  "value",      "qkv",      "out",     "gate", "up",
    "gate_up", "down", "query_down", "query_up", "kv_down", "kv_up"};
inline constexpr std::array<std::string_view, 2> kPackings = {"packed", "padded"};
inline constexpr std::array<std::string_view, 3> kFrozenWeights = {"precision", "nf4",
                                                                   "nf4_nested"};
/// The types in which a job computes, and their words.
inline constexpr std::array<std::string_view, 3> kPrecisions = {"fp32", "bf16", "fp16"};
inline constexpr std::array<DType, 3> kPrecisionTypes = {DType::f32, DType::bf16, DType::f16};

}  // namespace plimsoll
