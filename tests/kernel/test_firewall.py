"""Our rules in real kernels: laid, listed by the real tools, taken away again, among rules of others."""

import asyncio
import errno
import os
from pathlib import Path
from struct import pack

import pytest

from tests.kernel.netthread import inside, run
from tests.support.firewall import matches, wanted
from weft.kernel.netfilter.firewall import Firewall
from weft.kernel.netfilter.iptables import legacy_tables
from weft.kernel.rtnetlink.netlink import Message, NetlinkSocket
from weft.kernel.tools import SEARCH_PATH, Tools
from weft.model.errors import Failure
from weft.plan.diff import Delete, Put, diff

KINDS = ["nft", "iptables", "iptables-legacy"]

# What another program laid, in nat and filter, before ours and after.
FOREIGN = """\
*nat
:KUBE-POSTROUTING - [0:0]
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
COMMIT
*filter
:KUBE-FORWARD - [0:0]
-A FORWARD -m comment --comment "looks like -j FLANNEL-FWD " -j KUBE-FORWARD
COMMIT
"""

# What upstream leaves, by its texts (flannel.md §8.1, 8.2, 8.5).
UPSTREAM_NFT = """\
add table ip flannel-ipv4 { comment "rules for flannel-ipv4"; }
add chain ip flannel-ipv4 postrtg { type nat hook postrouting priority srcnat; policy accept; }
add rule ip flannel-ipv4 postrtg meta mark 0x4000 return
add rule ip flannel-ipv4 postrtg ip saddr != 10.42.1.0/24 ip daddr 10.42.0.0/16 return
add table ip6 flannel-ipv6 { comment "rules for flannel-ipv6"; }
"""


@pytest.fixture
def legacy(tmp_path):
    """A host whose `iptables` is the legacy one: a search path."""
    for name in ("iptables", "ip6tables"):
        for part in ("", "-save", "-restore"):
            target = Path(f"/usr/sbin/{name}-legacy{part}")
            assert target.exists(), "Debian's iptables package brings both variants"
            (tmp_path / f"{name}{part}").symlink_to(target)
    return f"{tmp_path}:{SEARCH_PATH}"


@pytest.fixture(params=KINDS)
def host(request, legacy):
    """A kind of rules, and the firewall of a host that uses it."""
    search = legacy if request.param == "iptables-legacy" else SEARCH_PATH
    return request.param.removesuffix("-legacy"), Firewall(Tools(search=search)), request.param


def in_namespace(work):
    """Run a coroutine function in a namespace of its own."""
    return inside(lambda: asyncio.run(work()))


def saved(program="iptables"):
    """Return the lines of all rules and chains, without counters and remarks."""
    lines = [line for table in ("nat", "filter") for line in run(f"{program}-save", "-t", table).splitlines()]
    return [line.split(" [")[0] for line in lines if not line.startswith("#")]


def generation():
    """Return the number of the last change to nf_tables in this namespace."""
    sock = NetlinkSocket.open(12)
    try:
        answer = sock.ask(Message(10 << 8 | 16, 0, pack("=BBH", 0, 0, 0)))
    finally:
        sock.close()
    return int.from_bytes(answer[8:12], "big")


def program(variant, family=4):
    name = {4: "iptables", 6: "ip6tables"}[family]
    return f"{name}-legacy" if variant == "iptables-legacy" else name


@pytest.mark.spec("flannel.md §8.5/tables")
@pytest.mark.spec("flannel.md 11.11/postrtg", "flannel.md 11.11/forward", cases="4-*")
@pytest.mark.spec("flannel.md 11.11/v6", cases="6-*")
@pytest.mark.parametrize("family, word, name", [(4, "ip", "flannel-ipv4"), (6, "ip6", "flannel-ipv6")])
def test_nft_lists_what_we_laid(family, word, name):
    """Better than upstream in rules 1 and 4 (Q-52, Q-51); all else is its golden listing."""
    cluster, pods, group = {
        4: ("10.42.0.0/16", "10.42.1.0/24", "224.0.0.0/4"),
        6: ("fd00:10:244::/56", "fd00:10:244:1::/64", "ff00::/8"),
    }[family]

    async def work():
        assert await Firewall(Tools()).apply(Put(wanted("nft", family))) is None
        assert run("nft", "list", "chain", word, name, "postrtg") == (
            f"table {word} {name} {{\n"
            "\tchain postrtg {\n"
            '\t\tcomment "chain to manage traffic masquerading by flannel"\n'
            "\t\ttype nat hook postrouting priority srcnat; policy accept;\n"
            "\t\tmeta mark & 0x00004000 == 0x00004000 return\n"
            f"\t\t{word} saddr {pods} {word} daddr {cluster} return\n"
            f"\t\t{word} saddr {cluster} {word} daddr {pods} return\n"
            f"\t\t{word} saddr != {cluster} {word} daddr {pods} return\n"
            f"\t\t{word} saddr {cluster} {word} daddr != {group} masquerade fully-random\n"
            f"\t\t{word} saddr != {cluster} {word} daddr {cluster} masquerade fully-random\n"
            "\t}\n}\n"
        )
        assert run("nft", "list", "chain", word, name, "forward") == (
            f"table {word} {name} {{\n"
            "\tchain forward {\n"
            '\t\tcomment "chain to accept flannel traffic"\n'
            "\t\ttype filter hook forward priority filter; policy accept;\n"
            f"\t\t{word} saddr {cluster} accept\n"
            f"\t\t{word} daddr {cluster} accept\n"
            "\t}\n}\n"
        )
        other = {"flannel-ipv4", "flannel-ipv6"} - {name}
        assert not [line for line in run("nft", "list", "tables").splitlines() if other & set(line.split())]

    in_namespace(work)


@pytest.mark.spec("flannel.md 11.10/golden")
@pytest.mark.spec("flannel.md §8.2/rules", cases=("4-*", "6-*"))
@pytest.mark.parametrize("variant", ["iptables", "iptables-legacy"])
@pytest.mark.parametrize("family", [4, 6])
def test_iptables_lists_what_we_laid_behind_the_rules_of_others(variant, family, legacy):
    firewall = Firewall(Tools(search=legacy if variant == "iptables-legacy" else SEARCH_PATH))
    want = wanted("iptables", family)
    nat, forward = want.chains

    async def work():
        name = program(variant, family)
        if family == 4:
            run(f"{name}-restore", "--noflush", stdin=FOREIGN)
        assert await firewall.apply(Put(want)) is None
        assert run(name, "-t", "nat", "-S", "FLANNEL-POSTRTG").splitlines() == [
            "-N FLANNEL-POSTRTG",
            *(f"-A FLANNEL-POSTRTG {rule}" for rule in nat.rules),
        ]
        assert run(name, "-S", "FLANNEL-FWD").splitlines() == [
            "-N FLANNEL-FWD",
            *(f"-A FLANNEL-FWD {rule}" for rule in forward.rules),
        ]
        assert run(name, "-S", "FORWARD").splitlines()[0] == "-P FORWARD ACCEPT"
        assert run(name, "-S", "FORWARD").splitlines()[-1] == f"-A FORWARD {forward.jump}"
        assert run(name, "-t", "nat", "-S", "POSTROUTING").splitlines()[-1] == f"-A POSTROUTING {nat.jump}"

    in_namespace(work)


@pytest.mark.spec("flannel.md 11.10/ensure", "flannel.md 11.10/bootstrap", cases="*iptables*")
@pytest.mark.spec("flannel.md §8.5/one-transaction", cases="*nft*")
@pytest.mark.parametrize("family", [4, 6])
def test_nothing_is_written_when_all_is_as_wanted(host, family):
    kind, firewall, _ = host

    async def work():
        want = wanted(kind, family)
        assert await firewall.apply(Put(want)) is None
        before = generation()
        assert await matches(firewall, want)
        assert (await firewall.present()) == {want.key: want}
        assert await firewall.apply(Put(want)) is None
        assert generation() == before

    in_namespace(work)


@pytest.mark.spec("flannel.md §8.3/1-recycle", "flannel.md §8.3/4-resync", cases="iptables*")
def test_from_each_rule_set_to_each_other(host):
    kind, firewall, _ = host
    sets = [
        wanted(kind, 4),
        wanted(kind, 4, random_fully=False),
        wanted(kind, 4, ip_masq=False),
        wanted(kind, 4, forward_rules=False),
    ]

    async def work():
        for start in sets:
            for end in (*sets, None):
                await firewall.apply(Put(start))
                assert await firewall.apply(Put(end) if end else Delete(start)) is None
                present = await firewall.present()
                assert present == ({end.key: end} if end else {})

    in_namespace(work)


@pytest.mark.spec("flannel.md §8.4/iptables-cleaned")
@pytest.mark.parametrize("variant", ["iptables", "iptables-legacy"])
def test_rules_of_others_stay_as_they_are(variant, legacy):
    firewall = Firewall(Tools(search=legacy if variant == "iptables-legacy" else SEARCH_PATH))
    want = wanted("iptables", 4)

    async def work():
        name = program(variant)
        run(f"{name}-restore", "--noflush", stdin=FOREIGN)
        before = saved(name)
        await firewall.apply(Put(want))
        run(name, "-A", "FORWARD", "-j", "DROP")
        run(name, "-A", "KUBE-FORWARD", "-j", "FLANNEL-FWD")
        both = saved(name)
        assert await firewall.apply(Put(want)) is None
        assert saved(name) == both
        assert [line for line in both if "FLANNEL" not in line or "looks like" in line] == [
            *before[:-1],
            "-A FORWARD -j DROP",
            "COMMIT",
        ]
        run(name, "-D", "FORWARD", "-j", "DROP")
        assert await firewall.apply(Delete(want)) is None
        assert saved(name) == before

    in_namespace(work)


@pytest.mark.spec("flannel.md §8.3/4-resync")
@pytest.mark.parametrize("variant", ["iptables", "iptables-legacy"])
@pytest.mark.parametrize(
    "damage",
    [
        "-t nat -F FLANNEL-POSTRTG",
        "-t nat -D FLANNEL-POSTRTG 3",
        "-t nat -A FLANNEL-POSTRTG -j ACCEPT",
        "-t nat -I FLANNEL-POSTRTG 5 -j RETURN",
        "-t nat -D POSTROUTING 1",
        "-t nat -A POSTROUTING -m comment --comment flanneld\\smasq -j FLANNEL-POSTRTG",
        "-A FORWARD -j FLANNEL-FWD",
        "-F",
        "-t nat -F",
    ],
)
def test_all_damage_is_seen_and_made_good(variant, damage, legacy):
    """Better than upstream: order and duplicates count, and one look is two programs, not twenty."""
    firewall = Firewall(Tools(search=legacy if variant == "iptables-legacy" else SEARCH_PATH))
    want = wanted("iptables", 4)

    async def work():
        name = program(variant)
        await firewall.apply(Put(want))
        right = saved(name)
        run(name, *(word.replace("\\s", " ") for word in damage.split()))
        assert not await matches(firewall, want)
        assert await firewall.apply(Put(want)) is None
        assert await matches(firewall, want)
        assert saved(name) == right

    in_namespace(work)


@pytest.mark.spec("flannel.md §8.5/resync")
@pytest.mark.parametrize(
    "damage",
    [
        "flush ruleset",
        "delete table ip flannel-ipv4",
        "flush chain ip flannel-ipv4 postrtg",
        "delete chain ip flannel-ipv4 forward",
        "insert rule ip flannel-ipv4 postrtg accept",
        "add rule ip flannel-ipv4 forward drop",
        "add chain ip flannel-ipv4 mine",
        "add set ip flannel-ipv4 mine { type ipv4_addr; }",
        "add chain ip flannel-ipv4 forward { policy drop; }",
        "delete chain ip flannel-ipv4 postrtg; add chain ip flannel-ipv4 postrtg { type nat hook input priority 7; }",
    ],
)
def test_all_damage_to_our_nft_table_is_seen_and_made_good(damage):
    firewall = Firewall(Tools())
    want = wanted("nft", 4)

    async def work():
        await firewall.apply(Put(want))
        right = run("nft", "list", "table", "ip", "flannel-ipv4")
        run("nft", damage)
        assert not await matches(firewall, want)
        assert await firewall.apply(Put(want)) is None
        assert await matches(firewall, want)
        now = run("nft", "list", "table", "ip", "flannel-ipv4")
        assert sorted(now.splitlines()) == sorted(right.splitlines()), "only the order of chains may differ"

    in_namespace(work)


@pytest.mark.spec("flannel.md §8.5/clean-up", cases="iptables")
@pytest.mark.spec("flannel.md §8.4/iptables-cleaned", cases="nft")
@pytest.mark.parametrize("kind", ["nft", "iptables"])
def test_what_the_other_kind_left_goes_upstreams_too(kind):
    """Better than upstream: both jumps and the chain in filter go as well (Q-50)."""
    firewall = Firewall(Tools())
    want = wanted(kind, 4)

    async def work():
        run("nft", "-f", "-", stdin=UPSTREAM_NFT)
        for family in (4, 6):
            await firewall.apply(Put(wanted("iptables", family)))  # upstream's, word for word
        run("iptables-legacy", "-t", "nat", "-N", "FLANNEL-POSTRTG")
        run("iptables-legacy", "-t", "nat", "-A", "POSTROUTING", "-j", "FLANNEL-POSTRTG")
        present = await firewall.present()
        assert set(present) == {
            ("ruleset", "nft", 4),
            ("ruleset", "nft", 6),
            ("ruleset", "iptables", 4),
            ("ruleset", "iptables", 6),
            ("ruleset", "iptables-legacy", 4),
        }
        for step in diff({want.key: want}, present):
            assert await firewall.apply(step) is None
        assert await firewall.present() == {want.key: want}
        assert "FLANNEL" not in run("iptables-legacy-save") + run("ip6tables-save")
        assert ("FLANNEL" in run("iptables-save")) == (kind == "iptables")
        assert ("flannel" in run("nft", "list", "tables")) == (kind == "nft")

    in_namespace(work)


def test_what_the_unused_variant_left_goes_on_a_host_with_legacy_iptables(legacy):
    want = wanted("iptables", 4)

    async def work():
        await Firewall(Tools()).apply(Put(want))
        host = Firewall(Tools(search=legacy))
        present = await host.present()
        assert set(present) == {("ruleset", "iptables-nft", 4)}
        for step in diff({want.key: want}, present):
            assert await host.apply(step) is None
        assert await host.present() == {want.key: want}
        assert "FLANNEL" not in run("iptables-nft-save")
        assert "FLANNEL" in run("iptables-legacy-save")

    in_namespace(work)


def test_legacy_tables_that_no_program_shows_are_named_and_no_others(tmp_path):
    blind = Firewall(Tools(search=str(tmp_path)))

    async def work():
        assert await blind.unseen([]) == []
        run("ip6tables-legacy", "-t", "nat", "-N", "FLANNEL-POSTRTG")
        assert [problem.where for problem in await blind.unseen([])] == ["ip6tables-legacy"]
        assert await Firewall(Tools()).unseen([]) == []

    in_namespace(work)


def test_looking_makes_no_legacy_table(legacy):
    async def work():
        for search in (legacy, SEARCH_PATH):
            assert await Firewall(Tools(search=search)).present() == {}
        assert legacy_tables(4) == legacy_tables(6) == frozenset()
        assert run("nft", "list", "tables") == ""

    in_namespace(work)


def test_upstreams_own_table_becomes_ours_in_one_change():
    """The comment of a table cannot be changed, so the table is made anew, within one transaction."""

    async def work():
        run("nft", "-f", "-", stdin=UPSTREAM_NFT)
        before = generation()
        assert await Firewall(Tools()).apply(Put(wanted("nft", 4))) is None
        assert generation() == before + 1
        assert "weft: rules for flannel-ipv4" in run("nft", "list", "table", "ip", "flannel-ipv4")

    in_namespace(work)


@pytest.mark.parametrize(
    "kind, program, before, meanwhile",
    [
        ("nft", "nft", "nft flush chain ip flannel-ipv4 postrtg", "nft delete table ip flannel-ipv4"),
        (
            "iptables",
            "iptables-restore",
            "iptables -t nat -A POSTROUTING -j FLANNEL-POSTRTG",
            "iptables -t nat -F POSTROUTING",
        ),
    ],
    ids=["nft", "iptables"],
)
def test_what_changes_between_look_and_change_is_looked_at_once_more(tmp_path, kind, program, before, meanwhile):
    """The program refuses what rests on rules that are gone by then."""
    marker = tmp_path / "done"
    script = f"""#!/bin/sh
        case "{program} $1" in
            "nft -f" | "iptables-restore "*) mkdir {marker} 2>/dev/null && {meanwhile} ;;
        esac
        exec /usr/sbin/{program} "$@"
    """
    (tmp_path / program).write_text(script, "ascii")
    (tmp_path / program).chmod(0o755)

    async def work():
        want = wanted(kind, 4)
        assert await Firewall(Tools()).apply(Put(want)) is None
        run(*before.split())
        firewall = Firewall(Tools(search=f"{tmp_path}:{SEARCH_PATH}"))
        assert await firewall.apply(Put(want)) is None
        assert marker.exists()
        assert await matches(firewall, want)

    in_namespace(work)


@pytest.mark.spec("flannel.md §8.3/5-binary-missing")
def test_without_a_program_its_rules_fail_with_its_name_and_all_else_works(tmp_path):
    """Better than upstream: nft needs no iptables (Q-6), and a program that is installed later is found."""
    (tmp_path / "nft").symlink_to("/usr/sbin/nft")
    firewall = Firewall(Tools(search=str(tmp_path)))

    async def work():
        assert await firewall.apply(Put(wanted("nft", 4))) is None
        assert set(await firewall.present()) == {("ruleset", "nft", 4)}
        step = Put(wanted("iptables", 4))
        failure = await firewall.apply(step)
        assert isinstance(failure, Failure)
        assert failure.errno == errno.ENOENT
        assert "HOST-002 iptables" in failure.message
        assert not await matches(firewall, wanted("iptables", 4))
        tooling = await firewall.tooling("iptables", {4, 6})
        assert [(problem.code, problem.where) for problem in tooling.problems] == [
            ("HOST-002", "iptables"),
            ("HOST-002", "ip6tables"),
        ]
        for part in ("", "-save", "-restore"):
            (tmp_path / f"iptables{part}").symlink_to(f"/usr/sbin/iptables{part}")
        assert await firewall.apply(step) is None
        assert [p.where for p in (await firewall.tooling("iptables", {4, 6})).problems] == ["ip6tables"]

    in_namespace(work)


@pytest.mark.parametrize(
    "script, number, words",
    [
        ("#!/bin/sh\necho the tables are full >&2; exit 1\n", errno.EIO, "the tables are full"),
        ("#!/bin/sh\nexec sleep 600\n", errno.ETIMEDOUT, "no answer within 0.3 s"),
        ("no program\n", errno.ENOEXEC, "Exec format error"),
    ],
)
async def test_a_program_that_refuses_or_hangs_is_a_failure_and_is_gone(tmp_path, script, number, words):
    (tmp_path / "nft").write_text(script, "ascii")
    (tmp_path / "nft").chmod(0o755)
    tools = Tools(search=str(tmp_path), timeout=0.3)
    failure = await Firewall(tools).apply(Put(wanted("nft", 4)))
    assert failure is not None
    assert (failure.errno, words in failure.message) == (number, True)
    assert tools.own._running == {os.getpid()}


async def test_a_cancelled_change_leaves_no_program_behind(tmp_path):
    (tmp_path / "nft").write_text("#!/bin/sh\nexec sleep 600\n", "ascii")
    (tmp_path / "nft").chmod(0o755)
    tools = Tools(search=str(tmp_path))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(Firewall(tools).apply(Put(wanted("nft", 4))), 0.3)
    assert tools.own._running == {os.getpid()}
    (pid,) = tools.own._ended
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.spec("flannel.md §8.5/fully-random-probe", "flannel.md §8.1/random-fully")
def test_what_the_programs_can_do(legacy, tmp_path):
    old = tmp_path / "old"
    old.mkdir()
    (old / "nft").write_text('#!/bin/sh\ncase "$1" in --version) echo "nftables v1.0.0 (x)";; esac\n', "ascii")
    (old / "nft").chmod(0o755)
    unable = tmp_path / "unable"
    unable.mkdir()
    (unable / "nft").write_text('#!/bin/sh\n[ "$1" = --version ] && echo "nftables v1.0.1 (x)"\n', "ascii")
    (unable / "nft").chmod(0o755)

    async def work():
        nft = await Firewall(Tools()).tooling("nft", {4, 6})
        assert (nft.random_fully, nft.notices, nft.problems, nft.warnings) == (True, True, (), ())
        assert run("nft", "list", "tables") == "", "a dry run leaves nothing"
        both = await Firewall(Tools()).tooling("iptables", {4, 6})
        assert (both.random_fully, both.notices, both.problems) == (True, True, ())
        old_kind = await Firewall(Tools(search=legacy)).tooling("iptables", {4})
        assert (old_kind.random_fully, old_kind.notices) == (True, False)
        cannot = await Firewall(Tools(search=str(unable))).tooling("nft", {4})
        assert (cannot.random_fully, cannot.problems) == (False, ())
        too_old = await Firewall(Tools(search=str(old))).tooling("nft", {4})
        assert [problem.seen for problem in too_old.problems] == ["version 1.0.0"]

    in_namespace(work)


def test_legacy_tables_beside_nf_tables_are_pointed_out(legacy):
    async def work():
        run("iptables-legacy", "-t", "nat", "-A", "POSTROUTING", "-j", "ACCEPT")
        for kind in ("nft", "iptables"):
            (warning,) = (await Firewall(Tools()).tooling(kind, {4})).warnings
            assert warning.code == "NFT-001"
            assert "nat" in warning.seen
        assert (await Firewall(Tools(search=legacy)).tooling("iptables", {4})).warnings == ()

    in_namespace(work)


@pytest.mark.spec("flannel.md §8.3/2-no-flush-window", "flannel.md §8.3/3-payload", cases="iptables")
@pytest.mark.spec("flannel.md §8.5/one-transaction", cases="nft")
@pytest.mark.parametrize("kind", ["nft", "iptables"])
def test_a_change_is_one_generation_for_each_table(kind):
    async def work():
        firewall = Firewall(Tools())
        await firewall.apply(Put(wanted(kind, 4)))
        before = generation()
        await firewall.apply(Put(wanted(kind, 4, random_fully=False)))
        assert generation() == before + 1
        assert await matches(firewall, wanted(kind, 4, random_fully=False))

    in_namespace(work)
