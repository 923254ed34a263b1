"""host-local, called as a program: its configuration, its verbs, and what it leaves."""

import json

RANGES = {"ranges": [[{"subnet": "192.168.1.0/29"}]]}


def request(site, ipam=RANGES, *, version="1.0.0", name="net", **config):
    ipam = {"type": "host-local", "dataDir": str(site.store), **ipam}
    return {"cniVersion": version, "name": name, "type": "host-local", "ipam": ipam, **config}


def add(site, conf, id_="c1", **more):
    return site.call("host-local", "ADD", conf, id_=id_, netns="/some/where", **more)


def delete(site, conf, id_="c1", **more):
    return site.call("host-local", "DEL", conf, id_=id_, netns="", **more)


def check(site, conf, id_="c1", **more):
    return site.call("host-local", "CHECK", conf, id_=id_, netns="/some/where", **more)


def gc(site, conf):
    return site.call("host-local", "GC", conf, id_="", ifname="", netns="")


def status(site, conf):
    return site.call("host-local", "STATUS", conf, id_="", ifname="", netns="")


class Beside:
    """The plugin's files; those who derive from it change some calls."""

    def __init__(self, files):
        self._files = files

    def __getattr__(self, name):
        return getattr(self._files, name)


def put_before(site, kind):
    """Have the plugin see its files through a class."""

    def wrap(host):
        host.files = kind(host.files)
        return host

    site.wrap = wrap


def records(site):
    return [json.loads(path.read_text()) for path in (site.directory / "state" / "ipam").glob("*.json")]


def owners(site):
    return [(known["network"], known["container"], known["ifname"]) for known in records(site)]


def theirs(site, command, conf, id_="c1"):
    return site.via("debian")("host-local", command, conf, id_=id_, netns="/some/where")


def got(answer):
    return [ip["address"] for ip in answer.result["ips"]]
