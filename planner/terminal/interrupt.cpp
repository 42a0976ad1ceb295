// Notes SIGINT with a signal handler.
#include "planner/terminal/interrupt.h"

#include <csignal>

namespace plimsoll {
namespace {

volatile std::sig_atomic_t noted = 0;  // what a signal handler may write

void note(int) {
  noted = 1;
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

InterruptNotice::InterruptNotice() {
  noted = 0;
  std::signal(SIGINT, note);
}
InterruptNotice::~InterruptNotice() { std::signal(SIGINT, SIG_DFL); }
bool InterruptNotice::asked() const { return noted != 0; }

}  // namespace plimsoll
