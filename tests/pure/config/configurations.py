"""Network configurations of a few words, read."""

import pytest

from weft.config.netconf import NetConf, Pool, parse_netconf
from weft.desired.backends import BACKENDS
from weft.desired.backends.vxlan import VxlanOptions
from weft.model.errors import ConfigError, Problem

VXLAN = '"Backend": {"Type": "vxlan"}'


def conf(members: str, backend: str = VXLAN, **how: bool) -> NetConf:
    return parse_netconf("{" + ", ".join(filter(None, (members, backend))) + "}", backends=BACKENDS, **how)


def problems(members: str, backend: str = VXLAN, **how: bool) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        conf(members, backend, **how)
    assert all(problem.code == "CONF-002" for problem in caught.value.problems)
    return list(caught.value.problems)


def vxlan(options: str) -> VxlanOptions:
    parsed = conf('"Network": "10.3.0.0/16"', f'"Backend": {{"Type": "vxlan", {options}}}').options
    assert isinstance(parsed, VxlanOptions)
    return parsed


def count(pool: Pool) -> int:
    return (int(pool.last) - int(pool.first)) // (1 << (pool.network.max_prefixlen - pool.subnet_len)) + 1
