// Devices of a calibration are compared by process 0.
#include "calibrate/sessions/check_devices.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace plimsoll {
namespace {

/// Why these devices cannot be calibrated together; empty: they can. By rank: name, line feed, bus.
std::string refuse_devices(const std::vector<std::string>& hosts,
                           const std::vector<std::string>& devices) {
  std::map<std::pair<std::string, std::string>, std::size_t> used;  // host and bus: by whom
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const std::size_t end = devices[rank].find('\n');
    const std::string name = devices[rank].substr(0, end), bus = devices[rank].substr(end + 1);
    const std::string first = devices[0].substr(0, devices[0].find('\n'));
    if (name != first) {
      return fmt::format(
          "process 0 on {} has a device {}, process {} on {} a device {}: a "
          "calibration is of one kind of device",
          hosts[0], first, rank, hosts[rank], name);
    }
    const auto [known, is_new] = used.try_emplace({hosts[rank], bus}, rank);
    if (!is_new) {
      return fmt::format(
          "processes {} and {} on {} would share the device at {}: every process "
          "needs a separate one; start as many per host as it has",
          known->second, rank, hosts[rank], bus);
    }
  }
  return {};
}

}  // namespace

void check_devices(Processes& processes, const DeviceFacts& own,
                   std::chrono::milliseconds deadline) {
  const auto all = processes.gather(own.name + "\n" + own.bus, deadline);
  std::string why;
  if (processes.index() == 0) why = refuse_devices(processes.hosts(), all);
  why = processes.broadcast(why, deadline);
  if (!why.empty()) throw UsageError(why);
}

}  // namespace plimsoll
