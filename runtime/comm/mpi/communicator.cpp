// Communications of a rank are posted, progressed and waited for by MPI.
#include "runtime/comm/mpi/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "graph/op_table.h"
#include "runtime/backend.h"
#include "runtime/comm/groups.h"
#include "runtime/comm/mpi/posted_op.h"
#include "runtime/comm/rank_status.h"
#include "runtime/comm/waited.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFailureTag = 1;
constexpr int kForwardTag = 2, kBackwardTag = 3;
constexpr std::int64_t kMostCount = std::numeric_limits<int>::max();

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiWorld& world, std::span<const Program> programs,
                  std::chrono::milliseconds deadline);
  ~MpiCommunicator() override;

  std::string_view name() const override { return "mpi"; }
  Ticket post_collective(OpKind kind, const CollectiveParams& params,
                         const CollectiveOperand& operand,
                         const CommunicationLabel& label) override;
  Ticket post_transfer(OpKind kind, std::int64_t stage_offset, Bytes size, std::byte* data,
                       const CommunicationLabel& label) override;
  CommunicationTimes wait(Ticket ticket) override;
  void abort(const std::string& reason) override;

 private:
  Picoseconds now() const { return time_since(world_.epoch()); }
  void make_group(const Group& group, Stream stream);
  PostedOp& free_op();
  Ticket launch(PostedOp& op, const CommunicationLabel& label);
  PostedOp* op_of(Ticket ticket);

  // Under the lock.
  void progress();
  void begin(PostedOp& op);
  void advance(PostedOp& op);
  void look_for_failure();
  void fail(const std::string& reason);
  void throw_if_failed() const {
    if (error_) std::rethrow_exception(error_);
    if (failure_) throw RankFailure(*failure_);
  }

  void look_after();
  void is_waiting(bool waits) {
    waiting_ = waits;
    world_.board().waits(waits);
  }
  [[noreturn]] void give_up(std::unique_lock<std::mutex>& guard, const PostedOp& op);

  MpiWorld& world_;
  const Grid grid_;
  const std::chrono::milliseconds deadline_;
  const bool core_each_;  ///< no rank on this host needs the core that another waits on
  MPI_Comm transfers_ = MPI_COMM_NULL, failures_ = MPI_COMM_NULL;
  std::vector<std::unique_ptr<MpiGroup>> groups_;

  std::vector<std::unique_ptr<PostedOp>> ops_;  ///< by ticket index
  std::vector<std::uint32_t> free_;
  std::vector<PostedOp*> moving_;  ///< meeting or moving
  std::vector<PostedOp*> queued_;  ///< their stream has not got there
  std::optional<std::string> failure_;
  std::exception_ptr error_;            ///< of this rank, met by the progress thread
  std::array<char, 4096> notice_ = {};  ///< of another rank's failure
  MPI_Request notice_request_ = MPI_REQUEST_NULL;

  bool waiting_ = false;  ///< the rank looks after its ops itself
  bool stopping_ = false;
  std::condition_variable launched_;
  std::thread progress_;
};

MpiCommunicator::MpiCommunicator(MpiWorld& world, std::span<const Program> programs,
                                 std::chrono::milliseconds deadline)
    : world_(world),
      grid_(programs[0].grid),
      deadline_(deadline),
      core_each_(std::count(world.hosts().begin(), world.hosts().end(),
                            world.hosts()[std::size_t(world.index())]) <= available_cores()) {
  INVARIANT(grid_.world_size() == world.size(), "one process per rank");
  const std::lock_guard guard(world_.lock());
  check_mpi(MPI_Comm_dup(world.comm(), &transfers_), "copy a communicator");
  check_mpi(MPI_Comm_dup(world.comm(), &failures_), "copy a communicator");
  for (const auto& [group, stream] : groups_of(programs)) make_group(group, stream);
  check_mpi(MPI_Irecv(notice_.data(), int(notice_.size()), MPI_CHAR, MPI_ANY_SOURCE, kFailureTag,
                      failures_, &notice_request_),
            "listen for failures");
  progress_ = std::thread([this] { look_after(); });
}

MpiCommunicator::~MpiCommunicator() {
  {
    const std::lock_guard guard(world_.lock());
    stopping_ = true;
  }
  launched_.notify_all();
  progress_.join();
  // Where something failed, others may not come, and the process leaves without finalising.
  if (failure_ || std::uncaught_exceptions() > 0) return;
  const CallWatch::Call call(world_.watch(), "free a communicator");
  const std::lock_guard guard(world_.lock());
  MPI_Cancel(&notice_request_);
  MPI_Wait(&notice_request_, MPI_STATUS_IGNORE);
  for (const auto& group : groups_) {
    if (group->comm != MPI_COMM_NULL) MPI_Comm_free(&group->comm);
  }
  MPI_Comm_free(&transfers_);
  MPI_Comm_free(&failures_);
}

/// All processes split together; those that are in no such group stay out.
void MpiCommunicator::make_group(const Group& group, Stream stream) {
  auto made = std::make_unique<MpiGroup>();
  made->group = group;
  made->stream = stream;
  const std::int64_t rank = world_.index();
  made->ranks = part_of(grid_, group, rank);
  const bool inside = !made->ranks.empty();
  const int color = inside ? int(made->ranks.front()) : MPI_UNDEFINED;
  check_mpi(MPI_Comm_split(world_.comm(), color, int(rank), &made->comm), "split the processes");
  if (!inside) return;
  check_mpi(MPI_Comm_set_errhandler(made->comm, MPI_ERRORS_RETURN), "report errors");
  check_mpi(MPI_Comm_size(made->comm, &made->size), "count a group");
  check_mpi(MPI_Comm_rank(made->comm, &made->index), "number a group");
  INVARIANT(std::size_t(made->size) == made->ranks.size(), "a group has its members");
  for (auto* counts : {&made->counts, &made->displacements, &made->even, &made->starts})
    counts->resize(std::size_t(made->size));
  made->parts.resize(std::size_t(made->size));
  groups_.push_back(std::move(made));
}

PostedOp& MpiCommunicator::free_op() {
  if (free_.empty()) {
    free_.push_back(std::uint32_t(ops_.size()));
    ops_.push_back(std::make_unique<PostedOp>());
  }
  PostedOp& op = *ops_[free_.back()];
  op.group = nullptr;
  op.moved = op.chunk = 0;
  op.round = 0;
  return op;
}

Communicator::Ticket MpiCommunicator::post_collective(OpKind kind, const CollectiveParams& params,
                                                      const CollectiveOperand& operand,
                                                      const CommunicationLabel& label) {
  const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const auto& group) {
    return group->group == params.group && group->stream == label.stream;
  });
  INVARIANT(found != groups_.end(), "a collective over a group that no Program names");
  MpiGroup& group = **found;
  if (operand.elements > kMostCount) {
    throw EnvironmentError(fmt::format("MPI counts up to {} elements; {} has {}", kMostCount,
                                       to_text(kind), operand.elements));
  }
  const std::lock_guard guard(world_.lock());
  throw_if_failed();
  PostedOp& op = free_op();
  op.request = {kind, params, operand.dtype, operand.elements, Bytes(0)};
  op.group = &group;
  op.data = member_data(kind, operand, group.size, group.index);
  return launch(op, label);
}

Communicator::Ticket MpiCommunicator::post_transfer(OpKind kind, std::int64_t stage_offset,
                                                    Bytes size, std::byte* data,
                                                    const CommunicationLabel& label) {
  if (size.count() > kMostCount) {
    throw EnvironmentError(fmt::format("MPI counts up to {} bytes; {} has {}", kMostCount,
                                       to_text(kind), size.count()));
  }
  const bool backward = kind == OpKind::send ? stage_offset < 0 : stage_offset > 0;
  const std::lock_guard guard(world_.lock());
  throw_if_failed();
  PostedOp& op = free_op();
  op.request = {kind, {}, DType::f32, 0, size};
  op.data = {data, nullptr};
  op.pair = transfers_;
  op.peer = int(pipeline_peer(grid_, world_.index(), stage_offset));
  op.tag = backward ? kBackwardTag : kForwardTag;
  return launch(op, label);
}

Communicator::Ticket MpiCommunicator::launch(PostedOp& op, const CommunicationLabel& label) {
  const std::uint32_t index = free_.back();
  free_.pop_back();
  op.label = label;
  op.posted = now();
  op.post = world_.board().posts(to_text(op.request.kind), label);
  ++op.generation;
  const PostedOp* before = op_of(label.after);
  if (before != nullptr && before->state != PostedOpState::done) {
    op.state = PostedOpState::queued;
    queued_.push_back(&op);
  } else {
    begin(op);
  }
  launched_.notify_all();
  return (Ticket(op.generation) << 32) | (index + 1);
}

PostedOp* MpiCommunicator::op_of(Ticket ticket) {
  const std::uint64_t index = ticket & 0xffff'ffff;
  if (index == 0 || index > ops_.size()) return nullptr;
  PostedOp& op = *ops_[index - 1];
  return op.generation == ticket >> 32 && op.state != PostedOpState::free ? &op : nullptr;
}

void MpiCommunicator::begin(PostedOp& op) {
  op.begin = now();
  if (op.label.described) {
    op.state = PostedOpState::rendezvous;
    begin_rendezvous(op, op.begin);
  } else {
    op.state = PostedOpState::moving;
    advance(op);
  }
  if (op.state != PostedOpState::done) moving_.push_back(&op);
}

/// Its MPI operations so far are complete.
void MpiCommunicator::advance(PostedOp& op) {
  if (op.state == PostedOpState::rendezvous) {
    check_members(op, world_.index());
    op.state = PostedOpState::moving;
  }
  if (issue_next(op)) return;
  op.end = now();
  op.begin = std::min(op.begin, op.end);  // clocks of hosts differ a little
  op.state = PostedOpState::done;
}

void MpiCommunicator::progress() {
  if (failure_) return;
  look_for_failure();
  for (std::size_t i = 0; i < moving_.size(); ++i) {
    PostedOp& op = *moving_[i];
    for (int complete = 1; complete != 0 && op.state != PostedOpState::done;) {
      check_mpi(MPI_Testall(2, op.requests.data(), &complete, MPI_STATUSES_IGNORE),
                "carry a communication");
      if (complete != 0) advance(op);
    }
  }
  std::erase_if(moving_, [](const PostedOp* op) { return op->state == PostedOpState::done; });
  for (std::size_t i = 0; i < queued_.size();) {
    PostedOp& op = *queued_[i];
    const PostedOp* before = op_of(op.label.after);
    if (before != nullptr && before->state != PostedOpState::done) {
      ++i;
      continue;
    }
    queued_.erase(queued_.begin() + std::ptrdiff_t(i));
    begin(op);
  }
}

void MpiCommunicator::look_for_failure() {
  int heard = 0;
  check_mpi(MPI_Test(&notice_request_, &heard, MPI_STATUS_IGNORE), "listen for failures");
  if (heard != 0) fail(notice_.data());
}

void MpiCommunicator::fail(const std::string& reason) {
  if (!failure_) failure_ = reason;
}

/// The progress thread: while the rank computes, it carries the ops under way.
void MpiCommunicator::look_after() {
  std::unique_lock guard(world_.lock());
  while (!stopping_) {
    if (failure_ || (moving_.empty() && queued_.empty())) {
      launched_.wait(guard);
      continue;
    }
    try {
      if (!waiting_) progress();
    } catch (const std::exception& error) {
      error_ = std::current_exception();
      fail(error.what());
    }
    guard.unlock();
    std::this_thread::sleep_for(kProgressInterval);
    guard.lock();
  }
}

CommunicationTimes MpiCommunicator::wait(Ticket ticket) {
  constexpr int kYields = 32, kPauses = 64;
  Waited since_begin;
  std::unique_lock guard(world_.lock());
  PostedOp* const op = op_of(ticket);
  INVARIANT(op != nullptr, "a ticket is waited for once, by the rank that posted");
  is_waiting(true);
  for (int look = 0; op->state != PostedOpState::done; ++look) {
    try {
      progress();
    } catch (...) {
      is_waiting(false);
      throw;
    }
    if (op->state == PostedOpState::done) break;
    if (failure_) {
      is_waiting(false);
      throw_if_failed();
    }
    const auto waited = since_begin.so_far();
    if (waited > deadline_) give_up(guard, *op);
    guard.unlock();
    if (core_each_ && waited < kPollsBeforeSleep) {
      for (int pause = 0; pause < kPauses; ++pause) pause_core();
    } else if (!core_each_ && look < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    guard.lock();
  }
  is_waiting(false);
  const CommunicationTimes times{op->posted, op->begin, op->end};
  op->state = PostedOpState::free;
  free_.push_back(std::uint32_t((ticket & 0xffff'ffff) - 1));
  return times;
}

void MpiCommunicator::give_up(std::unique_lock<std::mutex>& guard, const PostedOp& op) {
  // The rank still waits while it asks other hosts, which takes the lock.
  guard.unlock();
  const std::string who = world_.board().describe(deadline_);
  guard.lock();
  is_waiting(false);
  const std::string message = fmt::format(
      "rank {} waited longer than the deadline of {} s in {}, routine {}, for {}, its "
      "post {}: {}",
      world_.index(), std::chrono::duration<double>(deadline_).count(), step_name(op.label.step),
      op.label.routine, to_text(op.request), op.post, who);
  fail(message);
  guard.unlock();
  throw EnvironmentError(message);
}

// The notices are short, so that MPI sends them at once; a rank that is gone gets none.
void MpiCommunicator::abort(const std::string& reason) {
  std::unique_lock guard(world_.lock());
  fail(reason);
  std::array<char, std::tuple_size_v<decltype(notice_)>> text = {};
  std::copy_n(reason.begin(), std::min(reason.size(), text.size() - 1), text.begin());
  std::vector<MPI_Request> requests;
  for (int rank = 0; rank < int(world_.size()); ++rank) {
    if (rank == world_.index()) continue;
    requests.push_back(MPI_REQUEST_NULL);
    MPI_Isend(text.data(), int(text.size()), MPI_CHAR, rank, kFailureTag, failures_,
              &requests.back());
  }
  const Clock::time_point until = Clock::now() + std::chrono::seconds(1);
  for (int sent = 0; sent == 0 && Clock::now() < until;) {
    MPI_Testall(int(requests.size()), requests.data(), &sent, MPI_STATUSES_IGNORE);
    guard.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    guard.lock();
  }
}

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MpiWorld& world,
                                                    std::span<const Program> programs,
                                                    std::chrono::milliseconds deadline) {
  return std::make_unique<MpiCommunicator>(world, programs, deadline);
}

}  // namespace plimsoll
