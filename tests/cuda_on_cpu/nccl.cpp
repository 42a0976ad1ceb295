// NCCL after its manual, among threads of one process: whoever comes last moves the data.
// Operations are over at once or when the last rank has come, which streams wait for; communicators
// do not block. What it refuses, and calls that do not fit each other, are errors here, too.
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

std::map<std::string, std::shared_ptr<Clique>>& cliques() {
  static std::map<std::string, std::shared_ptr<Clique>> all;
  return all;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0, size = 0;
  std::size_t collectives = 0, splits = 0;
  void* held = nullptr;  ///< device memory, from its first operation on
};

namespace {

constexpr std::size_t kHeld = std::size_t{1} << 20;

void hold(ncclComm_t comm) {
  if (comm->held == nullptr) static_cast<void>(cudaMalloc(&comm->held, kHeld));
}

/// An operation that waits for the end of its group.
struct Grouped {
  cudaStream_t stream = nullptr;
  std::function<ncclResult_t()> arrive;
};
constexpr std::size_t kMostOfGroup = 2048;
thread_local int groups = 0;
thread_local std::vector<Grouped> grouped;

/// Lets an operation arrive behind what the stream has been given so far. The operations of a group
/// do not wait for each other.
ncclResult_t begin(cudaStream_t stream, std::function<ncclResult_t()> arrive) {
  if (groups > 0) {
    if (grouped.size() == kMostOfGroup) {
      complaint = "a group has too many operations";
      return ncclInvalidUsage;
    }
    grouped.push_back({stream, std::move(arrive)});
    return ncclSuccess;
  }
  cuda_on_cpu::enqueue(stream, [] {});
  return arrive();
}

ncclResult_t refuse(const std::string& why) {
  complaint = why;
  return ncclInvalidUsage;
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

void finish(const Post& post) {
  post.over->end = std::chrono::steady_clock::now();
  post.over->done = true;
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
  return begin(stream, [=]() -> ncclResult_t {
    hold(comm);
    const std::lock_guard guard(lock);
    auto& posts = comm->clique->collectives[comm->collectives];
    posts.resize(std::size_t(comm->size));
    posts[std::size_t(comm->rank)] = post;
    cuda_on_cpu::enqueue(stream, post.over);
    const std::size_t number = comm->collectives++;
    if (!std::ranges::all_of(posts, [](const auto& one) { return one.has_value(); })) {
      return ncclSuccess;
    }
    for (const auto& one : posts) {
      if (one->kind == post.kind && one->count == post.count && one->type == post.type &&
          one->op == post.op && one->root == post.root) {
        continue;
      }
      throw std::logic_error("ranks of a communicator run different operations");
    }
    exchange(posts);
    for (const auto& one : posts) finish(*one);
    comm->clique->collectives.erase(number);
    return ncclSuccess;
  });
}

ncclResult_t transfer(Post post, bool sends, int peer, ncclComm_t comm, cudaStream_t stream) {
  return begin(stream, [=]() -> ncclResult_t {
    hold(comm);
    const std::lock_guard guard(lock);
    if (peer < 0 || peer >= comm->size || peer == comm->rank) return refuse("no such peer");
    const std::pair ends = sends ? std::pair(comm->rank, peer) : std::pair(peer, comm->rank);
    auto& here = (sends ? comm->clique->sends : comm->clique->receives)[ends];
    auto& there = (sends ? comm->clique->receives : comm->clique->sends)[ends];
    cuda_on_cpu::enqueue(stream, post.over);
    if (there.empty()) {
      here.push_back(post);
      return ncclSuccess;
    }
    const Post other = there.front();
    there.erase(there.begin());
    if (other.count != post.count || other.type != post.type) {
      throw std::logic_error("a send and its receive differ");
    }
    std::memcpy(sends ? other.receive : post.receive, sends ? post.send : other.send,
                post.count * std::size_t(plimsoll::element_bytes(dtype_of(post.type))));
    finish(post);
    finish(other);
    return ncclSuccess;
  });
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
    return ncclSuccess;
  };
  f.finalize = [](ncclComm_t) { return ncclSuccess; };
  f.destroy = [](ncclComm_t comm) {
    static_cast<void>(cudaFree(comm->held));
    delete comm;
    return ncclSuccess;
  };
  f.abort = f.destroy;
  f.group_start = [] {
    ++groups;
    return ncclSuccess;
  };
  f.group_end = [] {
    if (--groups > 0) return ncclSuccess;
    ncclResult_t result = ncclSuccess;
    const std::vector<Grouped> calls = std::exchange(grouped, {});
    for (const Grouped& call : calls) cuda_on_cpu::enqueue(call.stream, [] {});
    for (const Grouped& call : calls) {
      const ncclResult_t one = call.arrive();
      if (one != ncclSuccess) result = one;
    }
    return result;
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
