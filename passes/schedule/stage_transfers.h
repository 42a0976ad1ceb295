// A stage sends and receives boundary tensors, and keeps sent tensors for a time.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "passes/cut/program_builder.h"
#include "passes/strategy/pass_context.h"
#include "passes/strategy/pipeline_order.h"

namespace plimsoll {

/// The direction of a boundary tensor. Activations go to the next part of the model, gradients
/// back.
enum class Direction : std::uint8_t { activation, gradient };

/// Adds the transfers of a stage to its Program while the schedule issues the other calls. Before a
/// call for which a sent tensor is freed, the call waits for the tensor's send.
class StageTransfers {
 public:
  StageTransfers(const PassContext& context, ProgramBuilder& build)
      : context_(context), build_(build) {}

  struct Received {
    BufferId payload;
    Wait arrived;
  };
  /// An Incoming is a tensor of another stage from which an action begins.
  struct Incoming {
    Direction direction = Direction::activation;
    std::int64_t stage_offset = -1;  ///< stages from this one to the sender
    Bytes bytes;
    std::int64_t chunk = 0, micro_batch = 0;  ///< the action that it is for, on this stage
  };
  /// Says that a tensor comes behind those that were expected before from the same stage.
  void expect(const Incoming& incoming);
  /// Posts the receive unless it is posted already, behind those of tensors that are expected
  /// before it. With split_boundary it receives this rank's
  /// part.
  void post(const Incoming& incoming);
  /// Posts a receive, and the gather that completes it.
  Received receive(const Incoming& incoming);

  /// To be called before a call that writes a tensor to be sent. With SendLifetime::event, the
  /// tensor that used the slot before becomes due.
  void take_slot(Direction direction);
  /// Sends the tensor `stage_offset` stages on, after these events.
  void send(Direction direction, const Action& action, std::int64_t stage_offset, BufferId payload,
            const std::vector<Wait>& waits);

  /// To be called before the backward that reads the gradient of this chunk and micro-batch. With
  /// SendLifetime::held and ::published, the activation that was sent for it becomes due, since the
  /// stage that sends the gradient has used it (Paddle PR 34086; before that PR, backward
  /// synchronised with the send there).
  void gradient_is_received(const Action& action);
  /// To be called before backward of a micro-batch, which follows a forward directly (`steady`) or
  /// does not. With SendLifetime::published, the receive of that forward shows that the stage
  /// before has used the gradient of two micro-batches ago, which becomes due (Paddle PR 34230).
  void before_backward(const Action& action, bool steady);
  /// To be called after a send without a slot of its own. With SendLifetime::event, tensors beyond
  /// the slots become due before the next call that frees some.
  void free_excess() { excess_ = true; }
  /// Frees the tensors that are due, before the next call. Returns their sends, for which the call
  /// must wait.
  std::vector<Wait> free_due();

  /// To be called when all calls are issued. Tensors that nothing has freed live to the end of the
  /// step.
  void finish();

 private:
  struct Sent {
    std::size_t call = 0;
    BufferId payload;
    bool open = true;
  };
  using Key = std::pair<std::int64_t, std::int64_t>;  ///< chunk and micro-batch
  struct Queue {
    std::map<Key, Received> posted;    ///< posted, and not received yet
    std::vector<Sent> sent;            ///< in issue order
    std::map<Key, std::size_t> index;  ///< not used with SendLifetime::event
  };
  struct SharedRoutine {
    OpKind kind;
    Direction direction;
    std::int64_t stage_offset;
    Bytes bytes;
    RoutineId id;
  };

  Bytes sent_bytes(BufferId payload);
  Binding sent_part(BufferId payload);
  RoutineId routine(OpKind kind, Direction direction, std::int64_t stage_offset, Bytes bytes);
  void post_now(const Incoming& incoming);
  void make_excess_due();
  void make_due(Direction direction, const Key& key);
  Queue& queue(Direction direction) { return queues_[std::size_t(direction)]; }

  const PassContext& context_;
  ProgramBuilder& build_;
  std::array<Queue, 2> queues_;
  std::map<std::int64_t, std::deque<Incoming>> expected_;  ///< by stage offset, not posted yet
  std::vector<SharedRoutine> routines_;
  std::vector<std::pair<Direction, std::size_t>> due_;
  bool excess_ = false;  ///< more may be sent than slots allow
};

}  // namespace plimsoll
