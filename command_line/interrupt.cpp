// Notes SIGINT, SIGTERM and SIGUSR1 with a signal handler.
#include "command_line/interrupt.h"

#include <csignal>

namespace plimsoll {
namespace {

constexpr int kNoted[] = {SIGINT, SIGTERM, SIGUSR1};

volatile std::sig_atomic_t noted = 0;  // what a signal handler may write

void let_signals_end_the_program() {
  for (const int signal : kNoted) std::signal(signal, SIG_DFL);
}

void note(int signal) {
  noted = signal;
  let_signals_end_the_program();
}

}  // namespace

InterruptNotice::InterruptNotice() {
  noted = 0;
  for (const int signal : kNoted) std::signal(signal, note);
}
InterruptNotice::~InterruptNotice() { let_signals_end_the_program(); }
int InterruptNotice::signal() { return noted; }
std::string_view InterruptNotice::name() {
  return noted == SIGINT ? "SIGINT" : noted == SIGUSR1 ? "SIGUSR1" : "SIGTERM";
}
ExitCode InterruptNotice::code() { return ExitCode(128 + (noted == SIGINT ? SIGINT : SIGTERM)); }

}  // namespace plimsoll
