"""bandwidth's configuration: where limits come from, and which are refused."""

import pytest

from weft.cni.plugins import bandwidth
from weft.model.kernel.reported import Limit, Limits
from weft.wire.cni import CniError

INGRESS = {"ingressRate": 16, "ingressBurst": 8}
BURST = 4 * 1024**3 * 8
LIMITS = "(expected an integer from 0 to 18446744073709551615)"
NO_NUMBER = "failed to parse network configuration: cannot use {} as {} " + LIMITS


def test_limits_come_from_the_configuration_or_else_from_the_runtime():
    ingress = Limits(ingress=Limit(rate=16, burst=8))
    assert bandwidth.parse(INGRESS) == ingress
    assert bandwidth.parse({"runtimeConfig": {"bandWidth": INGRESS}}) == ingress
    both = {"egressRate": 80, "egressBurst": 8, "runtimeConfig": {"bandwidth": INGRESS}}
    assert bandwidth.parse(both) == Limits(egress=Limit(rate=80, burst=8))
    assert bandwidth.parse({"egressRate": 0, "runtimeConfig": {"bandwidth": INGRESS}}) == Limits()
    assert not Limits()
    assert ingress
    assert Limits(egress=Limit(rate=8, burst=8))


@pytest.mark.spec("cni.md W4")
@pytest.mark.parametrize("direction", ["ingress", "egress"])
@pytest.mark.parametrize(
    "rate, burst, message",
    [
        (8, BURST - 16, None),
        (0, 0, None),
        (8, BURST, "burst cannot be more than 4GB"),
        (0, 1, "if burst is set, rate must also be set"),
        (1, 0, "if rate is set, burst must also be set"),
    ],
)
def test_rates_and_bursts(direction, rate, burst, message):
    config = {f"{direction}Rate": rate, f"{direction}Burst": burst}
    if message is None:
        bandwidth.parse(config)
        return
    with pytest.raises(CniError) as caught:
        bandwidth.parse(config)
    assert caught.value.msg == message


@pytest.mark.parametrize(
    "config, message",
    [
        ({"ingressRate": 7, "ingressBurst": 8}, "ingressRate of 7 bits a second is less than one byte"),
        (
            {"ingressRate": "x"},
            "failed to parse network configuration: cannot use a string as ingressRate (expected an integer)",
        ),
        (
            {"egressRate": 8, "egressBurst": -1},
            NO_NUMBER.format(-1, "egressBurst"),
        ),
        (
            {"egressRate": 1 << 64, "egressBurst": 1},
            NO_NUMBER.format(1 << 64, "egressRate"),
        ),
        (
            {"runtimeConfig": {"bandwidth": 5}},
            "failed to parse network configuration: cannot use an integer as bandwidth (expected an object)",
        ),
    ],
)
def test_what_is_refused(config, message):
    with pytest.raises(CniError) as caught:
        bandwidth.parse(config)
    assert caught.value.msg == message
