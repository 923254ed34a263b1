"""Plugins that are called again, late or in any order: how, and what is left."""

from tests.support.weftd import eventually
from weft.cni.host.host import RETIRED

NETWORK = "net"
PLUGINS = ("bridge", "ptp")


def config(site, plugin="bridge", **more):
    ipam = {"type": "host-local", "dataDir": str(site.store), "ranges": [[{"subnet": "10.1.2.0/24"}]]}
    own = {"bridge": "cni0", "isDefaultGateway": True} if plugin == "bridge" else {}
    return {"cniVersion": "1.1.0", "name": NETWORK, "type": plugin, "ipMasq": True, **own, "ipam": ipam, **more}


def config_of(site, plugin):
    """A network of this plugin; of flannel's its subnet is in a file, which is written."""
    if plugin != "flannel":
        return config(site, plugin)
    subnet = site.directory / "subnet.env"
    subnet.write_text(
        "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.2.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
    )
    own = {"subnetFile": str(subnet), "dataDir": str(site.directory / "flannel"), "ipam": {"dataDir": str(site.store)}}
    return {"cniVersion": "1.0.0", "name": NETWORK, "type": "flannel", **own}


def ports(number):
    return {"portMappings": [{"hostPort": number, "containerPort": 80, "protocol": "tcp"}]}


def chain(site, plugin):
    """A network's plugins as a runtime calls them."""
    base = {"cniVersion": "1.1.0", "name": NETWORK}
    return [
        config(site, plugin),
        {**base, "type": "tuning", "dataDir": str(site.directory / "tuning"), "mtu": 1400},
        {**base, "type": "portmap"},
    ]


def add(site, plugin, pod, id_, port=8080):
    """ADD of the whole chain; stops at the first plugin that fails."""
    previous = {}
    for conf in chain(site, plugin):
        more = {"runtimeConfig": ports(port)} if conf["type"] == "portmap" else {}
        answer = site.call(conf["type"], "ADD", {**conf, **previous, **more}, container=pod, id_=id_)
        if answer.exit:
            return answer
        previous = {"prevResult": answer.json}
    return answer


def delete(site, plugin, id_, *, pod=None, netns=None, result=None, extra=None):
    for conf in reversed(chain(site, plugin)):
        more = {"prevResult": result} if result else {}
        answer = site.call(conf["type"], "DEL", {**conf, **more}, container=pod, netns=netns, id_=id_, extra=extra)
        assert answer.exit == 0, answer


def check(site, plugin, pod, id_, *, result, port):
    for conf in chain(site, plugin):
        more = {"prevResult": result} | ({"runtimeConfig": ports(port)} if conf["type"] == "portmap" else {})
        answer = site.call(conf["type"], "CHECK", {**conf, **more}, container=pod, id_=id_)
        assert answer.exit == 0, answer


def seen(site):
    """Everything that attachments have on the host: addresses, records, links and rules."""
    rules = site.host.run("nft list ruleset")
    return {
        "addresses": site.reservations(NETWORK),
        "records": {str(path): path.read_bytes() for path in (site.directory / "state").rglob("*.json")},
        "backups": {path.name for path in (site.directory / "tuning").glob("*")},
        "links": {(link.name, link.alias, link.up) for link in site.host.rtnl.links()},
        "rules": sorted(line.split(" # handle")[0] for line in rules.splitlines() if "10.1.2." in line),
    }


def has_nothing(site):
    found = seen(site)
    links = {name for name, alias, _ in found["links"] if alias != RETIRED} - {"lo", "cni0"}
    return not (found["addresses"] or found["records"] or found["backups"] or links or found["rules"])


def lose(site, pod):
    """Have a namespace go as in a reboot or by `ip netns del`, and wait until the kernel has taken it down."""
    before = len(site.host.rtnl.links())
    pod.close()
    eventually(lambda: len(site.host.rtnl.links()) < before)
