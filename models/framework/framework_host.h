// A FrameworkHost is what a framework's host does in a step: how long it takes to issue ops, and
// where it waits for the device.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace plimsoll {

/// Graphs are what the framework captures as CUDA graphs. The host replays a graph with one op; the
/// one replay of a whole step counts as none.
enum class Graphs : std::uint8_t {
  nothing,
  router,     ///< each router with its norm, up to where tokens are sent to experts
  attention,  ///< the forward and the backward of each layer's ops up to its attention or its
              ///< router
  layers,     ///< each block's forward, and each block's backward
  step,       ///< all forwards and backwards of a step
};

/// TransfersHold is what a pipeline transfer blocks in addition to the ops that read it.
enum class TransfersHold : std::uint8_t {
  nothing,  ///< transfers have separate streams
  compute,  ///< kernels that are issued after a transfer begin when it has ended
  host,     ///< the host waits until everything on its device has ended
};

struct HostDispatch {
  /// Host time to issue one op (a kernel or a communication) where no calibration measured it. The
  /// kernel of a module of Megatron-LM or Transformer Engine is one op, with all that the module
  /// does on the host.
  Seconds op;
  /// The number of ops that the framework issues for one kernel of a block's forward, recompute or
  /// backward. It counts reshapes, transposes, scales, gradient sums and casts of activations as
  /// separate ops. Casts of parameters, merges of gradients, the optimizer and communications
  /// count one each.
  double ops_per_kernel = 1;
  /// The number of ops for one op of a mixture of experts: the router's choice, the placement, and
  /// exchanges, copies and products of rows.
  double ops_per_expert_op = 1;
  /// The number of ops for attention over one part of a sequence that ranks share (Strategy::cp),
  /// in a ring. It is the same in backward, which is no less in Python than forward.
  double ops_per_part = 1;
  /// The host time of an op of backward relative to another op. Communications are excluded:
  /// autograd's engine calls backward from C++, but communications from Python.
  double backward = 1;
  /// The number of ops that the update issues for each parameter tensor that a rank updates: views,
  /// copies between types, lists for fused kernels, counts that are logged.
  double ops_per_tensor = 0;
  Graphs graphs = Graphs::nothing;
  /// Additional host time for a gather of parameters in the middle of a step (sharding stage 3).
  Seconds gather;
  /// Additional host time for each parameter gradient that a micro-batch's backward completes: the
  /// time of its hook.
  Seconds gradient;
  bool operator==(const HostDispatch&) const = default;
};

/// When the host waits for its device before it issues more, if streams run by themselves.
/// Consecutive transfers are one exchange, which blocks once. Where stages hold several parts of
/// the model, only receives block, since two neighbours exchange at different places in their
/// order.
struct HostWaits {
  TransfersHold transfers_hold = TransfersHold::nothing;
  /// The host reads the norm of the gradients, and whether they are finite, before it goes on.
  bool for_norm = false;
  /// Before a micro-batch's forward, on every stage, the host reads from the device how large the
  /// sequences are. It waits for all ops that the compute stream has been given.
  bool for_batch = false;
  bool for_gathers = false;  ///< for each gather of parameters
  /// The host waits for the number of rows that each expert gets, before it issues an exchange of
  /// rows, or the products of experts. A host that waits before the exchange does not wait again
  /// before the products.
  bool before_exchange = false, before_products = false;
  /// The host waits for each op before it issues the next, as with CUDA_LAUNCH_BLOCKING=1.
  /// Transfers block once for each exchange.
  bool for_launches = false;
  Seconds time;  ///< from the end of the awaited work until the host goes on
  bool operator==(const HostWaits&) const = default;
};

struct FrameworkHost {
  HostDispatch dispatch;
  HostWaits waits;
  bool operator==(const FrameworkHost&) const = default;
};

}  // namespace plimsoll
