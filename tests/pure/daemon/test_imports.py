"""What weftd loads before it knows its network: each module more costs every node memory and start."""

import subprocess
import sys

# Each is a part of a back end that a node may never have, or brings much that nothing needs.
LATE = (
    "shutil",
    "rich",
    "starlette",
    "weft.cni",
    "weft.diag",
    "weft.forward.kernelpath",
    "weft.forward.start",
    "weft.kernel.bpf",
    "weft.daemon.backends.ipsec.talk",
    "weft.daemon.backends.wireguard.plane",
    "weft.daemon.backends.wireguard.messages",
)


# Of policies, which are off unless a flag says otherwise.
POLICIES = ("weft.cluster.policysource", "weft.daemon.enforcement", "weft.desired.policy.decide", "weft.wire.policy")


def loaded_by(code: str) -> list[str]:
    """The modules that are loaded after it."""
    whole = f"import sys; {code}; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_store_in_kubernetes_loads_nothing_of_policies_before_it_is_asked_for_them():
    opening = (
        "from pathlib import Path; from random import Random; from weft.daemon import main, node;"
        "from weft.cluster.kube.access import Access; from weft.cluster.kube.store import open_kube;"
        "from weft.config.kubernetes import Surroundings;"
        "s = open_kube(Access(url='https://k'), Surroundings(), prefix='p/', net_conf=Path('/n'), tells=False,"
        " now=lambda: 0.0, chance=Random(1))"
    )
    loaded = loaded_by(opening)
    assert "weft.cluster.kube.follow" in loaded
    assert not [name for name in loaded if name in POLICIES or name.startswith("weft.cluster.kube.polic")]
    assert {"weft.cluster.policysource", "weft.wire.policy"} <= set(loaded_by(f"{opening}; s.policy_source()"))


def test_the_daemon_starts_without_what_a_network_may_not_ask_for():
    loaded = loaded_by("import weft.daemon.main")
    assert "weft.daemon.node" in loaded
    assert not [name for name in LATE if name in loaded]
