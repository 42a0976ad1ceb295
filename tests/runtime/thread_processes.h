// Processes that are threads of this one: what a cluster's processes do together, without a
// launcher.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/processes.h"

namespace plimsoll {

/// Makes the communicator of one of them; collective.
using MakeCommunicator = std::function<std::unique_ptr<Communicator>(
    Processes& processes, std::span<const Program> programs, std::chrono::milliseconds deadline,
    RankDevice* device)>;

/// Runs `work` on a thread for each of `hosts`, which names the host that each is said to be on.
/// Where one throws, the others' meetings fail; the first reason is thrown again.
void run_as_processes(const std::vector<std::string>& hosts, const MakeCommunicator& make,
                      const std::function<void(Processes& processes)>& work);

}  // namespace plimsoll
