// Linear layers in 8-bit floating point, as two libraries have them.
//
// Transformer Engine (NVIDIA/TransformerEngine, pytorch/module/linear.py and
// layernorm_linear.py, release 1.x; docs "Using FP8 with Transformer Engine"): forward operands are
// e4m3, gradients e5m2 (Format.HYBRID). Hopper multiplies 8-bit operands only where the inner
// dimension of both is contiguous, so the product for the weight's gradient needs transposed
// copies: cast and transpose are one kernel, what is saved is the transposed input, 1 byte per
// element. Blackwell needs none (Framework::kernels.products.untransposed_fp8). With sequence
// parallelism the rank's own part is cast, gathered in 8 bits, saved, and in backward gathered
// again and transposed. A norm before the layer writes 8 bits itself (delayed scaling; current
// scaling has to know the maximum first). Weights are cast and transposed in the first micro-batch
// of a step (is_first_microbatch, which Megatron-LM passes) into separate buffers. With
// --fp8-param-gather (Megatron-LM; Transformer Engine fp8_model_init) the weight is the 8-bit copy,
// which the update writes, and only its transposed one is made anew.
//
// torchao (pytorch/ao torchao/float8/float8_linear.py): inputs are saved as they were and cast
// again in backward, and so are weights. Tensorwise scaling reads a tensor once more for its
// maximum; the scales of weights are computed once per step for all (precompute_float8_dynamic_
// scale_for_fsdp in torchtitan docs/float8.md). With tensor parallelism it gathers in 8 bits, with
// scaling by rows in 16. Rows and columns of a tensor have other scales, so each direction is a
// cast of its own.
//
// With scales of blocks (recipes MXFP8BlockScaling and Float8BlockScaling of Transformer Engine)
// everything is e4m3. A block lies along the inner dimension of a product, so rows and columns are
// two casts of the same values, which one kernel of Transformer Engine makes. No maximum of a
// tensor is read before. A norm gives 16 bits (pytorch/module/layernorm_linear.py: only its other
// kernels write 8 bits). torchao's mxfp8 (torchao/prototype/mx_formats/mx_linear.py) saves inputs
// as they were, as its other recipes do. Scales are 1/32 or 1/128 of the bytes and are left out.
//
// Products of experts (Transformer Engine pytorch/module/grouped_linear.py) are the same three for
// each weight, on the rows of all experts. The router's product stays wide (Megatron-LM
// core/transformer/moe/router.py, gating).
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "passes/graph/passes.h"
#include "passes/graph/rewrite.h"
#include "passes/graph/saved_tensors.h"

namespace plimsoll {

namespace {

enum class Product : std::uint8_t { none, output, input_gradient, weight_gradient };

bool is_grouped(const Op& op) {
  return op.kind == OpKind::grouped_matmul || op.kind == OpKind::grouped_matmul_backward ||
         op.kind == OpKind::grouped_weight_gradient;
}

Shape transposed(const Shape& shape) { return {elements(shape) / shape[0], shape[0]}; }

class Fp8Rewriter {
 public:
  /// Adapters are products of Megatron-LM's linear layers, which are not cast (Megatron Bridge
  /// peft/utils.py, ParallelLinearAdapter).
  Fp8Rewriter(Graph& graph, const Strategy& strategy, const Framework& framework, bool has_adapters)
      : graph_(graph),
        recipe_(strategy.precision.fp8),
        narrow_parameters_(strategy.precision.fp8_parameters),
        weights_(graph.tensors.size()) {
    const bool recasts = scales_blocks(recipe_) && framework.kernels.products.casts_inputs_again;
    keeps_ = casts_weights_once(recipe_) && !recasts;
    one_type_ = recipe_ == Fp8::rowwise || scales_blocks(recipe_);
    const bool one_scale = recipe_ == Fp8::delayed || recipe_ == Fp8::current;
    as_it_lies_ = one_scale && framework.kernels.products.untransposed_fp8;
    casts_both_ = recipe_ != Fp8::rowwise && !recasts && !as_it_lies_;
    // Weights that are gathered for each use, or cast by each, have no copy that lasts.
    once_per_step_ = keeps_ && strategy.sharding_stage < 3 &&
                     strategy.optimizer.cast_placement != CastPlacement::every_use;
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      const Tensor& tensor = graph.tensors[i];
      const bool of_adapter = has_adapters && tensor.role == TensorRole::parameter;
      weights_[i] = is_one_parameter(tensor) && !of_adapter;
    }
    for (const Op& op : graph.ops) {
      if (op.kind == OpKind::cast && weights_[op.inputs[0].index()])
        weights_[op.outputs[0].index()] = true;
      for (TensorId id : op.inputs) readers_[id].push_back(&op);
      if (op.outputs.size() > 0) writer_[op.outputs[0]] = &op;
    }
    for (const Op& op : graph.ops) {
      if (op.kind == OpKind::route) find_router(op);
    }
  }

  bool run() {
    bool changed = false;
    for (const Op& op : graph_.ops) {
      const Product product = product_of(op);
      if (product != Product::none) {
        rewrite(op, product);
        changed = true;
      } else if (gathers_fp8(op)) {
        gather(op);
      } else {
        out_.push_back(op);
      }
    }
    graph_.ops = std::move(out_);
    if (changed) {
      mark_saved(graph_);
      remove_unused_tensors(graph_);
    }
    return changed;
  }

 private:
  /// The role of a product in a linear layer of a layer's block, if the op belongs to one.
  Product product_of(const Op& op) const {
    const bool multiplies = op.kind == OpKind::matmul || is_grouped(op);
    if (!multiplies || !op.block || graph_.at(*op.block).kind != BlockKind::layer || routes(op))
      return Product::none;
    const std::optional<TensorId> gradient_of = graph_.at(op.outputs[0]).gradient_of;
    if (op.phase == Phase::backward && gradient_of)
      return weights_[gradient_of->index()] ? Product::weight_gradient : Product::none;
    if (!weights_[op.inputs[1].index()]) return Product::none;
    return op.phase == Phase::forward ? Product::output : Product::input_gradient;
  }

  /// Finds the weight whose product `route` reads, as it is and as the parameter of which it is a
  /// cast.
  void find_router(const Op& route) {
    const auto uncast = [&](TensorId id) {
      const auto writer = writer_.find(id);
      return writer != writer_.end() && writer->second->kind == OpKind::cast
                 ? writer->second->inputs[0]
                 : id;
    };
    const auto product = writer_.find(uncast(route.inputs[0]));
    if (product == writer_.end() || product->second->kind != OpKind::matmul) return;
    const TensorId weight = product->second->inputs[1];
    routers_.insert({weight, uncast(weight)});
  }

  /// Whether the product is the router's, or gives its gradients.
  bool routes(const Op& op) const {
    return std::ranges::any_of(op.inputs, [&](TensorId id) { return routers_.contains(id); }) ||
           std::ranges::any_of(op.outputs, [&](TensorId id) {
             const auto& of = graph_.at(id).gradient_of;
             return of && routers_.contains(*of);
           });
  }

  bool only_products_read(TensorId id) const {
    const auto found = readers_.find(id);
    return found != readers_.end() &&
           std::all_of(found->second.begin(), found->second.end(),
                       [&](const Op* op) { return product_of(*op) != Product::none; });
  }

  /// Tokens gathered for products alone travel in 8 bits.
  bool gathers_fp8(const Op& op) const {
    return op.kind == OpKind::all_gather && op.block && recipe_ != Fp8::rowwise &&
           only_products_read(op.outputs[0]);
  }

  DType type_of(Phase phase) const {
    return phase == Phase::backward && !one_type_ ? DType::e5m2 : DType::e4m3;
  }

  void push(const Op& near, OpKind kind, std::vector<TensorId> inputs,
            std::vector<TensorId> outputs) {
    out_.push_back(op_near(near, kind, std::move(inputs), std::move(outputs)));
  }

  TensorId copy_of(TensorId id, const char* suffix, DType type, Shape shape) {
    Tensor tensor;
    tensor.name = graph_.at(id).name + suffix;
    if (const std::size_t count = names_[tensor.name]++; count > 0)
      tensor.name += std::to_string(count);
    tensor.dtype = type;
    tensor.shape = std::move(shape);
    tensor.block = graph_.at(id).block;
    return graph_.add(std::move(tensor));
  }
  TensorId row_copy(TensorId id, DType type) {
    return copy_of(id, ".fp8", type, graph_.at(id).shape);
  }
  TensorId column_copy(TensorId id, DType type) {
    return copy_of(id, ".fp8_transposed", type, transposed(graph_.at(id).shape));
  }

  /// Operands of a cast to 8 bits: with the tensor's maximum where that scales it.
  std::vector<TensorId> scaled(const Op& near, TensorId x, bool over_group) {
    if (recipe_ != Fp8::current && recipe_ != Fp8::tensorwise) return {x};
    const auto [found, fresh] = maxima_.try_emplace({near.phase, x}, x);
    if (fresh) {
      TensorId maximum = copy_of(x, ".maximum", DType::f32, {1});
      push(near, OpKind::absolute_maximum, {x}, {maximum});
      if (over_group) {
        const TensorId whole = copy_of(x, ".maximum.mp", DType::f32, {1});
        push(near, OpKind::all_reduce, {maximum}, {whole});
        out_.back().stream = Stream::mp;
        out_.back().params = CollectiveParams{Group{{Axis::mp}}, Reduction::max};
        maximum = whole;
      }
      found->second = maximum;
    }
    return {x, found->second};
  }

  // ---- activations and their gradients ----

  struct Copies {
    std::optional<TensorId> row, column;
  };

  /// The norm before a layer can write 8 bits itself: with scales known beforehand, and where
  /// nothing else reads what it gives.
  bool norm_writes_fp8(TensorId x) const {
    const auto writer = writer_.find(x);
    if (recipe_ != Fp8::delayed || writer == writer_.end()) return false;
    const OpKind kind = writer->second->kind;
    if (kind != OpKind::layer_norm && kind != OpKind::rms_norm) return false;
    const auto& readers = readers_.at(x);
    return std::all_of(readers.begin(), readers.end(), [&](const Op* op) {
      return product_of(*op) != Product::none || gathers_fp8(*op);
    });
  }

  /// The copy whose rows are those of x.
  TensorId row_of(const Op& near, TensorId x, bool over_group = false) {
    Copies& copies = copies_[x];
    if (copies.row) return *copies.row;
    if (norm_writes_fp8(x)) {
      graph_.at(x).dtype = DType::e4m3;
      return *(copies.row = x);
    }
    const DType type = type_of(near.phase);
    std::vector<TensorId> operands = scaled(near, x, over_group);
    std::vector<TensorId> outputs = {*(copies.row = row_copy(x, type))};
    // One kernel gives both where both are needed of the same values.
    const bool both = casts_both_ && !over_group && (keeps_ || near.phase == Phase::backward);
    if (both) outputs.push_back(*(copies.column = column_copy(x, type)));
    push(near, OpKind::quantize, std::move(operands), std::move(outputs));
    return *copies.row;
  }

  /// The transposed copy: of the product that gives the weight's gradient.
  TensorId column_of(const Op& near, TensorId x, bool of_gradient) {
    if (as_it_lies_) return row_of(near, x);
    if (of_gradient && casts_both_) row_of(near, x);
    Copies& copies = copies_[x];
    if (copies.column) return *copies.column;
    copies.column = column_copy(x, of_gradient ? type_of(Phase::backward) : DType::e4m3);
    const bool narrow = gathered_.contains(x) || (keeps_ && copies.row);
    if (narrow) {
      push(near, OpKind::transpose, {*copies.row}, {*copies.column});
    } else {
      push(near, OpKind::quantize, scaled(near, x, false), {*copies.column});
    }
    return *copies.column;
  }

  /// The rank's part is cast, then gathered; where it was cast already, only gathered.
  void gather(const Op& op) {
    const TensorId part = op.inputs[0], whole = op.outputs[0];
    const TensorId narrow = row_of(op, part, true);
    Op narrow_gather = op;
    const TensorId narrow_whole =
        copy_of(whole, ".fp8", graph_.at(narrow).dtype, graph_.at(whole).shape);
    graph_.at(narrow_whole).split = graph_.at(whole).split;
    narrow_gather.inputs = {narrow};
    narrow_gather.outputs = {narrow_whole};
    out_.push_back(std::move(narrow_gather));
    copies_[whole].row = narrow_whole;
    gathered_[whole] = true;
  }

  // ---- weights ----

  /// [k,n] for the gradient of the input, [n,k] for the output.
  TensorId weight_of(const Op& near, TensorId w, bool for_output) {
    Copies& copies = copies_[w];
    auto& wanted = for_output && !as_it_lies_ ? copies.column : copies.row;
    if (wanted) return *wanted;
    if (narrow_parameters_ && only_products_read(w)) {
      graph_.at(*(copies.row = w)).dtype = DType::e4m3;
      if (as_it_lies_) return w;
      push(near, OpKind::transpose, {w}, {*(copies.column = column_copy(w, DType::e4m3))});
      graph_.at(*copies.column).role = TensorRole::workspace;
      return *wanted;
    }
    if (!once_per_step_) {
      wanted = for_output && !as_it_lies_ ? column_copy(w, DType::e4m3) : row_copy(w, DType::e4m3);
      const bool measured = recipe_ == Fp8::current;  // torchao: once per step for all weights
      push(near, OpKind::quantize, measured ? scaled(near, w, false) : std::vector{w}, {*wanted});
      return *wanted;
    }
    std::vector<TensorId> outputs;
    if (!as_it_lies_) outputs.push_back(*(copies.column = column_copy(w, DType::e4m3)));
    outputs.push_back(*(copies.row = row_copy(w, DType::e4m3)));
    for (TensorId id : outputs) graph_.at(id).role = TensorRole::workspace;
    push(near, OpKind::quantize, scaled(near, w, false), std::move(outputs));
    if (const auto maximum = maxima_.find({near.phase, w}); maximum != maxima_.end())
      graph_.at(maximum->second).role = TensorRole::workspace;
    return *wanted;
  }

  // ---- experts ----

  /// A copy in 8 bits as x lies. The copy that backward reads is as large, and is the same here.
  TensorId rows_of(const Op& near, TensorId x, DType type) {
    Copies& copies = copies_[x];
    if (copies.row) return *copies.row;
    const TensorId row = row_copy(x, type);
    graph_.at(row).filled = graph_.at(x).filled;
    push(near, OpKind::quantize, scaled(near, x, false), {row});
    return *(copies.row = row);
  }

  TensorId experts_weight(const Op& near, TensorId w) {
    Copies& copies = copies_[w];
    if (copies.row) return *copies.row;
    if (narrow_parameters_ && only_products_read(w)) {
      graph_.at(w).dtype = DType::e4m3;
      return *(copies.row = w);
    }
    copies.row = row_copy(w, DType::e4m3);
    push(near, OpKind::quantize, scaled(near, w, false), {*copies.row});
    if (!once_per_step_) return *std::exchange(copies.row, std::nullopt);
    graph_.at(*copies.row).role = TensorRole::workspace;
    if (const auto maximum = maxima_.find({near.phase, w}); maximum != maxima_.end())
      graph_.at(maximum->second).role = TensorRole::workspace;
    return *copies.row;
  }

  void rewrite_experts(Op op, Product product) {
    const bool forward = product == Product::output,
               of_weight = product == Product::weight_gradient;
    const TensorId a = op.inputs[0], b = op.inputs[1];
    op.inputs[0] = rows_of(op, a, forward || of_weight ? DType::e4m3 : type_of(Phase::backward));
    op.inputs[1] = of_weight ? rows_of(op, b, type_of(Phase::backward)) : experts_weight(op, b);
    out_.push_back(std::move(op));
  }

  void rewrite(Op op, Product product) {
    if (is_grouped(op)) return rewrite_experts(std::move(op), product);
    auto& params = std::get<MatmulParams>(op.params);
    INVARIANT(params.batch_dims == 0, "linear layers have no batch dimensions");
    const TensorId a = op.inputs[0], b = op.inputs[1];
    if (product == Product::weight_gradient) {
      INVARIANT(params.transpose_a && !params.transpose_b, "layers' weights are not transposed");
      op.inputs[0] = column_of(op, a, false);
      op.inputs[1] = column_of(op, b, true);
    } else {
      op.inputs[0] = row_of(op, a);
      op.inputs[1] = weight_of(op, b, product == Product::output);
    }
    if (!as_it_lies_) {
      params.transpose_a = false;
      params.transpose_b = true;
    }
    params.scaled_by_rows = recipe_ == Fp8::rowwise;
    out_.push_back(std::move(op));
  }

  Graph& graph_;
  const Fp8 recipe_;
  const bool narrow_parameters_;  // what casts of weights give is 8 bits, without a wider copy
  bool keeps_ = false;            // inputs are saved in 8 bits
  bool one_type_ = false;         // gradients have the type of values
  bool casts_both_ = false;       // one kernel casts rows and columns
  bool as_it_lies_ = false;       // products read both operands without transposed copies
  bool once_per_step_ = false;    // weights have copies that last
  std::vector<bool> weights_;     // by tensor: a parameter or its cast
  std::map<TensorId, std::vector<const Op*>> readers_;
  std::map<TensorId, const Op*> writer_;  // of a first output
  std::set<TensorId> routers_;            // weights
  std::map<TensorId, Copies> copies_;
  std::map<std::pair<Phase, TensorId>, TensorId> maxima_;
  std::map<std::string, std::size_t> names_;
  std::map<TensorId, bool> gathered_;  // in 8 bits
  std::vector<Op> out_;
};

}  // namespace

bool fp8_linears(Graph& graph, const PassContext& context) {
  if (context.strategy.precision.fp8 == Fp8::none) return false;
  const bool has_adapters = context.job.adapters.has_value();
  return Fp8Rewriter(graph, context.strategy, context.framework, has_adapters).run();
}

}  // namespace plimsoll
