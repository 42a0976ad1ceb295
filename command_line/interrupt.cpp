// Notes SIGINT and SIGTERM with a signal handler.
#include "command_line/interrupt.h"

#include <csignal>

namespace plimsoll {
namespace {

volatile std::sig_atomic_t noted = 0;  // what a signal handler may write

void let_signals_end_the_program() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

void note(int signal) {
  noted = signal;
  let_signals_end_the_program();
}

}  // namespace

InterruptNotice::InterruptNotice() {
  noted = 0;
  std::signal(SIGINT, note);
  std::signal(SIGTERM, note);
}
InterruptNotice::~InterruptNotice() { let_signals_end_the_program(); }
int InterruptNotice::signal() { return noted; }
std::string_view InterruptNotice::name() { return noted == SIGINT ? "SIGINT" : "SIGTERM"; }
ExitCode InterruptNotice::code() { return ExitCode(128 + (noted == SIGINT ? SIGINT : SIGTERM)); }

}  // namespace plimsoll
