// Notes SIGINT, SIGHUP, SIGTERM and SIGUSR1 with a signal handler.
#include "command_line/interrupt.h"

#include <signal.h>

#include <csignal>

namespace plimsoll {
namespace {

constexpr int kNoted[] = {SIGINT, SIGHUP, SIGTERM, SIGUSR1};

volatile std::sig_atomic_t noted = 0;  // what a signal handler may write

bool hang_up_was_ignored = false;  // before the InterruptNotice

bool ignores(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

/// Sets what the noted signals do. A SIGHUP that was ignored stays ignored.
void set_signals(void (*handler)(int), void (*hang_up)(int)) {
  for (const int signal : kNoted) {
    if (signal != SIGHUP) {
      std::signal(signal, handler);
    } else if (!hang_up_was_ignored) {
      std::signal(signal, hang_up);
    }
  }
}

/// A terminal that is closed may send SIGHUP twice: by its shell and by the system.
void note(int signal) {
  noted = signal;
  set_signals(SIG_DFL, SIG_IGN);
}

}  // namespace

InterruptNotice::InterruptNotice() {
  noted = 0;
  hang_up_was_ignored = ignores(SIGHUP);
  set_signals(note, note);
}
InterruptNotice::~InterruptNotice() { set_signals(SIG_DFL, SIG_DFL); }
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
