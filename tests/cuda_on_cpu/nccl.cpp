// NCCL after its manual, among threads of one process: whoever comes last moves the data.
// Communicators do not block: operations of a group are on their streams when the communicator has
// been asked twice, and over when the last rank has come. What NCCL refuses, and calls that do not
// fit each other, are errors here, too.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/error.h"
#include "host_emulation.h"
#include "runtime/comm/nccl/library.h"
#include "runtime/comm/transfer.h"
#include "runtime/half.h"

namespace {

using cuda_on_cpu::Together;
using plimsoll::DType;
using plimsoll::OpKind;

std::mutex lock;  ///< of everything here
thread_local std::string complaint;

/// A Post is one rank's part of an operation.
struct Post {
  OpKind kind = OpKind::all_reduce;
  std::size_t count = 0;  ///< as its function counts
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  const void* send = nullptr;
  void* receive = nullptr;
  std::shared_ptr<Together> over = std::make_shared<Together>();
};

/// The ranks of one communicator, while they are operated on.
struct Clique {
  std::vector<int> devices;  ///< by rank; -1: has not come
  bool duplicate = false;    ///< two ranks on one device
  int come = 0;
  std::map<std::size_t, std::vector<std::optional<Post>>> collectives;  ///< by number
  std::map<std::pair<int, int>, std::vector<Post>> sends, receives;     ///< by sender and receiver
  struct Split {
    std::vector<std::array<int, 2>> color_and_key;
    std::vector<ncclComm_t*> made;
    int come = 0;
  };
  std::map<std::size_t, Split> splits;  ///< by number
};

/// A Call of a group brings an operation to its stream. `arrive` is called when the stream comes to
/// it.
struct Call {
  cudaStream_t stream = nullptr;
  std::function<std::shared_ptr<Together>()> arrive;
};

std::map<std::string, std::shared_ptr<Clique>>& cliques() {
  static std::map<std::string, std::shared_ptr<Clique>> all;
  return all;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0, size = 0;
  std::size_t collectives = 0, splits = 0;
  void* held = nullptr;          ///< device memory, from its first operation on
  std::vector<Call> calls = {};  ///< of the group that is being enqueued
  int asked = 0;                 ///< since that group ended
};

namespace {

constexpr std::size_t kHeld = std::size_t{1} << 20;

void hold(ncclComm_t comm) {
  if (comm->held == nullptr) static_cast<void>(cudaMalloc(&comm->held, kHeld));
}

constexpr std::size_t kMostOfGroup = 2048;
thread_local int groups = 0;
thread_local std::vector<std::pair<ncclComm_t, Call>> grouped;

ncclResult_t refuse(const std::string& why) {
  complaint = why;
  return ncclInvalidUsage;
}

/// The end of a group: its operations will be on their streams.
ncclResult_t begin_group() {
  for (auto& [comm, call] : std::exchange(grouped, {})) {
    const bool promised = std::ranges::any_of(
        comm->calls, [&](const Call& one) { return one.stream == call.stream; });
    if (!promised) cuda_on_cpu::promise(call.stream);
    comm->calls.push_back(std::move(call));
  }
  return ncclInProgress;
}

/// Lets the operations of the last group arrive behind what their streams have been given. They do
/// not wait for each other.
void end_group(ncclComm_t comm, bool aborted) {
  std::vector<Call> calls = std::exchange(comm->calls, {});
  while (!calls.empty()) {
    const cudaStream_t stream = calls.front().stream;
    const auto others = std::ranges::stable_partition(
        calls, [&](const Call& call) { return call.stream == stream; });
    std::vector<Call> here(std::make_move_iterator(calls.begin()),
                           std::make_move_iterator(others.begin()));
    calls.erase(calls.begin(), others.begin());
    if (aborted) {
      cuda_on_cpu::enqueue_promised(stream, nullptr);
      continue;
    }
    cuda_on_cpu::enqueue_promised(stream, [here = std::move(here)] {
      std::vector<std::shared_ptr<Together>> posts;
      for (const Call& call : here) posts.push_back(call.arrive());
      return posts;
    });
  }
}

ncclResult_t begin(ncclComm_t comm, Call call) {
  if (!comm->calls.empty()) {
    return refuse("a communicator is used that still enqueues the group before");
  }
  if (grouped.size() == kMostOfGroup) return refuse("a group has too many operations");
  hold(comm);
  grouped.emplace_back(comm, std::move(call));
  return groups > 0 ? ncclSuccess : begin_group();
}

DType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclBfloat16:
      return DType::bf16;
    case ncclFloat16:
      return DType::f16;
    case ncclInt32:
      return DType::i32;
    case ncclUint8:
      return DType::u8;
    default:
      return DType::f32;
  }
}

/// All have come. Sums are taken in ascending rank order.
void exchange(std::span<const std::optional<Post>> posts) {
  const Post& first = *posts[0];
  const auto size = std::int64_t(posts.size());
  const std::int64_t bytes = plimsoll::element_bytes(dtype_of(first.type));
  const bool parts = first.kind == OpKind::all_gather || first.kind == OpKind::reduce_scatter;
  const std::int64_t elements = std::int64_t(first.count) * (parts ? size : 1);
  // Operands may overlap results: on copies.
  std::vector<std::vector<std::byte>> wholes;
  std::vector<plimsoll::MemberData> members;
  for (std::int64_t rank = 0; rank < size; ++rank) {
    const Post& post = *posts[std::size_t(rank)];
    const auto* from = static_cast<const std::byte*>(post.send);
    auto& whole = wholes.emplace_back(std::size_t(elements * bytes));
    const std::int64_t part = std::int64_t(post.count) * bytes;
    if (first.kind == OpKind::all_gather) {
      std::copy_n(from, part, whole.data() + rank * part);
    } else {
      std::copy_n(from, elements * bytes, whole.data());
    }
    members.push_back({whole.data(), whole.data() + (parts ? rank * part : 0)});
  }
  plimsoll::CollectiveParams params;
  params.reduction = first.op == ncclMax ? plimsoll::Reduction::max : plimsoll::Reduction::sum;
  params.root = first.root;
  plimsoll::move_collective(first.kind, params, dtype_of(first.type), elements, members);
  for (std::int64_t rank = 0; rank < size; ++rank) {
    const Post& post = *posts[std::size_t(rank)];
    const plimsoll::MemberData& member = members[std::size_t(rank)];
    if (first.kind == OpKind::reduce && rank != first.root) continue;
    const bool part = first.kind == OpKind::reduce_scatter;
    std::memcpy(post.receive, part ? member.part : member.whole,
                std::size_t((part ? std::int64_t(post.count) : elements) * bytes));
  }
}

ncclResult_t collective(Post post, ncclComm_t comm, cudaStream_t stream) {
  const auto arrive = [=, clique = comm->clique, rank = std::size_t(comm->rank),
                       size = std::size_t(comm->size), number = comm->collectives++] {
    const std::lock_guard guard(lock);
    auto& posts = clique->collectives[number];
    posts.resize(size);
    posts[rank] = post;
    if (!std::ranges::all_of(posts, [](const auto& one) { return one.has_value(); })) {
      return post.over;
    }
    for (const auto& one : posts) {
      if (one->kind == post.kind && one->count == post.count && one->type == post.type &&
          one->op == post.op && one->root == post.root) {
        continue;
      }
      throw std::logic_error("ranks of a communicator run different operations");
    }
    exchange(posts);
    for (const auto& one : posts) cuda_on_cpu::finish(*one->over);
    clique->collectives.erase(number);
    return post.over;
  };
  return begin(comm, {stream, arrive});
}

ncclResult_t transfer(Post post, bool sends, int peer, ncclComm_t comm, cudaStream_t stream) {
  if (peer < 0 || peer >= comm->size || peer == comm->rank) return refuse("no such peer");
  const std::pair ends = sends ? std::pair(comm->rank, peer) : std::pair(peer, comm->rank);
  const auto arrive = [=, clique = comm->clique] {
    const std::lock_guard guard(lock);
    auto& here = (sends ? clique->sends : clique->receives)[ends];
    auto& there = (sends ? clique->receives : clique->sends)[ends];
    if (there.empty()) {
      here.push_back(post);
      return post.over;
    }
    const Post other = there.front();
    there.erase(there.begin());
    if (other.count != post.count || other.type != post.type) {
      throw std::logic_error("a send and its receive differ");
    }
    std::memcpy(sends ? other.receive : post.receive, sends ? post.send : other.send,
                post.count * std::size_t(plimsoll::element_bytes(dtype_of(post.type))));
    cuda_on_cpu::finish(*post.over);
    cuda_on_cpu::finish(*other.over);
    return post.over;
  };
  return begin(comm, {stream, arrive});
}

ncclResult_t join(const std::shared_ptr<Clique>& clique, ncclComm_t comm) {
  const int device = cuda_on_cpu::current_device();
  clique->duplicate = clique->duplicate || std::ranges::count(clique->devices, device) > 0;
  clique->devices[std::size_t(comm->rank)] = device;
  ++clique->come;
  return ncclInProgress;
}

/// All ranks of the parent have come.
void split(const Clique& parent, const Clique::Split& asked) {
  std::map<int, std::vector<std::pair<int, int>>> by_color;  // key, rank of the parent
  for (std::size_t rank = 0; rank < asked.made.size(); ++rank) {
    const auto [color, key] = asked.color_and_key[rank];
    if (color != NCCL_SPLIT_NOCOLOR) by_color[color].emplace_back(key, int(rank));
  }
  for (auto& [color, ranks] : by_color) {
    std::ranges::sort(ranks);
    const auto clique = std::make_shared<Clique>();
    for (const auto& [key, rank] : ranks) {
      clique->devices.push_back(parent.devices[std::size_t(rank)]);
      auto* const made = new ncclComm{clique, clique->come++, int(ranks.size())};
      *asked.made[std::size_t(rank)] = made;
    }
  }
}

plimsoll::Nccl emulated() {
  plimsoll::Nccl f;
  f.error_string = [](ncclResult_t result) {
    return result == ncclInvalidUsage ? "invalid usage" : "an error";
  };
  f.last_error = [](ncclComm_t) { return complaint.c_str(); };
  f.version = [](int* code) {
    *code = NCCL_VERSION_CODE;
    return ncclSuccess;
  };
  f.unique_id = [](ncclUniqueId* id) {
    static int made = 0;
    const std::lock_guard guard(lock);
    std::snprintf(id->internal, sizeof(id->internal), "%d", ++made);
    return ncclSuccess;
  };
  f.init = [](ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
    const std::lock_guard guard(lock);
    if (config->blocking != 0) return refuse("communicators that block are not emulated");
    auto& clique = cliques()[id.internal];
    if (!clique) clique = std::make_shared<Clique>();
    clique->devices.resize(std::size_t(size), -1);
    *comm = new ncclComm{clique, rank, size};
    return join(clique, *comm);
  };
  f.split = [](ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t*) {
    const std::lock_guard guard(lock);
    Clique::Split& asked = comm->clique->splits[comm->splits++];
    asked.color_and_key.resize(std::size_t(comm->size));
    asked.made.resize(std::size_t(comm->size));
    asked.color_and_key[std::size_t(comm->rank)] = {color, key};
    asked.made[std::size_t(comm->rank)] = made;
    *made = nullptr;
    if (++asked.come == comm->size) split(*comm->clique, asked);
    return ncclInProgress;
  };
  f.async_error = [](ncclComm_t comm, ncclResult_t* state) {
    const std::lock_guard guard(lock);
    const Clique& clique = *comm->clique;
    const bool splitting = comm->splits > 0 && clique.splits.at(comm->splits - 1).come < comm->size;
    *state = clique.come < comm->size || splitting ? ncclInProgress : ncclSuccess;
    if (clique.duplicate && clique.come == comm->size) {
      *state = refuse("Duplicate GPU detected: two ranks are on one device");
    }
    if (comm->calls.empty()) return ncclSuccess;
    // The first time it has not come so far.
    if (comm->asked++ == 0) {
      *state = ncclInProgress;
    } else {
      comm->asked = 0;
      end_group(comm, false);
    }
    return ncclSuccess;
  };
  f.finalize = [](ncclComm_t) { return ncclSuccess; };
  f.destroy = [](ncclComm_t comm) {
    end_group(comm, true);
    static_cast<void>(cudaFree(comm->held));
    delete comm;
    return ncclSuccess;
  };
  f.abort = [](ncclComm_t comm) {
    {
      const std::lock_guard guard(lock);
      const auto rank = std::size_t(comm->rank);
      for (auto& [number, posts] : comm->clique->collectives) posts[rank].reset();
      for (auto* transfers : {&comm->clique->sends, &comm->clique->receives}) {
        std::erase_if(*transfers, [&](const auto& one) {
          return one.first.first == comm->rank || one.first.second == comm->rank;
        });
      }
    }
    return plimsoll::nccl().destroy(comm);
  };
  f.group_start = [] {
    ++groups;
    return ncclSuccess;
  };
  f.group_end = [] {
    if (--groups > 0) return ncclSuccess;
    return grouped.empty() ? ncclSuccess : begin_group();
  };
  f.all_reduce = [](const void* send, void* receive, std::size_t count, ncclDataType_t type,
                    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return collective({OpKind::all_reduce, count, type, op, 0, send, receive}, comm, stream);
  };
  f.reduce_scatter = [](const void* send, void* receive, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return collective({OpKind::reduce_scatter, count, type, op, 0, send, receive}, comm, stream);
  };
  f.all_gather = [](const void* send, void* receive, std::size_t count, ncclDataType_t type,
                    ncclComm_t comm, cudaStream_t stream) {
    return collective({OpKind::all_gather, count, type, ncclSum, 0, send, receive}, comm, stream);
  };
  f.reduce = [](const void* send, void* receive, std::size_t count, ncclDataType_t type,
                ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return collective({OpKind::reduce, count, type, op, root, send, receive}, comm, stream);
  };
  f.broadcast = [](const void* send, void* receive, std::size_t count, ncclDataType_t type,
                   int root, ncclComm_t comm, cudaStream_t stream) {
    return collective({OpKind::broadcast, count, type, ncclSum, root, send, receive}, comm, stream);
  };
  f.send = [](const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
              cudaStream_t stream) {
    return transfer({OpKind::send, count, type, ncclSum, 0, data, nullptr}, true, peer, comm,
                    stream);
  };
  f.recv = [](void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
              cudaStream_t stream) {
    return transfer({OpKind::recv, count, type, ncclSum, 0, nullptr, data}, false, peer, comm,
                    stream);
  };
  return f;
}

}  // namespace

namespace plimsoll {

const Nccl& nccl() {
  static const Nccl functions = emulated();
  return functions;
}

}  // namespace plimsoll
