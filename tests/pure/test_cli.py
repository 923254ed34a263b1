import contextvars
import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner

from weft import __version__, cli
from weft.config.options import FLAGS
from weft.lab.commands.lab import lab
from weft.model.errors import CannotRun, ConfigError, Problem, Unavailable
from weft.screen.groups import LateGroup

ROOT = Path(__file__).parents[2]
WEFT = Path(sys.executable).with_name("weft")


def command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    @click.command()
    @click.option("-o", "--output")
    @click.argument("rest", nargs=-1, type=click.UNPROCESSED)
    def fails(**_: object) -> None:
        raise error

    monkeypatch.setitem(cli.weft.commands, "fails", fails)


def test_help_imports_no_sub_command():
    code = "import sys; from weft import cli; cli.run(['--help']); print(*sys.modules, sep='\\n')"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for name in cli.COMMANDS:
        assert name in shown
    modules = shown.splitlines()
    for late in ("weft.lab.commands.lab", "weft.daemon.commands.verbs", "asyncio", "rich", "yaml"):
        assert late not in modules


def test_without_the_lab_its_commands_are_named_with_how_to_install_them():
    code = "import sys; sys.modules['weft.lab'] = None; from weft import cli; sys.exit(cli.run(sys.argv[1:]))"
    shown, refused, unknown = (
        subprocess.run([sys.executable, "-c", code, *line.split()], capture_output=True, text=True, check=False)
        for line in ("--help", "ui --open", "ux")
    )
    commands, absent = shown.stdout.split(
        f"Not installed (pip install weft_lab-{__version__}-*.whl, which 'make wheel' builds):"
    )
    assert "  status  " in commands
    assert [line.split()[0] for line in absent.strip().splitlines()] == ["lab", "ui"]
    assert refused.returncode == 2
    assert f"'ui' is not installed. Install it with: pip install weft_lab-{__version__}-*.whl" in refused.stderr
    assert "There is no command 'ux'." in unknown.stderr


def test_a_command_of_which_a_module_is_missing_says_so(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "weft.ui.command", None)
    assert cli.run(["ui", "--help"]) == cli.FAILED
    assert "INST-004 weft: this installation of weft is not whole" in capsys.readouterr().err


def test_every_late_command_can_be_loaded():
    for name, late in cli.COMMANDS.items():
        assert late.load().name == name
    assert isinstance(lab, LateGroup)
    context = click.Context(lab)
    for name in lab.list_commands(context):
        command = lab.get_command(context, name)
        assert command is not None
        assert command.name == name


def test_a_command_of_a_lab_imports_no_other():
    code = "import sys; from weft import cli; cli.run(['lab', 'ps', '--help']); print(*sys.modules, sep='\\n')"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    modules = set(shown.splitlines())
    assert "weft.lab.commands.pods" in modules
    assert not modules & {"weft.lab.commands.quiz", "weft.lab.commands.tutorial", "weft.lab.commands.trace"}


def test_version_goes_to_people_and_to_programs(capsys):
    assert cli.run(["version"]) == 0
    assert cli.run(["version", "-o", "json"]) == 0
    assert capsys.readouterr().out == f'weft {__version__}\n{{\n  "version": "{__version__}"\n}}\n'


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_of_each_shell(capsys, shell):
    assert cli.run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_WEFT_COMPLETE" in script
    assert all(flag.name in script for flag in FLAGS if not flag.later)


def test_bash_completes_the_flags_of_weftd():
    script = 'eval "$(weft completion bash)"; compgen -W "$(complete -p weftd | cut -d "\'" -f 2)" -- --healthz'
    environ = os.environ | {"PATH": f"{WEFT.parent}:{os.environ['PATH']}"}
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=environ)
    assert ran.stdout.split() == ["--healthz-ip", "--healthz-port"]


def completed(line: str) -> list[str]:
    words = f"weft {line}"
    environ = {"_WEFT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(line.split(" ")))}
    ran = CliRunner().invoke(cli.weft, [], prog_name="weft", env=environ)
    return [each.partition(",")[2] for each in ran.stdout.splitlines() if each]


@pytest.mark.parametrize(
    "line, found",
    [
        ("lab up --backend w", ["wireguard"]),
        ("lab break node1 uplink-n", ["uplink-narrow"]),
        ("explain mtu-", ["MTU-001"]),
        ("lab quiz check CNI-001", ["CNI-001"]),
    ],
)
def test_the_shell_completes_values(line, found):
    assert completed(line) == found


def test_the_shell_completes_networks_and_namespaces(tmp_path, monkeypatch):
    (tmp_path / "10-one.conflist").write_text('{"name": "one", "cniVersion": "1.0.0", "plugins": [{"type": "bridge"}]}')
    (tmp_path / "20-two.conf").write_text('{"name": "two", "cniVersion": "1.0.0", "type": "bridge"}')
    (tmp_path / "30-broken.conf").write_text("{")
    monkeypatch.setenv("NETCONFPATH", str(tmp_path))
    assert completed("cni add ") == ["one", "two"]
    assert completed("cni del t") == ["two"]
    monkeypatch.setattr("weft.cni.commands.cni._NETNS", tmp_path)
    assert completed(f"cni add one {tmp_path}/2") == [f"{tmp_path}/20-two.conf"]


@pytest.mark.parametrize("group", ["", "lab", "cni", "ipam"])
def test_help_lists_every_command_whole(capsys, group):
    assert cli.run([*group.split(), "--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:\n")[2]
    assert listed
    assert "..." not in listed


def test_a_command_of_a_group_that_there_is_not_is_answered_by_a_guess(capsys):
    assert cli.run(["lab", "pingal"]) == 2
    assert "There is no command 'pingal'. Did you mean 'pingall'?" in capsys.readouterr().err


def test_without_a_command_the_help_is_shown(capsys):
    assert cli.run([]) == 2
    assert "Commands:" in "".join(capsys.readouterr())


def test_a_misspelt_command_is_answered_with_the_nearest(capsys):
    assert cli.run(["lba", "up"]) == 2
    assert "Did you mean 'lab'?" in capsys.readouterr().err


def test_a_strange_command_is_answered_with_the_list(capsys):
    assert cli.run(["qqqqqqqq"]) == 2
    assert "There are: lab, ui, status, " in capsys.readouterr().err


def test_all_problems_of_an_input_are_printed_with_their_codes(monkeypatch, capsys):
    problems = (
        Problem(code="LAB-001", where="x.yaml:3", seen="no", hint="Say how many."),
        Problem(code="CONF-002", where="net-conf.json: Network", seen="'x'", expected="a network"),
    )
    command(monkeypatch, ConfigError(*problems))
    assert cli.run(["fails"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "weft: LAB-001 x.yaml:3: no. Say how many.",
        "weft: CONF-002 net-conf.json: Network: 'x'; expected a network",
    ]


def test_a_program_that_cannot_be_run_ends_as_in_a_shell(monkeypatch, capsys):
    command(monkeypatch, CannotRun(Problem(code="HOST-002", where="node1: x", seen="no such file"), status=127))
    assert cli.run(["fails"]) == 127
    assert capsys.readouterr().err == "weft: HOST-002 node1: x: no such file\n"


@pytest.mark.parametrize(
    "args, seen",
    [
        (["lba"], "weft: FLAG-001 weft: There is no command 'lba'. Did you mean 'lab'? 'weft --help' lists"),
        (["lab", "upp"], "weft: FLAG-001 weft lab: There is no command 'upp'. Did you mean 'up'? 'weft lab --help'"),
        (["lab", "up", "--nods", "3"], "weft: FLAG-001 weft lab up: No such option '--nods'."),
        (["lab", "up", "--nodes", "x"], "weft: FLAG-001 weft lab up: Invalid value for '--nodes': 'x'"),
        (
            ["lab", "ps", "x"],
            "weft: FLAG-001 weft lab ps: Got unexpected extra argument (x). A lab is named by --lab NAME.",
        ),
        (
            ["lab", "up", "x"],
            "weft: FLAG-001 weft lab up: Invalid value for '[FILE]': File 'x' does not exist. A lab is named by --name",
        ),
        (["lab", "run", "web"], "weft: FLAG-001 weft lab run: Missing option '--node'. 'weft lab run --help' lists"),
    ],
)
def test_a_wrong_command_line_has_a_code_too(capsys, args, seen):
    assert cli.run(args) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(seen)


PROBLEM = {"code": "LAB-001", "where": "x.yaml:3", "seen": "no", "expected": "", "hint": "Say how many."}


@pytest.mark.parametrize(
    "options", [["-o", "json"], ["-ojson"], ["--output", "json"], ["--output=json"], ["-o", "text", "-o", "json"]]
)
def test_problems_for_programs_are_json_objects_line_by_line(monkeypatch, capsys, options):
    other = {**PROBLEM, "code": "CONF-002", "expected": "a network", "hint": ""}
    command(monkeypatch, ConfigError(Problem(**PROBLEM), Problem(**other)))
    assert cli.run(["fails", *options]) == 2
    out, err = capsys.readouterr()
    assert ([json.loads(line) for line in err.splitlines()], out) == ([PROBLEM, other], "")


@pytest.mark.parametrize(
    "options, people",
    [
        ("", True),
        ("-o text", True),
        ("--output=wide", True),
        ("-o json -o text", True),
        ("-- -o junit", True),
        ("-o junit", False),
        ("-ojunit", False),
        ("--output sarif", False),
        ("--output=yaml", False),
        ("-o text -o json", False),
    ],
)
def test_in_a_pod_people_read_what_works_outside_and_programs_what_they_always_read(
    monkeypatch, capsys, options, people
):
    monkeypatch.setenv("POD_NAME", "x")
    monkeypatch.setenv("POD_NAMESPACE", "nets")
    problem = Problem(code="CONF-001", where="net-conf.json", seen="says 'weft plan'", hint="'weft plan' shows it")

    @click.command()
    @click.option("-o", "--output")
    @click.argument("rest", nargs=-1, type=click.UNPROCESSED)
    def says(**_: object) -> None:
        click.echo(problem)

    monkeypatch.setitem(cli.weft.commands, "says", says)
    contextvars.copy_context().run(cli.run, ["says", *options.split()])
    typed = "kubectl -n nets exec x -- weft plan" if people else "weft plan"
    assert capsys.readouterr().out == f"CONF-001 net-conf.json: says 'weft plan'. '{typed}' shows it\n"


def test_in_a_pod_what_goes_wrong_is_said_to_people_as_they_type_it_and_to_programs_as_ever(monkeypatch, capsys):
    monkeypatch.setenv("POD_NAME", "x")
    monkeypatch.setenv("POD_NAMESPACE", "nets")
    problem = Problem(code="CONF-001", where="net-conf.json", seen="says 'weft plan'", hint="'weft plan' shows it")
    command(monkeypatch, ConfigError(problem))
    contextvars.copy_context().run(cli.run, ["fails"])
    assert capsys.readouterr().err == (
        "weft: CONF-001 net-conf.json: says 'weft plan'. 'kubectl -n nets exec x -- weft plan' shows it\n"
    )
    contextvars.copy_context().run(cli.run, ["fails", "-o", "json"])
    assert json.loads(capsys.readouterr().err) == msgspec.to_builtins(problem)


@pytest.mark.parametrize("options", [[], ["-o", "text"], ["--", "-o", "json"]])
def test_problems_for_people_are_text(monkeypatch, capsys, options):
    command(monkeypatch, ConfigError(Problem(**PROBLEM)))
    cli.run(["fails", *options])
    assert capsys.readouterr().err.startswith("weft: LAB-001 x.yaml:3: no. Say how many.")


@pytest.mark.parametrize(
    "args, code, status",
    [(["lab", "upp"], "FLAG-001", 2), (["version", "--bogus"], "FLAG-001", 2), (["lab", "run", "x"], "FLAG-001", 2)],
)
def test_a_wrong_command_line_is_json_too(capsys, args, code, status):
    assert cli.run([*args, "-o", "json"]) == status
    problem = json.loads(capsys.readouterr().err)
    assert problem.keys() == PROBLEM.keys()
    assert (problem["code"], "--help" in problem["hint"]) == (code, True)


@pytest.mark.parametrize(
    "error, said",
    [
        (PermissionError(13, "Permission denied", "/x"), "weft: HOST-002 /x: Permission denied. Try it as root."),
        (OSError(28, "No space left on device"), "weft: HOST-002 this machine: No space left on device"),
    ],
)
def test_what_the_machine_refuses_is_no_traceback(monkeypatch, capsys, error, said):
    command(monkeypatch, error)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert cli.run(["fails"]) == 1
    assert capsys.readouterr().err == f"{said}\n"


def test_root_without_capabilities_is_not_told_to_be_root(monkeypatch, capsys):
    command(monkeypatch, PermissionError(13, "Permission denied", "/x"))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert cli.run(["fails"]) == 1
    assert "/x: Permission denied. Root was refused: a container needs the capabilities" in capsys.readouterr().err


def test_examples_in_help_keep_their_lines(capsys):
    assert cli.run(["plan", "--help"]) == 0
    assert "\n    weft plan -- --iface=eth1 --ip-masq\n" in capsys.readouterr().out


def test_what_is_unavailable_now_is_a_failure_and_not_wrong_input(monkeypatch):
    command(monkeypatch, Unavailable(Problem(code="STORE-001", where="etcd", seen="no answer")))
    assert cli.run(["fails"]) == 1


def test_ctrl_c_ends_quietly(monkeypatch, capsys):
    command(monkeypatch, KeyboardInterrupt())
    assert cli.run(["fails"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_the_exit_code_of_a_command_is_the_exit_code(monkeypatch):
    command(monkeypatch, click.exceptions.Exit(7))
    assert cli.run(["fails"]) == 7


def test_the_console_script_answers():
    assert (
        subprocess.run([WEFT, "--version"], capture_output=True, text=True, check=True).stdout
        == f"weft {__version__}\n"
    )


INTERRUPTED_AT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.argv = ["{program}", "--version"]
from weft import console
console.{program}()
"""


@pytest.mark.parametrize(
    "program, module",
    [("weft", "click"), ("weft", "weft.cli"), ("weftd", "weft.daemon.main"), ("weftd", "weft.daemon.node")],
)
def test_an_interrupt_while_a_program_is_loaded_is_a_quiet_end(program, module):
    code = INTERRUPTED_AT.format(program=program, module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    # Whoever has the signal ignored keeps that.
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + code
    done = subprocess.run([sys.executable, "-c", ignoring], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert __version__ in done.stdout + done.stderr


def test_a_run_that_ignores_signals_hands_on_the_usual_ones():
    ignoring = 'trap "" INT HUP QUIT TERM; exec "$@"'
    mask = "print(open('/proc/self/status').read().partition('SigIgn:')[2].split()[0])"
    code = "import subprocess, sys; from tests import conftest; conftest.hand_on_the_usual_signals(); "
    code += f"subprocess.run([sys.executable, '-Sc', {mask!r}])"
    command = ["sh", "-c", ignoring, "sh", sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    ignored = int(done.stdout, 16)
    assert [n for n in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM) if ignored >> n - 1 & 1] == []


def test_an_interrupt_beside_any_command_is_a_quiet_end(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run", interrupted)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "")


def test_the_programs_begin_where_nothing_is_imported_yet():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"weft": "weft.console:weft", "weftd": "weft.console:weftd"}
