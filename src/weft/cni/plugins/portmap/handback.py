"""Port maps of running pods, rewritten to upstream's rules, so that its plugin can remove them (settled.md §8)."""

from weft.cni.host import programs
from weft.cni.plugins.portmap import forms, maps
from weft.cni.plugins.portmap.elements import TABLE
from weft.cni.plugins.portmap.forms import FORMS, MAPS
from weft.cni.sdk.host import Host
from weft.model.attachment import Attachment
from weft.wire.cni import failure


def hand_back(host: Host) -> list[Attachment]:
    """Rewrite what is in our maps, and remove our table once it is empty. Returns the attachments, in no order.

    A port works all the time: upstream's rules come before ours go. iptables' form is taken where iptables works.
    What is in upstream's form already is only forgotten. May be repeated. Raises `CniError`, with what has been
    rewritten until then done.
    """
    rewritten = []
    for attachment, kept in forms.everything(host):
        if kept is not None and kept.form == MAPS:
            FORMS[programs.choose()].add(host, attachment, kept.wanted)
            FORMS[MAPS].remove(host, attachment, kept.wanted)
            rewritten.append(attachment)
        forms.forget(host, attachment)
    _remove_table(host)
    return rewritten


def _remove_table(host: Host) -> None:
    try:
        nf = host.netfilter
    except OSError:
        return  # no nf_tables, no table
    left = maps.listed(nf)
    if left:
        whose = ", ".join(sorted({element.comment for element in left}))
        hint = "the runtime's GC removes those of pods that are gone"
        raise failure(f"table {TABLE} has ports of which nothing else is known: {whose}", hint)
    if nf.sets(TABLE):
        programs.run_nft([f"delete table {TABLE}"])
