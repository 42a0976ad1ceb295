// Notes SIGINT and SIGTERM with a signal handler.
#include "runtime/command/stop_signal.h"

#include <csignal>

namespace plimsoll {
namespace {

volatile std::sig_atomic_t noted = 0;  // what a signal handler may write

void set_handlers(void (*handler)(int)) {
  std::signal(SIGINT, handler);
  std::signal(SIGTERM, handler);
}

void note(int signal) {
  noted = signal;
  set_handlers(SIG_DFL);
}

}  // namespace

StopSignal::StopSignal() {
  noted = 0;
  set_handlers(note);
}
StopSignal::~StopSignal() { set_handlers(SIG_DFL); }
int StopSignal::caught() { return noted; }

}  // namespace plimsoll
