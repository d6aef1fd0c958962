"""``adaptk replay``, end to end in this process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adaptk.cli import console
from adaptk.cli.main import main
from adaptk.replay import scenarios as known
from adaptk.replay import sweep
from adaptk.replay.evaluate import Bench, Row
from adaptk.replay.presets import PRESETS
from adaptk.replay.registry import POLICIES
from adaptk.replay.views.files import KIND, SCHEMA_VERSION
from adaptk.trace import TraceWriter
from tests.replay.handmade import surface
from tests.replay.tiny import ACCEPTANCE, ARMS, interrupt_run, tiny


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"T1": tiny("T1", group="core"), "T2": tiny("T2", group="apart")}
    monkeypatch.setattr(known, "scenarios", lambda: made)


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


def rows_of(path: Path) -> list[tuple[str, str, int]]:
    return [(row["scenario"], row["policy"], row["seed"]) for row in read(path)["rows"]]


def test_the_list_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """Every scenario, policy and preset is named with what it is, in one line; scenarios by group."""
    assert main(["replay", "--list"]) == 0
    out = capsys.readouterr().out
    assert "T1  what T1 is about" in out
    assert "depth-ewma-seeded         the same, seeded by the table" in out
    assert "recorded                  with --trace: what was recorded" in out
    assert "p32374                 measured in vLLM #32374: Llama-3.1-8B + EAGLE on H100" in out
    assert "usual: oracle, hindsight, table, adaptk" in out
    listed = out.partition("\nusual:")[0].split("\n\n")
    assert [group.split("\n")[0] for group in listed] == [
        "Cases", "Worlds, the core", "Worlds judged apart", "Policies", "Presets",
    ]  # fmt: skip
    assert sum(len(group.strip().split("\n")) - 1 for group in listed) == 2 + len(POLICIES) + 2 + len(PRESETS)
    assert max(map(len, out.splitlines())) <= 80


def test_scenarios_rows_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables on standard output, rows and report where they were asked for, nothing on standard error."""
    rows, report = tmp_path / "rows.json", tmp_path / "report.html"
    argv = ["replay", "--scenario", "T1", "t2", "--policy", "adaptk", "table", "--seeds", "2", "--jobs", "1",
            "--json", str(rows), "--html", str(report)]  # fmt: skip
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert max(map(len, out.partition("Rows:")[0].splitlines())) <= 80
    assert "T2: what T2 is about" in out
    assert "All 2 scenarios" in out
    assert "engine: by hand" in out
    assert out.count("adaptk against the static table: tok/s ") == 2
    worst = out.partition("Worst scenario\n")[2].partition("\n\n")[0]
    assert {line.split()[0] for line in worst.split("\n") if line[0] != " "} == {"policy", "adaptk", "table"}
    assert out.endswith(f"Rows: {rows}\nReport: {report}\n")
    document = read(rows)
    assert (document["schema_version"], document["kind"]) == (SCHEMA_VERSION, KIND) == (2, "adaptk-replay")
    assert (document["command"], document["skipped"], document["cut_short"]) == (["adaptk", *argv], 0, False)
    assert (document["notes"], document["measured_tokens_per_s"]) == ([], None)
    policies = ("adaptk", "adaptk-greedy", "table")
    assert rows_of(rows) == [(s, p, seed) for s in ("T1", "T2") for seed in (0, 1) for p in policies]
    assert set(document["rows"][0]) == set(Row.__struct_fields__)
    page = report.read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 8
    assert not re.search("https?:", page)


def test_rows_in_pieces_are_shown_as_if_they_had_been_run_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With where adaptk stands, once there are two scenarios of the core."""
    known.scenarios()["T2"] = tiny("T2", group="core")
    one, two, both = (tmp_path / f"{name}.json" for name in ("one", "two", "both"))
    options = ["--policy", "adaptk", "table", "--seeds", "2", "--jobs", "1"]
    for names, path in ((["T1"], one), (["T2"], two), (["T1", "T2"], both)):
        assert main(["replay", "--scenario", *names, *options, "--json", str(path)]) == 0
    at_once = capsys.readouterr().out.rpartition("\nT1: what T1 is about")[2].partition("Rows:")[0]
    assert "adaptk in 2 worlds, 2 seeds: geometric means" in at_once
    assert main(["replay", "--rows", str(two), str(one)]) == 0
    assert capsys.readouterr().out.rpartition("T1: what T1 is about")[2] == at_once
    assert main(["replay", "--rows", str(one), "--json", str(one)]) == 1
    assert f"is the file of --rows {one} too" in capsys.readouterr().err


def test_the_usual_policies_are_the_default(tmp_path: Path) -> None:
    """With every fixed K; exit status 0 although adaptk is not first."""
    rows = tmp_path / "rows.json"
    assert main(["replay", "--scenario", "T1", "--seeds", "1", "--json", str(rows)]) == 0
    policies = [policy for _, policy, _ in rows_of(rows)]
    assert policies[:4] == ["oracle", "hindsight", "table", "adaptk"]
    assert policies[-3:] == ["fixed-0", "fixed-1", "fixed-3"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--scenario", "T9"], "scenario 'T9' is unknown: adaptk replay --list names them"),
        (["--scenario", "T1", "--policy", "oracel"], "policy 'oracel' is unknown: did you mean oracle?"),
        (["--scenario", "T1", "--policy", "recorded"], "policy 'recorded' is what a trace recorded: leave it out"),
        (["--scenario", "T1", "--acceptance", "0.8"], "--acceptance goes with --workload: leave it out"),
        (["--scenario", "T1", "--policy", "fixed-2"], "policy 'fixed-2' is no arm of any scenario chosen"),
        (["--scenario", "T1", "--rate", "2"], "--rate goes with --workload: leave it out"),
        (["--scenario", "T1", "--table", "t.json"], "--table goes with --trace or --workload"),
        (["--trace", "t.jsonl", "--preset", "p32374"], "--preset goes with --workload"),
        (["--workload", "missing.csv"], "missing.csv: there is no such file"),
        (["--rows", "/dev/zero"], "/dev/zero: is no regular file: give a file that --json wrote"),
        (["--trace", "missing.jsonl"], "missing.jsonl: there is no such file"),
        (["--workload", "missing.csv", "--table", "missing.json"], "missing.json: there is no such file"),
        (["--scenario", "T1", "--json", "no/rows.json"], "--json no/rows.json: its folder does not exist"),
        (["--scenario", "T1", "--html", "no/report.html"], "--html no/report.html: its folder does not exist"),
        (["--scenario", "T1", "--html", "."], "--html .: is a folder"),
        (
            ["--scenario", "T1", "--html", "o.json", "--json", "./o.json"],
            "--html o.json: is the file of --json too: give another path",
        ),
        (["--trace", "t.json", "--json", "t.json"], "--json t.json: is the file of --trace too"),
        (["--workload", "w.csv", "--html", "w.csv"], "--html w.csv: is the file of --workload too"),
        (["--trace", "t.jsonl", "--table", "t.json", "--json", "t.json"], "--json t.json: is the file of --table too"),
    ],
)
def test_mistakes_are_said_without_a_traceback(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["replay", *argv]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"adaptk replay: {said}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "one of the arguments --scenario --trace --workload --rows --list is required"),
        (["--scenario", "T1", "--trace", "t.jsonl"], "not allowed with argument"),
        (["--scenario", "T1", "--seeds", "0"], "'0': give a whole number of at least 1"),
        (["--workload", "w.csv", "--arms", "0;1"], "'0;1': give whole numbers with commas"),
        (["--workload", "w.csv", "--acceptance", "0.8,x"], "'0.8,x': give shares from 0 to 1 with commas, as 0.8"),
        (["--workload", "w.csv", "--acceptance", "80"], "'80': give shares from 0 to 1"),
        (["--workload", "w.csv", "--acceptance", "nan"], "'nan': give shares from 0 to 1"),
    ],
)
def test_bad_arguments_are_refused(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With a usage message and status 2."""
    with pytest.raises(SystemExit) as end:
        main(["replay", *argv])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["numba", "joblib", "scipy"])
def test_without_the_extra_it_says_what_to_install(
    missing: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["replay", "--list"]) == 1
    assert capsys.readouterr().err == f"adaptk replay: {missing} is not installed: pip install 'adaptk[tools]'\n"


def test_without_matplotlib_only_the_report_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before anything is computed."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(sweep, "collect", lambda *_: pytest.fail("started"))
    assert main(["replay", "--scenario", "T1", "--html", str(tmp_path / "r.html")]) == 1
    assert "matplotlib is not installed, --html needs it" in capsys.readouterr().err
    assert main(["replay", "--list"]) == 0


def test_help_loads_nothing_heavy() -> None:
    """The command line stays quick."""
    code = "import sys, adaptk.cli.main as m; m.parser(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "adaptk.cli.replay" in loaded
    assert {"numba", "joblib", "scipy", "matplotlib", "rich"}.isdisjoint(loaded)


@pytest.mark.parametrize("finished", [0, 2])
def test_an_interrupt_shows_and_writes_what_was_finished(
    finished: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_run(monkeypatch, finished)
    rows, report = tmp_path / "rows.json", tmp_path / "report.html"
    argv = [
        "replay",
        "--scenario",
        "T1",
        "--policy",
        "fixed",
        "--jobs",
        "1",
        "--json",
        str(rows),
        "--html",
        str(report),
    ]
    assert main(argv) == 130
    what = "this is what was" if finished else "nothing was"
    assert f"Interrupted: {what} finished until then." in capsys.readouterr().out
    assert read(rows)["cut_short"] is True
    assert [policy for _, policy, _ in rows_of(rows)] == ["fixed-0", "fixed-1"][:finished]
    page = report.read_text(encoding="utf-8")
    assert "Interrupted" in page
    assert page.count("data:image/png") == bool(finished)


def test_an_interrupt_while_drawing_leaves_a_report_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impatient(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "_pictures", impatient)
    report = tmp_path / "report.html"
    argv = ["replay", "--scenario", "T1", "--policy", "fixed", "--seeds", "1", "--html", str(report)]
    assert main(argv) == 130
    assert "Pictures of single runs stand with 0 of 1 scenarios: the run was interrupted." in report.read_text("utf-8")


def test_more_scenarios_than_stories_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "MOST_STORIES", 1)
    report = tmp_path / "report.html"
    argv = ["replay", "--scenario", "all", "--policy", "table", "--seeds", "1", "--jobs", "1", "--html", str(report)]
    assert main(argv) == 0
    page = report.read_text("utf-8")
    assert "stand with 1 of 2 scenarios: those in which adaptk is furthest from the oracle." in page
    assert page.count("data:image/png") == 2 + 3


def test_a_request_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The engine and its load are described, waiting has a column, and skipped lines are counted."""
    log, rows = tmp_path / "log.jsonl", tmp_path / "rows.json"
    lines = [{"timestamp": 50 * i, "input_length": 60, "output_length": 12} for i in range(6)]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines) + "broken\n")
    argv = ["replay", "--workload", str(log), "--lenient", "--preset", "p32374", "--arms", "0,3", "--rate", "2",
            "--acceptance", "0.9,0.8", "--requests", "5", "--policy", "adaptk", "table", "fixed",
            "--seeds", "1", "--json", str(rows)]  # fmt: skip
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "The engine is simulated" in out
    assert "as given: 0.90, 0.80, 0.80, 0.80, 0.80." in " ".join(out.split())
    assert "One seed: no interval, differences may be luck." in out
    assert "The engine does not keep up under any policy" in out
    assert re.search(r"adaptk against the static table: tok/s \S+ %, ms/tok \S+ %\n", out)
    assert "log.jsonl: 5 requests on p32374, 2 times as fast" in out
    assert "ms/tok" in out
    assert "passed" not in out
    assert max(map(len, out.partition("Rows:")[0].splitlines())) <= 80
    assert read(rows)["skipped"] == 1
    assert read(rows)["notes"][0].startswith("The engine is simulated")
    played = [policy for _, policy, _ in rows_of(rows)]
    assert played == ["adaptk", "adaptk-greedy", "table", "fixed-0", "fixed-3"]
    assert main([option for option in argv if option != "--lenient"]) == 1
    err = capsys.readouterr().err
    assert "line 7" in err
    assert err.endswith("or pass --lenient to skip and count it\n")


def test_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was measured stands beside what is simulated for the policy that was recorded."""
    trace, table, rows = tmp_path / "trace.jsonl", tmp_path / "table.json", tmp_path / "rows.json"
    writer = TraceWriter(trace, {"arms": list(ARMS)})
    for step in Bench(tiny(), 0).run("window-ucb", record=True).run.rows:
        writer.write(step.step, step.decision)
    writer.close()
    surface(k_max=3).to_table(ARMS, ACCEPTANCE, (1, 2, 4)).save(table)
    argv = ["replay", "--trace", str(trace), "--table", str(table), "--seeds", "1", "--jobs", "1", "--json", str(rows)]
    assert main(argv) == 0
    out = capsys.readouterr().out
    said = " ".join(out.split())
    assert "Measured when the trace was recorded:" in said
    assert "Simulated under the recorded policy:" in said
    assert max(map(len, out.partition("Rows:")[0].splitlines())) <= 80
    assert [policy for _, policy, _ in rows_of(rows)][:2] == ["recorded", "oracle"]
    assert main([*argv, "--policy", "table"]) == 0
    assert [policy for _, policy, _ in rows_of(rows)] == ["recorded", "table"]
    assert "Simulated under the recorded policy:" in " ".join(capsys.readouterr().out.split())
    document = read(rows)
    assert document["measured_tokens_per_s"] > 0
    assert f"Measured when the trace was recorded: {document['measured_tokens_per_s']:.1f}" in document["notes"][-2]
    assert main([*argv, "--policy", "recorded"]) == 0
    assert [policy for _, policy, _ in rows_of(rows)] == ["recorded"]
    with trace.open("a") as file:
        file.write("broken\n")
    assert main(argv) == 1
    assert "or pass --lenient to skip and count it" in capsys.readouterr().err
    assert main([*argv, "--policy", "recorded", "--lenient"]) == 0
    assert read(rows)["skipped"] == 1


def test_rows_are_written_although_nobody_reads_the_table(tmp_path: Path) -> None:
    """As in ``adaptk replay ... | head``."""
    rows = tmp_path / "rows.json"
    code = (
        "import sys; from adaptk.cli.main import main; from adaptk.replay import scenarios;"
        "from tests.replay.tiny import tiny;"
        "scenarios.scenarios = lambda: {'T1': tiny()};"
        f"sys.exit(main(['replay', '--scenario', 'T1', '--policy', 'table', '--seeds', '1', '--json', {str(rows)!r}]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 0
    assert rows_of(rows) == [("T1", "table", 0)]


def test_a_terminal_has_a_bar_and_styles(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text as without."""
    argv = ["replay", "--scenario", "T1", "--policy", "table", "--seeds", "1"]
    assert main(argv) == 0
    plain = capsys.readouterr().out
    seen: list[str] = []

    class Bar:
        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            seen.append("end")

        def begin(self, what: str, total: int) -> None:
            seen.append(f"{what} {total}")

        def done(self, what: str) -> None:
            seen.append(what)

    monkeypatch.setattr(console, "Progress", Bar)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert re.sub("\x1b\\[[0-9;]*m", "", out) == plain
    assert out != plain
    assert seen == ["replaying 1", "T1, seed 0: table", "end"]
