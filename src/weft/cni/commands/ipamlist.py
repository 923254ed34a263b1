"""What is reserved on this node, by whom, and what our records prove of it: for `weft ipam`. Changes nothing."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from weft.cni.leaks import sweep
from weft.cni.plugins.hostlocal import conf as ipamconf
from weft.cni.plugins.hostlocal import record as ipamrecord
from weft.cni.plugins.hostlocal import store
from weft.cni.sdk import record
from weft.cni.sdk.host import Host
from weft.desired.leaks import State, Verdict
from weft.model.attachment import Attachment
from weft.model.net import Ip
from weft.model.value import Value

_UNKNOWN = Verdict(state=State.UNKNOWN)


class Reservation(Value):
    """A reserved address. `ifname` is empty in the old format, `container_id` too in a torn file."""

    network: str
    directory: str
    address: Ip
    container_id: str
    ifname: str
    verdict: Verdict

    @property
    def attachment(self) -> Attachment:
        return Attachment(network=self.network, container_id=self.container_id, ifname=self.ifname)


def reservations(host: Host, data_dir: str) -> list[Reservation]:
    """Return every reservation under `data_dir`, by network and address.

    If that is empty: under host-local's own default, and wherever our records lead.
    """
    records = dict(record.everything(host, record.ADDRESSES))
    led = (str(known.get("dataDir")) for known in records.values())
    directories = {data_dir} if data_dir else {ipamconf.DATA_DIR, *led}
    given = {attachment: set(ipamrecord.addresses(known)) for attachment, known in records.items()}
    found = [
        Reservation(
            network=network,
            directory=directory,
            address=ip,
            container_id=attachment.container_id,
            ifname=attachment.ifname,
            # One that another plugin gave to the same attachment is not for our records to judge.
            verdict=sweep.judge(host, attachment) if ip in given.get(attachment, ()) else _UNKNOWN,
        )
        for network, directory in _networks(host, directories)
        for ip, attachment in _owners(host, network, directory)
    ]
    return sorted(found, key=lambda one: (one.network, one.directory, one.address.version, int(one.address)))


def _networks(host: Host, data_dirs: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Give the name and the directory of each network."""
    for data_dir in data_dirs:
        with suppress(FileNotFoundError, NotADirectoryError):
            for name in host.files.list(data_dir):
                yield name, f"{data_dir.rstrip('/')}/{name}"


def _owners(host: Host, network: str, directory: str) -> list[tuple[Ip, Attachment]]:
    try:
        with store.opened(host.files, directory, host.stores) as reserved:
            contents = reserved.all()
    except (FileNotFoundError, NotADirectoryError):  # gone meanwhile, or a stray file
        return []
    found = []
    for ip, content in contents.items():
        container_id, ifname = store.parse_owner(content)
        found.append((ip, Attachment(network=network, container_id=container_id, ifname=ifname)))
    return found
