"""`planner passes`: any stage of the lowering as text, before or after a pass, for all ranks or one."""

import pathlib
import tempfile

from programs import CLUSTER, NANO, OK, nano_job, planner, write_json


def passes(*arguments):
    done = planner("passes", NANO, *arguments)
    assert done.returncode == OK, done.stderr
    assert not done.stderr, done.stderr
    headline, _, text = done.stdout.partition("\n")
    assert headline.startswith("# gpt-nano as "), headline
    return headline, text


def stages():
    done = planner("passes", "--list")
    assert done.returncode == OK, done.stderr
    return [line.split()[0] for line in done.stdout.splitlines()]


def overview_names_every_stage(names):
    headline, text = passes("mp=2,pp=2")
    assert "mp=2 pp=2" in headline and headline.endswith("framework bundled"), headline
    lines = [line.split() for line in text.splitlines()]
    assert [line[0] for line in lines] == names, text
    said = {line[0]: line[1] for line in lines}
    assert said["tensor_parallel"] == "changed" and said["data_parallel"] == "unchanged", said


def before_is_after_the_one_before(names):
    for earlier, later in zip(names, names[1:]):
        after, text = passes("mp=2", "--after", earlier)
        before, same = passes("mp=2", "--before", later)
        assert text == same, later
        assert after.endswith(f"; after {earlier}"), after
        assert before.endswith(f"; before {later}"), before
    changed = passes("mp=2", "--after", "tensor_parallel")[1]
    assert changed != passes("mp=2", "--before", "tensor_parallel")[1]
    assert "copy_to_group" in changed
    assert "copy_to_group" not in passes("mp=1", "--after", "tensor_parallel")[1]


def programs_of(text):
    return [line for line in text.splitlines() if line.startswith("program ")]


def a_rank_chooses_its_class():
    """Ranks 0 and 1 are the two mp ranks of stage 0, ranks 2 and 3 of stage 1."""
    for stage in ("schedule", "plan_memory"):
        everyone = passes("mp=2,pp=2", "--after", stage)[1]
        assert len(programs_of(everyone)) == 2, programs_of(everyone)
        by_rank = [passes("mp=2,pp=2", "--after", stage, "--rank", r)[1] for r in range(4)]
        assert by_rank[0] == by_rank[1] and by_rank[2] == by_rank[3]
        assert by_rank[0] + by_rank[2] == everyone
        assert programs_of(by_rank[0]) != programs_of(by_rank[2])
    graph = passes("mp=2,pp=2", "--after", "backward")[1]
    assert graph == passes("mp=2,pp=2", "--after", "backward", "--rank", 3)[1]


def the_framework_follows_the_cluster(folder):
    cores = write_json(folder / "cores.json", CLUSTER)
    gpus = write_json(folder / "gpus.json",
                      {**CLUSTER, "device": {**CLUSTER["device"], "kind": "gpu"}})
    for arguments, framework in (((), "bundled"), (("--cluster", cores), "bundled"),
                                 (("--cluster", gpus), "megatron-lm"),
                                 (("--cluster", gpus, "--framework", "bundled"), "bundled"),
                                 (("--framework", "megatron-lm"), "megatron-lm")):
        headline, text = passes("mp=2", "--after", "select_kernels", *arguments)
        assert f"; framework {framework};" in headline, headline
        assert ("flash_attention" in text) == (framework == "megatron-lm"), framework


def the_vocabulary_is_padded_as_the_framework_does(folder):
    job = write_json(folder / "odd.json", nano_job(vocab=1000))
    for framework, rows in (("bundled", 1000), ("megatron-lm", 1024)):
        done = planner("passes", job, "mp=1", "--after", "select_kernels", "--framework", framework)
        assert done.returncode == OK, done.stderr
        assert f"[{rows}," in done.stdout and f"[{2024 - rows}," not in done.stdout, framework
        done = planner("simulate", job, "mp=1,micro_batch=1", "--cluster", "dgx-a100-80gb",
                       "--devices", 1, "--framework", framework, "--verbose")
        assert done.returncode == OK, done.stderr
        assert ("vocabulary padded to 1024" in done.stdout) == (rows == 1024), done.stdout


def a_strategy_file_says_the_same(folder):
    strategy = write_json(folder / "strategy.json", {"mp": 2, "pp": 2})
    assert passes(strategy, "--after", "schedule") == passes("mp=2,pp=2", "--after", "schedule")


def main():
    names = stages()
    overview_names_every_stage(names)
    before_is_after_the_one_before(names)
    a_rank_chooses_its_class()
    with tempfile.TemporaryDirectory() as folder:
        the_framework_follows_the_cluster(pathlib.Path(folder))
        the_vocabulary_is_padded_as_the_framework_does(pathlib.Path(folder))
        a_strategy_file_says_the_same(pathlib.Path(folder))


if __name__ == "__main__":
    main()
