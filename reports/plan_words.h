// Plan words: what is trained and how it is split, in the words of the field, and what each key of
// a strategy chooses.
#pragma once

#include <string>
#include <string_view>

#include "plan/plan.h"

namespace plimsoll {

/// Returns the job's size, its batch, its precision and how many devices train it.
std::string job_sentence(const Plan& plan);

/// Returns a strategy in the field's words: "TP 4 (sequence parallel), PP 8, DP 4 with ZeRO-1,
/// micro-batch 1 x 16, full recompute". DP counts all ranks that read different sequences. Choices
/// at their defaults are left out, and so are those of buckets, rank order and slots.
std::string layout_text(const Job& job, const Framework& framework, const Strategy& strategy);
/// Returns how a strategy differs from another one in these words: "CP 2, micro-batch 2". DP and
/// the number of micro-batches are left out, since they follow. The result is empty where the words
/// are the same.
std::string layout_change(const Job& job, const Framework& framework, const Strategy& strategy,
                          const Strategy& from);

/// Returns why a runner-up is not the chosen plan: "+1.2 ms bubble", "+3.1 GiB live".
std::string loss_words(const RunnerUp& loser);

/// Returns what helps a step that its host limits: "kernels take less time than their launches;
/// larger micro-batches or CUDA graphs would help". It names what the strategy and the framework
/// leave open. The result is empty where less than a tenth of the step is time of the host alone.
std::string host_bound_text(const Prediction& prediction, const Job& job,
                            const Framework& framework, const Strategy& strategy);

/// Returns what a key of a strategy chooses, as the schema of strategies says it, and an empty text
/// for an unknown key.
std::string meaning_of(std::string_view strategy_key);
/// Returns what the value does if the key is `schedule`, else the same.
std::string meaning_of(std::string_view strategy_key, std::string_view value);

}  // namespace plimsoll
