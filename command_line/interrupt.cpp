// Notes SIGINT, SIGHUP, SIGTERM and SIGUSR1 with a signal handler.
#include "command_line/interrupt.h"

#include <csignal>

namespace plimsoll {
namespace {

constexpr int kNoted[] = {SIGINT, SIGHUP, SIGTERM, SIGUSR1};

volatile std::sig_atomic_t noted = 0;  // what a signal handler may write

/// Sets what a signal does, but for a SIGHUP that is ignored.
void set_signals(void (*handler)(int)) {
  for (const int signal : kNoted) {
    const auto before = std::signal(signal, handler);
    if (signal == SIGHUP && before == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

void note(int signal) {
  noted = signal;
  set_signals(SIG_DFL);
}

}  // namespace

InterruptNotice::InterruptNotice() {
  noted = 0;
  set_signals(note);
}
InterruptNotice::~InterruptNotice() { set_signals(SIG_DFL); }
int InterruptNotice::signal() { return noted; }
std::string_view InterruptNotice::name() {
  switch (noted) {
    case SIGINT:
      return "SIGINT";
    case SIGHUP:
      return "SIGHUP";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return "SIGTERM";
  }
}
ExitCode InterruptNotice::code() {
  const bool as_it_came = noted == SIGINT || noted == SIGHUP;
  return ExitCode(128 + (as_it_came ? int(noted) : SIGTERM));
}

}  // namespace plimsoll
