"""A mesh in the virtual machine, whose kernel has WireGuard."""

import tempfile
from pathlib import Path

from tests.node.meshnode import created
from tests.support.crossing import cross
from tests.support.traffic import nothing_lost, reaches
from tests.support.weftd import eventually
from tests.vm.scenarios_nodes import EVERY, SECONDS, cluster, wg


def check_a_mesh_is_sealed_by_the_kernel() -> None:
    """Both families; all daemons are killed without a lost packet, and the port that somebody changes is put back."""
    with tempfile.TemporaryDirectory() as folder, cluster() as here:
        password, config = Path(folder) / "password", Path(folder) / "net-conf.json"
        password.write_text("a password of words\n")
        password.chmod(0o600)
        config.write_text(
            '{"Network": "10.32.0.0/12", "EnableIPv6": true, "IPv6Network": "fd05::/48", "Backend": {"Type": "mesh"}}'
        )
        one, two = created(here, 1, 2, more=(f"--password-file={password}", f"--net-config-path={config}"))
        cross(one, two)
        [link] = one.netns.json("ip -d -j link show flannel-wg")
        assert link["linkinfo"]["info_kind"] == "wireguard"
        assert "vxlan" not in one.ip("-d link show")
        pod, other = one.pods[0], two.pods[0]
        own = wg(one)[0]
        with nothing_lost(pod, other, other.ips[0], every=EVERY):
            for node in (one, two):
                node.kill()
            for node in (one, two):
                node.start()
        assert wg(one)[0] == own
        one.netns.run("wg set flannel-wg listen-port 7")
        eventually(lambda: wg(one)[0] == own, seconds=SECONDS)
        eventually(lambda: reaches(pod, other.ips[0]), seconds=SECONDS)
