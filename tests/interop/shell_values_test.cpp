// The text of a script determines arithmetic, branches of if, and variables that Slurm sets.
#include "interop/shell/shell_values.h"

#include <gtest/gtest.h>

#include <string>

#include "interop/shell/shell_words.h"

namespace plimsoll {
namespace {

/// The last word of the last command, or why it is not known.
std::string last_word(const std::string& lines) {
  const ShellScript script = read_shell(lines + "\nrun $X\n", "x.sh");
  const ShellWord& word = script.commands.back().back();
  return word.unknown.empty() ? word.text : word.unknown;
}

TEST(ShellValues, Arithmetic) {
  const auto value = [](const std::string& text) {
    return last_word("A=3\nB=$((A * 2))\nX=$((" + text + "))");
  };
  EXPECT_EQ(value("1 + 2 * 3"), "7");
  EXPECT_EQ(value("(1 + 2) * 3"), "9");
  EXPECT_EQ(value("$A * ${B} - 1"), "17");
  EXPECT_EQ(value("7 / 2 + 7 % 2"), "4");
  EXPECT_EQ(value("-A + 10 > 6 && A == 3"), "1");
  EXPECT_EQ(value("10 - 3 - 2"), "5");
  const std::string unknown = "its value is not known from this file";
  for (const char* text :
       {"1 / 0", "UNSET + 1", "A++", "1 +", "2 ** 3", "010", "$1", "9007199254740992 * 2"})
    EXPECT_EQ(value(text), unknown) << text;
}

TEST(ShellValues, VariablesInACircleAreNotKnown) {
  const VariableText same = [](std::string_view) { return std::optional<std::string>("A"); };
  EXPECT_FALSE(arithmetic_value("A", same));
  EXPECT_FALSE(arithmetic_value(std::string(5000, '('), same));
  EXPECT_FALSE(arithmetic_value(std::string(5000, '-') + "1", same));
}

TEST(ShellValues, ABranchIsTakenWhereItsConditionIsKnown) {
  const std::string branches = "; then\nX=1\nelif [ $S = mid ]; then\nX=2\nelse\nX=3\nfi";
  EXPECT_EQ(last_word("S=small\nif [ \"$S\" = \"small\" ]" + branches), "1");
  EXPECT_EQ(last_word("S=mid\nif [ \"$S\" = \"small\" ]" + branches), "2");
  EXPECT_EQ(last_word("S=large\nif [[ $S == small ]]" + branches), "3");
  EXPECT_EQ(last_word("S=a\nN=16\nif [ $N -gt 8 ] && [ -n \"$S\" ]" + branches), "1");
  EXPECT_EQ(last_word("S=a\nN=16\nif (( N < 8 ))" + branches), "3");
  EXPECT_EQ(last_word("S=a\nif ! test -n \"$S\"" + branches), "3");
  EXPECT_EQ(last_word("S=\nif test -z \"$S\"" + branches), "1");
  EXPECT_EQ(last_word("X=0\nif true; then\nif false; then X=1; fi\nfi"), "0");
  EXPECT_EQ(last_word("X=0\nA=b\n[ $A = b ] && X=1\n[ $A = b ] || X=2"), "1");
  EXPECT_EQ(last_word("X=0\nfalse &&\nX=1"), "0");
}

TEST(ShellValues, WhatIsNotKnownStaysUnknown) {
  const auto perhaps = [](int line) {
    return "$X is set under a condition (line " + std::to_string(line) + ")";
  };
  EXPECT_EQ(last_word("if [ $UNSET = 1 ]; then\nX=1\nfi"), perhaps(2));
  EXPECT_EQ(last_word("if grep -q a b; then\nX=1\nelse\nX=2\nfi"), perhaps(4));
  EXPECT_EQ(last_word("S=a\nif [[ $S == a* ]]; then\nX=1\nfi"), perhaps(3));
  EXPECT_EQ(last_word("X=4\n(( X *= 2 ))"), "$X is set by arithmetic (line 2)");
  // A branch behind one that may run may run, too.
  EXPECT_EQ(last_word("if [ $UNSET = 1 ]; then\n:\nelif true; then\nX=1\nfi"), perhaps(4));
}

TEST(ShellValues, BodiesOfFunctionsAreNamed) {
  for (const char* head : {"train() {", "train ()\n{", "function train {", "function train() {"})
    EXPECT_EQ(last_word(std::string("X=1\n") + head + "\nX=2; }\n").substr(0, 23),
              "$X is set in a function")
        << head;
  EXPECT_EQ(last_word("f() { :; }\nX=3"), "3");
}

TEST(ShellValues, LetAndBracketsSetValues) {
  EXPECT_EQ(last_word("A=4\nlet X=A*8"), "32");
  EXPECT_EQ(last_word("A=4\nlet \"X = A * 8\""), "32");
  EXPECT_EQ(last_word("X=1\n(( X = 4 * 8 ))"), "32");
  EXPECT_EQ(last_word("X=1\nif [ $UNSET ]; then\nlet A=X*8\nfi"), "1");  // only read
  EXPECT_EQ(last_word("X=1\nlet X+=1"), "$X is set by arithmetic (line 2)");
  EXPECT_EQ(last_word("X=1\nif [ $UNSET ]; then\nlet X=2\nfi"), "$X is set by arithmetic (line 3)");
}

TEST(ShellValues, ABranchOfCaseIsTakenWhereItsWordIsKnown) {
  const std::string branches =
      " in\nsmall) X=1 ;;\n(mid | large)\n X=2\n ;;\n*)\nif true; then X=3; fi ;;\nesac";
  EXPECT_EQ(last_word("S=small\ncase $S" + branches), "1");
  EXPECT_EQ(last_word("S=mid\ncase \"$S\"" + branches), "2");
  EXPECT_EQ(last_word("S=large\ncase ${S}" + branches), "2");
  EXPECT_EQ(last_word("S=huge\ncase $S" + branches), "3");
  EXPECT_EQ(last_word("X=0\ncase a in a) ;; a) X=1;; esac"), "0");
  EXPECT_EQ(last_word("case a in a) X=1; case b in c) X=2;; esac ;; esac"), "1");
  for (const std::string& unknown :
       {"case $UNSET" + branches, std::string("case abc in a*) X=1;; esac"),
        std::string("case a in a) X=1 ;& b) X=2;; esac")})
    EXPECT_NE(last_word(unknown).find("is set under a condition"), std::string::npos) << unknown;
}

TEST(ShellValues, DefaultsOfVariables) {
  EXPECT_EQ(last_word("X=${A:=7}"), "7");
  EXPECT_EQ(last_word("A=\nX=${A:-7}"), "7");
  EXPECT_EQ(last_word("A=3\nX=${A:-7}"), "3");
}

TEST(ShellValues, SlurmSetsWhatAScriptAsksFor) {
  EXPECT_EQ(last_word("#SBATCH --nodes=4\nX=$SLURM_NNODES"), "4");
  EXPECT_EQ(last_word("#SBATCH -N 4\nX=$SLURM_JOB_NUM_NODES"), "4");
  EXPECT_EQ(last_word("#SBATCH --gpus-per-node=h100:8\nX=$SLURM_GPUS_PER_NODE"), "8");
  EXPECT_EQ(last_word("#SBATCH --gres=gpu:8 # all\nX=$SLURM_GPUS_ON_NODE"), "8");
  EXPECT_EQ(last_word("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\nX=$SLURM_NTASKS"), "16");
  EXPECT_EQ(
      last_word("#SBATCH --nodes=4\n#SBATCH --gpus=32\nX=$((SLURM_NNODES*SLURM_GPUS_PER_NODE))"),
      "32");
  EXPECT_EQ(last_word("#SBATCH --nodes=2-4\nX=$SLURM_NNODES"),
            "$SLURM_NNODES is not set in this file");
  EXPECT_EQ(last_word("# SBATCH --nodes=4\nX=$SLURM_NNODES"),
            "$SLURM_NNODES is not set in this file");
}

}  // namespace
}  // namespace plimsoll
