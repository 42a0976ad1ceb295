// Functions, builtins and prefixes of commands set variables as bash has them.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "interop/shell/shell_words.h"

namespace plimsoll {
namespace {

/// Returns X at the end of a script that sets it to 2 first, or why it is not known.
std::string x_behind(const std::string& lines) {
  const ShellScript script = read_shell("X=2\n" + lines + "\nrun $X\n", "x.sh");
  const ShellWord& word = script.commands.back().back();
  return word.unknown.empty() ? word.text : word.unknown;
}

/// Returns what a script has and nobody reads.
std::string notes_of(const std::string& lines) {
  std::string notes;
  for (const std::string& note : read_shell(lines, "x.sh").notes) notes += note + "\n";
  return notes;
}

TEST(ShellPrograms, ACalledFunctionSetsWhatItsBodySets) {
  const std::string unknown = "$X is set in a function (line 2)";
  EXPECT_EQ(x_behind("f() { X=$1; }\nX=1\nf 4"), unknown);
  EXPECT_EQ(x_behind("f() { X=$1; }\nX=1\nif f 4; then :; fi"), unknown);
  EXPECT_EQ(x_behind("function f { eval X=4; }\nX=1\nf"), unknown);
  EXPECT_EQ(x_behind("f() { X=4; }\ng() { f; }\nX=1\ng"), unknown);
  // A function that calls itself, and one that is defined later.
  EXPECT_EQ(x_behind("f() { X=4; f; g; }\ng() { f; }\nX=1\ng"), unknown);
  EXPECT_EQ(x_behind("g() { f; }\nf() { X=4; }\nX=1\ng"), "$X is set in a function (line 3)");
  EXPECT_EQ(x_behind("f() { X=4; }\nX=1\nfalse && f"), "1");
  EXPECT_EQ(x_behind("f() { local X=4; local Y; Y=3; }\nX=1\nf"), "1");
  EXPECT_EQ(x_behind("f() { Y=4; }\nf"), "2");
}

/// Returns the words of the commands "train" of a script, a line for each.
std::string trains(const std::string& lines) {
  std::string found;
  for (const ShellWords& command : read_shell(lines, "x.sh").commands) {
    if (command[0].text != "train") continue;
    for (const ShellWord& word : command)
      found += (word.unknown.empty() ? word.text : word.unknown) +
               (&word == &command.back() ? "\n" : " ");
  }
  return found;
}

TEST(ShellPrograms, CommandsOfAFunctionHaveTheValuesOfItsCall) {
  EXPECT_EQ(trains("X=2\nf() { train $X; }\nX=4\nf"), "train 4\n");
  EXPECT_EQ(trains("X=2\nf() ( train $X )\nX=4\nf"), "train 4\n");
  EXPECT_EQ(trains("X=2\nfunction f\n{\n train $X\n}\nX=4\nf | tee log"), "train 4\n");
  EXPECT_EQ(trains("f() { train $X; }\nX=4\nf"), "train 4\n");
  EXPECT_EQ(trains("f() { train $X; }\nX=2\ng() { f; }\nX=4\ng"), "train 4\n");
  EXPECT_EQ(trains("X=2\nf() { train $X; }\nX=4 f"), "train 4\n");
  EXPECT_EQ(trains("X=2\nf() { train $X; }\neval 'X=4; f'"), "train 4\n");
  EXPECT_EQ(trains("f() { train $1; }\nf 4"), trains("train $1"));
  // Calls that differ are commands that differ.
  EXPECT_EQ(trains("f() { train $X; }\nX=2\nf\nX=4\nf\nf"), "train 2\ntrain 4\n");
  EXPECT_EQ(trains("f() { train $X; }\neval 'X=2; f; X=4; f'"), "train 2\ntrain 4\n");
}

TEST(ShellPrograms, AFunctionHasTheBodyThatIsDefinedLast) {
  EXPECT_EQ(trains("f() { train 2; }\nf() { train 4; }\nf"), "train 4\n");
  EXPECT_EQ(trains("f() { train 4; }\nif false; then f() { train 2; }; fi\nf"), "train 4\n");
  EXPECT_EQ(trains("if [ $U ]; then f() { train 2; }; else f() { train 4; }; fi\nf"),
            "train 2\ntrain 4\n");
}

TEST(ShellPrograms, AFunctionThatIsNotCalledMayRunBehindItsDefinition) {
  EXPECT_EQ(trains("X=4\nf() { train $X; }"), "train 4\n");
  EXPECT_EQ(trains("f() { train 2; }\ntrain 3\nh() { train 4; }\ntrain 5"),
            "train 2\ntrain 3\ntrain 4\ntrain 5\n");
  EXPECT_EQ(trains("X=4\nf() { train $X"), "train 4\n");
  EXPECT_EQ(trains("X=4\nf() { train $X; }\ng() { f; }"), "train 4\n");
  EXPECT_EQ(trains("X=2\nf() { train $X; }\nX=4"),
            "train $X is set after the function of this command\n");
  EXPECT_EQ(read_shell("X=2\nf() { X=3 Y=3; }\nX=4\n", "x.sh").variables.at("X")[0].text, "4");
}

TEST(ShellPrograms, BuiltinsSetVariables) {
  EXPECT_EQ(x_behind("eval \"X=4\""), "4");
  EXPECT_EQ(x_behind("N=X; eval \"$N=4; Y=3\""), "4");
  EXPECT_EQ(x_behind("eval \"X=$UNSET\""), "$UNSET is not set in this file");
  EXPECT_EQ(x_behind("[ $UNSET ] && eval \"Y=1; X=4\""), "$X is set under a condition (line 2)");
  EXPECT_EQ(x_behind("false && eval X=4"), "2");
  EXPECT_EQ(x_behind("declare \"X=4\""), "4");
  EXPECT_EQ(x_behind("S=X=4\nexport $S"), "4");
  EXPECT_EQ(x_behind("export X=4 Y"), "4");
  EXPECT_EQ(x_behind("unset X\nX=${X:-4}"), "4");
  EXPECT_EQ(x_behind("unset X"), "$X is not set in this file");
  EXPECT_EQ(x_behind("[ $UNSET ] && unset X"), "$X is set under a condition (line 2)");
  EXPECT_EQ(x_behind("read -r X < FILE"), "$X is set by read (line 2)");
  EXPECT_EQ(x_behind("while IFS= read -r X; do :; done < FILE"), "$X is set by read (line 2)");
  EXPECT_EQ(x_behind("mapfile -t X < FILE"), "$X is set by mapfile (line 2)");
  EXPECT_EQ(x_behind("printf -v X %d 4"), "$X is set by printf (line 2)");
  EXPECT_EQ(x_behind("printf %d X"), "2");
}

TEST(ShellPrograms, AssignmentsOfOneCommandAloneAreItsOwn) {
  const ShellScript script = read_shell("X=2\nX=4 Y=3 run $X\nrun $X ${Y:-5}\n", "x.sh");
  EXPECT_EQ(script.commands[0][1].text, "2");
  EXPECT_EQ(script.commands[1][1].text, "2");
  EXPECT_EQ(script.commands[1][2].text, "5");
  EXPECT_EQ(script.variables.at("Y")[0].text, "3");
  EXPECT_EQ(x_behind("A=4 X=$A"), "4");
  EXPECT_EQ(x_behind("X=4 2>/dev/null"), "4");
  EXPECT_EQ(x_behind("if X=4; then :; fi"), "4");
  EXPECT_EQ(x_behind("Y=4 eval 'X=$Y'"), "4");
  EXPECT_EQ(x_behind("while ! X=4 read Y; do :; done"), "2");
}

TEST(ShellPrograms, DefaultsAreAssigned) {
  EXPECT_EQ(x_behind("unset X\n: ${X:=4}"), "4");
  EXPECT_EQ(x_behind("X=\n: \"${X:=4}\""), "4");
  EXPECT_EQ(x_behind("X=\n: \"${X=4}\"\nX=a$X"), "a");
  EXPECT_EQ(x_behind(": ${X:=4}"), "2");
  EXPECT_EQ(x_behind("unset X\n[ $UNSET ] && : ${X:=4}"), "$X is set under a condition (line 3)");
}

TEST(ShellPrograms, OtherShellsSetNothing) {
  EXPECT_EQ(x_behind("X=4 &"), "2");
  EXPECT_EQ(x_behind("echo a | X=4"), "2");
  EXPECT_EQ(x_behind("echo a |\n X=4"), "2");
  EXPECT_EQ(x_behind("X=4 | cat"), "2");
  EXPECT_EQ(x_behind("true && X=4"), "4");
  EXPECT_EQ(x_behind("echo a | cat\nX=4"), "4");
  for (const char* apart :
       {"echo a | { :; X=4; }", "{ :; X=4; } &", "echo a | if true; then X=4; fi",
        "if true; then X=4; fi | cat", "echo a | case b in b) X=4;; esac", "echo a | { { X=4; }; }",
        "{ :; unset X; } &"})
    EXPECT_EQ(x_behind(apart), "$X is set in a subshell (line 2)") << apart;
  EXPECT_EQ(x_behind("echo a | { :; Y=4; }\n{ :; X=4; }"), "4");
}

TEST(ShellPrograms, TextsThatAreReadAgainHaveBounds) {
  EXPECT_EQ(x_behind("f() { eval \"};};};}\"; }\nf\nX=4"), "4");
  EXPECT_EQ(x_behind("eval \"done; fi; };)\"\nX=4"), "4");
  // Each level reads the comment several times.
  std::string twice = "A='";
  for (int i = 0; i < 100; ++i) twice += "eval \"$A\"; ";
  twice += "# " + std::string(60'000, 'c') + "'\neval \"$A\"";
  EXPECT_THROW(x_behind(twice), InputError);
}

TEST(ShellPrograms, WhatIsNotReadIsNoted) {
  const std::string more = " is not read: it may set variables of the command\n";
  EXPECT_EQ(notes_of("X=4\nsource env.sh\n"), "line 2: env.sh" + more);
  EXPECT_EQ(notes_of(". ./env.sh\n"), "line 1: ./env.sh" + more);
  EXPECT_EQ(notes_of("eval \"$(conda hook)\"\n"), "line 1: $(...)" + more);
  EXPECT_EQ(notes_of("export $(cat .env)\n"), "line 1: export $(...)" + more);
  EXPECT_EQ(notes_of("X='eval \"$X\"'\neval \"$X\"\n"), "line 2: eval" + more);
  EXPECT_EQ(notes_of("false && source env.sh\nrun $(date)\n"), "");
}

TEST(ShellPrograms, AnEmptyDefaultIsNoWordWithoutQuotes) {
  const ShellScript script =
      read_shell("run 64 ${EXTRA:-}\nE=\nrun ${E:-} ${E-}\nrun \"${E:-}\" ${F:-\"\"}\n", "x.sh");
  EXPECT_EQ(script.commands[0].size(), 2u);
  EXPECT_EQ(script.commands[1].size(), 1u);
  EXPECT_EQ(script.commands[2].size(), 3u);
  EXPECT_EQ(x_behind("grep -q a <<< \"$Y\"\nX=4"), "4");
}

}  // namespace
}  // namespace plimsoll
