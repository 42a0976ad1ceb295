// This header lists the fields of every parameter struct once; text form and equality follow it.
#pragma once

#include "graph/op.h"

namespace plimsoll {

/// Calls visit(name, field) for each field in order.
template <class Visit>
void fields(std::monostate&, Visit&&) {}
template <class Visit>
void fields(MatmulParams& p, Visit&& visit) {
  visit("batch_dims", p.batch_dims);
  visit("transpose_a", p.transpose_a);
  visit("transpose_b", p.transpose_b);
  visit("accumulate", p.accumulate);
  visit("scaled_by_rows", p.scaled_by_rows);
  visit("scale", p.scale);
}
template <class Visit>
void fields(NormParams& p, Visit&& visit) {
  visit("epsilon", p.epsilon);
}
template <class Visit>
void fields(AttentionParams& p, Visit&& visit) {
  visit("sequence", p.sequence);
  visit("scale", p.scale);
  visit("causal", p.causal);
  visit("window", p.window);
  visit("dropout", p.dropout);
  visit("seed", p.seed);
  visit("site", p.site);
  visit("key_ranks", p.key_ranks);
  visit("round", p.round);
  visit("soft_cap", p.soft_cap);
  visit("chunks", p.chunks);
  visit("alibi_heads", p.alibi_heads);
  visit("alibi_scale", p.alibi_scale);
  visit("within_examples", p.within_examples);
}
template <class Visit>
void fields(PackParams& p, Visit&& visit) {
  visit("nested", p.nested);
}
template <class Visit>
void fields(CapParams& p, Visit&& visit) {
  visit("limit", p.limit);
}
template <class Visit>
void fields(DropoutParams& p, Visit&& visit) {
  visit("rate", p.rate);
  visit("seed", p.seed);
  visit("site", p.site);
}
template <class Visit>
void fields(RotaryParams& p, Visit&& visit) {
  visit("sequence", p.sequence);
  visit("rotated", p.rotated);
  visit("width", p.width);
  visit("base", p.base);
  visit("scaling", p.scale.kind);
  visit("factor", p.scale.factor);
  visit("original", p.scale.original);
  visit("low", p.scale.low);
  visit("high", p.scale.high);
  visit("whole_columns", p.scale.whole_columns);
  visit("amplitude", p.scale.amplitude);
  visit("growth", p.growth.factor);
  visit("growth_span", p.growth.span);
  visit("growth_ahead", p.growth.ahead);
}
template <class Visit>
void fields(ActivationParams& p, Visit&& visit) {
  visit("exact", p.exact);
  visit("limit", p.limit);
  visit("sharpness", p.sharpness);
  visit("offset", p.offset);
}
template <class Visit>
void fields(FactorParams& p, Visit&& visit) {
  visit("factor", p.factor);
}
template <class Visit>
void fields(VocabularyParams& p, Visit&& visit) {
  visit("vocabulary", p.vocabulary);
  visit("split_degree", p.split_degree);
  visit("loss_weight", p.loss_weight);
  visit("depths", p.depths);
  visit("depth_weight", p.depth_weight);
  visit("sequence", p.sequence);
}
template <class Visit>
void fields(DataParams& p, Visit&& visit) {
  visit("sequence", p.sequence);
  visit("predicted", p.predicted);
  visit("vocabulary", p.vocabulary);
  visit("seed", p.seed);
  visit("ahead", p.ahead);
  visit("depths", p.depths);
  visit("parts", p.parts);
  visit("ranks", p.ranks);
}
template <class Visit>
void fields(RouteParams& p, Visit&& visit) {
  visit("sigmoid", p.sigmoid);
  visit("normalized", p.normalized);
  visit("scale", p.scale);
  visit("groups", p.groups);
  visit("top_groups", p.top_groups);
  visit("group_best", p.group_best);
}
template <class Visit>
void fields(BalanceParams& p, Visit&& visit) {
  visit("sequence", p.sequence);
  visit("sequences", p.sequences);
  visit("sigmoid", p.sigmoid);
  visit("balance_weight", p.balance_weight);
  visit("z_weight", p.z_weight);
}
template <class Visit>
void fields(SelectionParams& p, Visit&& visit) {
  visit("step", p.step);
  visit("even", p.even);
}
template <class Visit>
void fields(LimitParams& p, Visit&& visit) {
  visit("sequence", p.sequence);
  visit("capacity", p.capacity);
  visit("ranks", p.ranks);
}
template <class Visit>
void fields(PlaceParams& p, Visit&& visit) {
  visit("parts", p.parts);
  visit("rows", p.rows);
  visit("drops", p.drops);
}
template <class Visit>
void fields(GroupedBiasParams& p, Visit&& visit) {
  visit("ranks", p.ranks);
}
template <class Visit>
void fields(CollectiveParams& p, Visit&& visit) {
  visit("group", p.group);
  visit("reduction", p.reduction);
  visit("root", p.root);
  visit("shift", p.shift);
}
template <class Visit>
void fields(TransferParams& p, Visit&& visit) {
  visit("stage_offset", p.stage_offset);
}
template <class Visit>
void fields(FillParams& p, Visit&& visit) {
  visit("value", p.value);
}
template <class Visit>
void fields(FlatParams& p, Visit&& visit) {
  visit("shards", p.shards);
  visit("weight", p.weight);
  visit("group", p.group);
  visit("elements", p.elements);
}
template <class Visit>
void fields(ClipParams& p, Visit&& visit) {
  visit("limit", p.limit);
  visit("loss_scaling", p.loss_scaling);
}
template <class Visit>
void fields(StepParams& p, Visit&& visit) {
  visit("loss_scale", p.loss_scale);
  visit("growth", p.growth);
  visit("backoff", p.backoff);
  visit("growth_interval", p.growth_interval);
}
/// Visits the fields that all updates have.
template <class Params, class Visit>
void update_fields(Params& p, Visit&& visit) {
  visit("weight_decay", p.weight_decay);
  visit("clipped", p.clipped);
  visit("group", p.group);
  visit("elements", p.elements);
}
template <class Visit>
void fields(AdamParams& p, Visit&& visit) {
  visit("learning_rate", p.learning_rate);
  visit("beta1", p.beta1);
  visit("beta2", p.beta2);
  visit("epsilon", p.epsilon);
  update_fields(p, visit);
  visit("stochastic", p.stochastic);
  visit("seed", p.seed);
  visit("begin", p.begin);
  visit("end", p.end);
}
template <class Visit>
void fields(SgdParams& p, Visit&& visit) {
  visit("learning_rate", p.learning_rate);
  visit("momentum", p.momentum);
  update_fields(p, visit);
  visit("begin", p.begin);
  visit("end", p.end);
}
template <class Visit>
void fields(AdafactorParams& p, Visit&& visit) {
  visit("learning_rate", p.learning_rate);
  visit("weight_decay", p.weight_decay);
  visit("clipped", p.clipped);
  visit("rows", p.rows);
  visit("columns", p.columns);
  visit("copies", p.copies);
}
template <class Visit>
void fields(LambParams& p, Visit&& visit) {
  visit("learning_rate", p.learning_rate);
  visit("beta1", p.beta1);
  visit("beta2", p.beta2);
  visit("epsilon", p.epsilon);
  update_fields(p, visit);
}

}  // namespace plimsoll
