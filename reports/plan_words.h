// Plan words: what is trained and how it is split, in sentences for pages and terminals.
#pragma once

#include <string>

#include "plan/plan.h"

namespace plimsoll {

/// Returns the job's size, its batch, its precision and how many devices train it.
std::string job_sentence(const Plan& plan);
/// Returns which ranks share layers, sequences, the batch, optimizer state and experts.
std::string split_sentences(const Plan& plan);
/// Returns how a replica's share of the batch is cut, and which activations are kept.
std::string micro_batch_sentence(const Plan& plan);

}  // namespace plimsoll
