// A process that measures its machine alone has nobody to meet.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/processes.h"

namespace plimsoll {

/// This process alone, as the only rank.
class OneProcess final : public Processes {
 public:
  std::string_view name() const override { return "threads"; }
  std::string version() const override { return "threads"; }
  std::int64_t index() const override { return 0; }
  std::int64_t size() const override { return 1; }
  std::chrono::steady_clock::time_point epoch() const override { return epoch_; }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  std::unique_ptr<Communicator> make_communicator(std::span<const Program> programs,
                                                  std::chrono::milliseconds deadline,
                                                  RankDevice*) override {
    return std::move(make_local_communicators(programs[0].grid, deadline, epoch_).front());
  }
  void barrier(std::chrono::milliseconds) override {}
  void begin_any(bool own) override { own_ = own; }
  bool end_any(std::chrono::milliseconds) override { return own_; }
  std::vector<std::string> gather(const std::string& bytes, std::chrono::milliseconds) override {
    return {bytes};
  }
  std::string broadcast(const std::string& bytes, std::chrono::milliseconds) override {
    return bytes;
  }
  std::unique_ptr<Processes> first(std::int64_t) override { return std::make_unique<OneProcess>(); }
  RankStatusBoard* status_board() override { return nullptr; }

 private:
  const std::chrono::steady_clock::time_point epoch_ = std::chrono::steady_clock::now();
  const std::vector<std::string> hosts_ = {"localhost"};
  bool own_ = false;
};

}  // namespace plimsoll
