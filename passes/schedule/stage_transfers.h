// Sends and receives of boundary tensors on one stage, and how long sent tensors live.
#pragma once

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "passes/cut/program_builder.h"
#include "passes/strategy/pass_context.h"
#include "passes/strategy/pipeline_order.h"

namespace plimsoll {

/// The way of a boundary tensor: activations go to the next part of the model, gradients back.
enum class Direction : std::uint8_t { activation, gradient };

/// Adds the transfers of a stage to its Program while the schedule issues the other calls. Every
/// freed tensor's send has been waited for by the call before which it is freed.
class StageTransfers {
 public:
  StageTransfers(const PassContext& context, ProgramBuilder& build)
      : context_(context), build_(build) {}

  struct Received {
    BufferId payload;
    Wait arrived;
  };
  /// An action begins from a tensor of another stage.
  struct Incoming {
    Direction direction = Direction::activation;
    Bytes bytes;
    std::int64_t chunk = 0, micro_batch = 0;  ///< that it is for, here
  };
  /// Posts the receive, with split_boundary of this rank's part, unless it is posted already.
  void post(const Incoming& incoming);
  /// Posts a receive, and the gather that completes it.
  Received receive(const Incoming& incoming);

  /// The next call of an instance writes a tensor to be sent. SendLifetime::event: the tensor that
  /// used its slot is due.
  void take_slot(Direction direction);
  /// Sends what `produced` says is written.
  void send(Direction direction, const Action& action, BufferId payload, const Wait& produced);

  /// Backward that reads the gradient of this chunk and micro-batch is next. In the held and the
  /// published form the activation that was sent for it is due: the stage that sends the gradient
  /// has used it (Paddle PR 34086; before it, backward synchronised with the send there).
  void gradient_is_received(const Action& action);
  /// Backward of a micro-batch is next, straight after a forward (`steady`) or not. Published form:
  /// the receive of that forward shows that the stage before has used the gradient of two
  /// micro-batches ago, which is due (Paddle PR 34230).
  void before_backward(const Action& action, bool steady);
  /// Frees what is due before the next call, which waits for what this returns: its sends.
  std::vector<Wait> free_due();

  /// Tensors that nothing has freed live to the end of the step. All calls are issued.
  void finish();

 private:
  struct Sent {
    std::size_t call = 0;
    BufferId payload;
    bool open = true;
  };
  using Key = std::pair<std::int64_t, std::int64_t>;  ///< chunk and micro-batch
  struct Queue {
    std::map<Key, Received> posted;    ///< and not received yet
    std::vector<Sent> sent;            ///< in issue order
    std::map<Key, std::size_t> index;  ///< SendLifetime::event: not needed
  };
  struct Known {
    OpKind kind;
    Direction direction;
    Bytes bytes;
    RoutineId id;
  };

  Bytes sent_bytes(BufferId payload);
  Binding sent_part(BufferId payload);
  RoutineId routine(OpKind kind, Direction direction, Bytes bytes);
  void is_due(Direction direction, const Key& key);
  Queue& queue(Direction direction) { return queues_[std::size_t(direction)]; }

  const PassContext& context_;
  ProgramBuilder& build_;
  std::array<Queue, 2> queues_;
  std::vector<Known> routines_;
  std::vector<std::pair<Direction, std::size_t>> due_;
};

}  // namespace plimsoll
