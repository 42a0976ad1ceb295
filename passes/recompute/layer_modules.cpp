// Modules are found by kinds of ops, and by who reads whose results.
#include "passes/recompute/layer_modules.h"

#include <algorithm>
#include <map>
#include <optional>

#include "graph/op_table.h"

namespace plimsoll {

namespace {

using Members = std::vector<bool>;

bool is_norm(OpKind kind) { return kind == OpKind::layer_norm || kind == OpKind::rms_norm; }

bool is_sum(OpKind kind) {
  return kind == OpKind::add || kind == OpKind::bias_residual_add ||
         kind == OpKind::bias_dropout_add;
}

bool is_dropout(OpKind kind) { return kind == OpKind::dropout || kind == OpKind::masked_dropout; }

bool is_activation(OpKind kind) {
  return kind == OpKind::gelu || kind == OpKind::bias_gelu || kind == OpKind::squared_relu ||
         kind == OpKind::swiglu || kind == OpKind::geglu;
}

bool is_grouped(OpKind kind) {
  return kind == OpKind::grouped_matmul || kind == OpKind::grouped_bias_add;
}

/// Whether an op gives its input's values in another type or order.
bool is_cast(OpKind kind) {
  return kind == OpKind::cast || kind == OpKind::quantize || kind == OpKind::transpose ||
         kind == OpKind::absolute_maximum;
}

bool is_exchange(OpKind kind) {
  return communicates(kind) || kind == OpKind::copy_to_group || kind == OpKind::reduce_from_group;
}

/// Finds modules of one layer.
class ModuleFinder {
 public:
  ModuleFinder(const Graph& graph, std::span<const Op> ops) : graph_(graph), ops_(ops) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (const TensorId id : ops[i].outputs) producer_.emplace(id, i);
      for (const TensorId id : ops[i].inputs) readers_[id].push_back(i);
    }
  }

  std::vector<LayerModule> run(SetOf<RecomputedModule> kinds) {
    for (std::size_t k = 0; k < std::size(kRecomputedModules); ++k) {
      if (kinds.has(RecomputedModule(k))) find(RecomputedModule(k));
    }
    for (LayerModule& module : found_) add_what_it_alone_reads(module);
    for (LayerModule& module : found_) add_casts_behind(module);
    return std::move(found_);
  }

 private:
  void find(RecomputedModule kind) {
    Members core(ops_.size()), mixture(ops_.size());
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const Op& op = ops_[i];
      const bool of_experts = is_activation(op.kind) && follows_grouped(op);
      const bool of_mixture = is_activation(op.kind) && !of_experts && reads_as_router(op),
                 of_mlp = is_activation(op.kind) && !of_experts && !of_mixture;
      switch (kind) {
        case RecomputedModule::core_attention:
          core[i] = in_attention_core(graph_, ops_, op);
          break;
        case RecomputedModule::norms:
          if (is_norm(op.kind) && reads_residual(op)) add(kind, only(i));
          break;
        case RecomputedModule::latent_up_projection:
          if (op.kind == OpKind::share_rope_key) add(kind, up_projection(i));
          break;
        case RecomputedModule::mlp:
          if (of_mlp) add(kind, mlp_around(i));
          break;
        case RecomputedModule::expert_activation:
          if (of_experts) add(kind, only(i));
          break;
        case RecomputedModule::shared_experts:
          if (of_mixture) add(kind, mlp_around(i));
          break;
        case RecomputedModule::experts:
          if (of_mixture) unite(mixture, mlp_around(i));
          if (is_router(op)) unite(mixture, with_logits(i));
          if (op.kind == OpKind::dispatch_rows) unite(mixture, down_projection(op));
          break;
      }
    }
    if (kind == RecomputedModule::core_attention) add(kind, std::move(core));
    if (kind == RecomputedModule::experts) add(kind, all_behind(std::move(mixture)));
  }

  void add(RecomputedModule kind, Members ops) {
    if (std::ranges::find(ops, true) != ops.end()) found_.push_back({kind, std::move(ops)});
  }

  static void unite(Members& all, const Members& more) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = all[i] || more[i];
  }

  Members only(std::size_t i) const {
    Members ops(ops_.size());
    ops[i] = true;
    return ops;
  }

  std::optional<std::size_t> producer(TensorId id) const {
    const auto found = producer_.find(id);
    return found == producer_.end() ? std::nullopt : std::optional(found->second);
  }

  std::span<const std::size_t> readers(TensorId id) const {
    const auto found = readers_.find(id);
    return found == readers_.end() ? std::span<const std::size_t>() : found->second;
  }

  /// Returns the op that computed a value, before casts and biases.
  std::optional<std::size_t> source(TensorId id) const {
    auto op = producer(id);
    while (op && (is_cast(ops_[*op].kind) || ops_[*op].kind == OpKind::bias_add))
      op = producer(ops_[*op].inputs[0]);
    return op;
  }

  /// Whether a value is a parameter, a cast of one, or its copy that lasts for a step.
  bool is_weight(TensorId id) const {
    const Tensor& tensor = graph_.at(id);
    if (is_one_parameter(tensor) || tensor.role == TensorRole::workspace) return true;
    const auto op = producer(id);
    const bool copies = op && (is_cast(ops_[*op].kind) || ops_[*op].kind == OpKind::unpack_weight);
    return copies && is_weight(ops_[*op].inputs[0]);
  }

  bool is_linear(const Op& op) const {
    return op.kind == OpKind::matmul && is_weight(op.inputs[1]);
  }

  /// Returns a value as it was before casts, biases and exchanges.
  TensorId origin(TensorId id) const {
    for (auto op = producer(id); op && passes_on(ops_[*op]); op = producer(id))
      id = ops_[*op].inputs[0];
    return id;
  }

  static bool passes_on(const Op& op) {
    return is_cast(op.kind) || op.kind == OpKind::bias_add || is_exchange(op.kind);
  }

  /// Returns what the product behind `id` reads.
  std::optional<TensorId> read_by_product(TensorId id) const {
    const auto op = producer(origin(id));
    if (!op || ops_[*op].kind != OpKind::matmul) return std::nullopt;
    return origin(ops_[*op].inputs[0]);
  }

  /// Whether an MLP is that of shared experts: it reads what the router reads.
  bool reads_as_router(const Op& activation) const {
    const auto read = read_by_product(activation.inputs[0]);
    return read && std::ranges::any_of(ops_, [&](const Op& op) {
             return is_router(op) && read_by_product(op.inputs[0]) == read;
           });
  }

  bool follows_grouped(const Op& activation) const {
    auto op = source(activation.inputs[0]);
    if (op && ops_[*op].kind == OpKind::add) op = source(ops_[*op].inputs[0]);  // with an adapter
    return op && is_grouped(ops_[*op].kind);
  }

  /// A gate of shared experts is a router, too, of whose choice nothing depends.
  bool is_router(const Op& op) const {
    return op.kind == OpKind::route && !readers(op.outputs[1]).empty();
  }

  /// The residual stream is the layer's input and the sums behind its branches.
  bool reads_residual(const Op& norm) const {
    TensorId x = norm.inputs[0];
    auto op = producer(x);
    while (op && is_cast(ops_[*op].kind)) x = ops_[*op].inputs[0], op = producer(x);
    if (!op) return x == graph_.at(*norm.block).input;
    return is_sum(ops_[*op].kind);
  }

  /// Adds the ops between a product and what reads `id`, with the product and with the wide one of
  /// its adapter.
  void add_product(TensorId id, Members& ops) const {
    for (auto op = producer(id); op; op = producer(ops_[*op].inputs[0])) {
      ops[*op] = true;
      if (ops_[*op].kind == OpKind::matmul) return;
      if (ops_[*op].kind == OpKind::add) add_product(ops_[*op].inputs[1], ops);
    }
  }

  Members with_logits(std::size_t router) const {
    Members ops = only(router);
    add_product(ops_[router].inputs[0], ops);
    return ops;
  }

  /// The product that gives experts a narrower input, where there is one.
  Members down_projection(const Op& dispatch) const {
    Members ops(ops_.size());
    const auto product = producer(origin(dispatch.inputs[0]));
    if (product && is_linear(ops_[*product])) add_product(dispatch.inputs[0], ops);
    return ops;
  }

  /// The products before and behind an activation.
  Members mlp_around(std::size_t activation) const {
    Members ops = only(activation);
    const Op& op = ops_[activation];
    add_product(op.inputs[0], ops);
    for (const TensorId id : op.inputs) {  // the weights of a gated MLP's rows
      const auto weights = producer(id);
      if (weights && ops_[*weights].kind == OpKind::route) unite(ops, with_logits(*weights));
    }
    return flooded(std::move(ops), [&](const Op& next) {
      return is_linear(next) || is_cast(next.kind) || next.kind == OpKind::bias_add ||
             is_exchange(next.kind);
    });
  }

  /// From latents to the queries, keys and values that attention reads. The turned part of keys is
  /// kept: it is as small as what it comes from, in whose memory it is. Where ranks share
  /// sequences, backward reads keys and values of a ring as they came last, and those of all heads,
  /// so the copies of a rank's own are inside for an all-gather only.
  Members up_projection(std::size_t shares) const {
    Members ops = only(shares);
    add_product(ops_[shares].inputs[0], ops);
    ops = flooded(std::move(ops), [&](const Op& next) {
      return next.kind == OpKind::split_heads ||
             (next.kind == OpKind::join_parts && is_gathered(next.outputs[0]));
    });
    for (const Op& op : ops_) {
      const bool attends =
          op.kind == OpKind::flash_attention || (op.kind == OpKind::matmul && !is_linear(op));
      if (!attends || !comes_from(op.inputs[1], ops)) continue;
      add_product(op.inputs[0], ops);
      break;  // a later product reads probabilities and values
    }
    return ops;
  }

  bool is_gathered(TensorId id) const {
    return std::ranges::any_of(
        readers(id), [&](std::size_t reader) { return ops_[reader].kind == OpKind::all_gather; });
  }

  /// Whether a member gives a value, or what ranks sent to each other for it.
  bool comes_from(TensorId id, const Members& ops) const {
    auto op = producer(id);
    while (op && !ops[*op] &&
           (communicates(ops_[*op].kind) || ops_[*op].kind == OpKind::join_parts))
      op = producer(ops_[*op].inputs[0]);
    return op && ops[*op];
  }

  bool is_from(TensorId id, const Members& ops) const {
    const auto op = producer(id);
    return op && ops[*op];
  }

  /// Adds ops that read a member, one behind another, where `may` allows it.
  template <class May>
  Members flooded(Members ops, May may) const {
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      if (ops[i] || !may(ops_[i])) continue;
      ops[i] = std::ranges::any_of(ops_[i].inputs, [&](TensorId id) { return is_from(id, ops); });
    }
    return ops;
  }

  /// Adds all that depends on the mixture's routers and shared experts, up to the residual stream.
  Members all_behind(Members ops) const {
    const auto inside = [&](TensorId id) { return is_from(id, ops); };
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const Op& op = ops_[i];
      if (ops[i] || is_norm(op.kind) || is_dropout(op.kind)) continue;
      // A sum of the two kinds of experts is inside, a sum with the residual stream is not.
      ops[i] = is_sum(op.kind) ? std::ranges::all_of(op.inputs, inside)
                               : std::ranges::any_of(op.inputs, inside);
    }
    return ops;
  }

  bool is_taken(std::size_t i) const {
    return std::ranges::any_of(found_, [&](const LayerModule& module) { return module.ops[i]; });
  }

  /// Adds casts that only the module reads, with those before them, and gathers of its input. A
  /// function whose output alone is discarded keeps what ranks sent to it.
  void add_what_it_alone_reads(LayerModule& module) const {
    const bool gathers = is_repeated_whole(module.kind);
    for (std::size_t i = ops_.size(); i-- > 0;) {
      const bool may = is_cast(ops_[i].kind) || (gathers && is_exchange(ops_[i].kind));
      if (!may || is_taken(i)) continue;
      bool read = false, outside = false;
      for (const TensorId id : ops_[i].outputs) {
        for (const std::size_t reader : readers(id)) (module.ops[reader] ? read : outside) = true;
      }
      module.ops[i] = read && !outside;
    }
  }

  /// Adds casts of what the module gives, with their common maximum over ranks.
  void add_casts_behind(LayerModule& module) const {
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const Op& op = ops_[i];
      const auto from = op.inputs.empty() ? std::nullopt : producer(op.inputs[0]);
      if (!from || !module.ops[*from] || is_taken(i)) continue;
      const bool of_maximum = communicates(op.kind) && ops_[*from].kind == OpKind::absolute_maximum;
      if (is_cast(op.kind) || of_maximum) module.ops[i] = true;
    }
  }

  const Graph& graph_;
  std::span<const Op> ops_;
  std::map<TensorId, std::size_t> producer_;
  std::map<TensorId, std::vector<std::size_t>> readers_;
  std::vector<LayerModule> found_;
};

}  // namespace

bool in_attention_core(const Graph& graph, std::span<const Op> ops, const Op& op) {
  if (op.kind == OpKind::softmax || op.kind == OpKind::soft_cap) return true;
  if (is_dropout(op.kind)) {
    return std::ranges::any_of(ops, [&](const Op& other) {
      return other.kind == OpKind::softmax && other.outputs[0] == op.inputs[0];
    });
  }
  return op.kind == OpKind::matmul && !is_parameter_value(graph, op.inputs[1]);
}

bool is_checkpointed(RecomputedModule kind) {
  return kind == RecomputedModule::core_attention || kind == RecomputedModule::mlp ||
         kind == RecomputedModule::experts || kind == RecomputedModule::shared_experts;
}

bool is_repeated_whole(RecomputedModule kind) {
  // One function gives queries, keys and values. A ring's backward needs the queries of it.
  return is_checkpointed(kind) || kind == RecomputedModule::latent_up_projection;
}

std::vector<LayerModule> layer_modules(const Graph& graph, std::span<const Op> forward,
                                       SetOf<RecomputedModule> kinds) {
  return ModuleFinder(graph, forward).run(kinds);
}

}  // namespace plimsoll
