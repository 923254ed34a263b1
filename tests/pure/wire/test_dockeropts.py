"""The file of options for dockerd: what is in it, and what is refused."""

import sys

import pytest

from weft.model.errors import WeftError
from weft.wire import dockeropts
from weft.wire.dockeropts import in_the_way, read, render

ENV = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.74.1/24\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=false\n"
BIP, IPMASQ, MTU = "--bip=10.1.74.1/24", "--ip-masq=true", "--mtu=1472"
EACH = f'DOCKER_OPT_BIP="{BIP}"\nDOCKER_OPT_IPMASQ="{IPMASQ}"\nDOCKER_OPT_MTU="{MTU}"\n'


def made(text=ENV, environ=(), *, ip_masq=True, key="DOCKER_OPTS", individual=True, combined=True) -> str:
    opts = read(text, "subnet.env", dict(environ), ip_masq=ip_masq)
    return render(opts, key, individual=individual, combined=combined)


def refused(text, environ=()) -> list[str]:
    with pytest.raises(WeftError) as error:
        made(text, environ)
    assert error.value.status == 1
    assert {problem.code for problem in error.value.problems} == {"LEASE-001"}
    return [f"{problem.where}: {problem.seen}; {problem.expected}" for problem in error.value.problems]


@pytest.mark.spec("flannel.md 11.13/none", "flannel.md §9/order")
def test_each_option_by_name_and_then_all():
    assert made() == f'{EACH}DOCKER_OPTS=" {BIP} {IPMASQ} {MTU}"\n'


@pytest.mark.spec("flannel.md 11.13/i")
def test_each_option_alone():
    assert made(combined=False) == EACH


@pytest.mark.spec("flannel.md 11.13/c")
def test_all_options_alone():
    assert made(individual=False) == f'DOCKER_OPTS=" {BIP} {IPMASQ} {MTU}"\n'


@pytest.mark.spec("flannel.md 11.13/k")
def test_all_options_in_another_variable():
    assert made(key="CUSTOM_KEY") == f'{EACH}CUSTOM_KEY=" {BIP} {IPMASQ} {MTU}"\n'


@pytest.mark.spec("flannel.md 11.13/m")
def test_without_ip_masq():
    assert made(ip_masq=False) == (f'DOCKER_OPT_BIP="{BIP}"\nDOCKER_OPT_MTU="{MTU}"\nDOCKER_OPTS=" {BIP} {MTU}"\n')
    made(f"{ENV}FLANNEL_IPMASQ=maybe", ip_masq=False)


@pytest.mark.spec("flannel.md 11.13/c-earlier", "flannel.md §9/combined")
def test_what_the_variable_had_comes_first():
    expected = f'DOCKER_OPTS="--debug  {BIP} {IPMASQ} {MTU}"\n'
    assert made(environ={"DOCKER_OPTS": "--debug"}, individual=False) == expected
    assert made(f"{ENV}DOCKER_OPTS=--debug\n", {"DOCKER_OPTS": "--no"}, individual=False) == expected


@pytest.mark.spec("flannel.md 11.13/missing")
def test_without_a_subnet_there_are_no_options():
    assert made("") == 'DOCKER_OPTS=""\n'


@pytest.mark.spec("flannel.md 11.13/maybe")
def test_what_is_neither_true_nor_false_is_refused():
    assert refused("FLANNEL_IPMASQ=maybe\n") == ["subnet.env: FLANNEL_IPMASQ='maybe'; true or false"]


@pytest.mark.spec("flannel.md §9/mapping")
def test_dockerd_masquerades_if_the_daemon_does_not():
    assert made("FLANNEL_IPMASQ=true\n", combined=False) == 'DOCKER_OPT_IPMASQ="--ip-masq=false"\n'
    assert made("FLANNEL_IPMASQ=false\n", combined=False) == 'DOCKER_OPT_IPMASQ="--ip-masq=true"\n'


@pytest.mark.spec("flannel.md §9/flannel-env")
def test_variables_of_the_file_come_before_those_of_the_environment():
    environ = {"FLANNEL_MTU": "1400", "FLANNEL_SUBNET": "10.9.9.1/25"}
    assert made("FLANNEL_MTU=1472", environ, combined=False) == (
        'DOCKER_OPT_BIP="--bip=10.9.9.1/25"\nDOCKER_OPT_MTU="--mtu=1472"\n'
    )


def test_options_of_others_are_there_too_by_name():
    environ = {"DOCKER_OPT_LOG": "-l warn", "DOCKER_OPT_A": "", "DOCKER_OPT_X=1\nY": "1", "MY_DOCKER_OPT_B": "1"}
    assert made("FLANNEL_MTU=1472", environ) == (
        'DOCKER_OPT_A=""\nDOCKER_OPT_LOG="-l warn"\nDOCKER_OPT_MTU="--mtu=1472"\nDOCKER_OPTS="  -l warn --mtu=1472"\n'
    )


def test_no_value_means_something_to_who_reads_the_file():
    assert made("", {"DOCKER_OPTS": '--label "$(id)\\`'}) == 'DOCKER_OPTS="--label \\"\\$(id)\\\\\\` "\n'


@pytest.mark.parametrize("subnet", ["10.1.74.1", "10.1.74.1/33", "10.1.74.1/255.255.255.0", "fd00::1/64", "1;id"])
def test_a_subnet_that_is_none_is_refused(subnet):
    expected = f"subnet.env: FLANNEL_SUBNET={subnet!r}; an IPv4 address and a length, as 10.1.74.1/24"
    assert refused(f"FLANNEL_SUBNET='{subnet}'") == [expected]


def test_all_that_is_wrong_is_said_with_its_place():
    assert refused("FLANNEL_IPMASQ=no\nnothing\n", {"FLANNEL_MTU": "-1", "FLANNEL_SUBNET": "x"}) == [
        "subnet.env: line 2 is not KEY=value; KEY=value",
        "the environment: FLANNEL_SUBNET='x'; an IPv4 address and a length, as 10.1.74.1/24",
        "the environment: FLANNEL_MTU='-1'; a whole number",
        "subnet.env: FLANNEL_IPMASQ='no'; true or false",
    ]


@pytest.mark.parametrize(
    "text, named", [("DOCKER_OPTS", True), ("_a1", True), ("", False), ("1a", False), ("a b", False)]
)
def test_the_name_of_a_variable(text, named):
    assert dockeropts.is_name(text) is named


HEADER = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"


def route(device: str, destination: str, gateway: str, mask: str, flags: str = "0003") -> str:
    """A line of /proc/net/route, of addresses in hexadecimal as people read them."""
    numbers = [f"{int.from_bytes(bytes.fromhex(each), sys.byteorder):08X}" for each in (destination, gateway, mask)]
    return f"{device}\t{numbers[0]}\t{numbers[1]}\t{flags}\t0\t0\t0\t{numbers[2]}\t0\t0\t0   \n"


@pytest.mark.spec("flannel.md §9/route")
def test_a_route_of_the_bridge_by_a_gateway_is_said():
    opts = read(ENV, "subnet.env", {}, ip_masq=True)
    problem = in_the_way(opts, HEADER + route("eth0", "0A014A00", "0A000002", "FFFFFF00"))
    assert problem is not None
    assert problem.code == "ROUTE-002"
    assert problem.seen.startswith("the route 10.1.74.0/24 via 10.0.0.2 dev eth0 ")
    assert problem.hint == "Remove it: ip route del 10.1.74.0/24"


def test_the_bridge_is_in_the_network_of_its_address_whatever_its_last_octet():
    opts = read("FLANNEL_SUBNET=10.1.74.9/24", "subnet.env", {}, ip_masq=True)
    assert in_the_way(opts, HEADER + route("eth0", "0A014A00", "0A000002", "FFFFFF00")) is not None


def test_other_routes_are_not_in_the_way():
    routes = [
        HEADER,
        route("docker0", "0A014A00", "00000000", "FFFFFF00", "0001"),
        route("eth0", "0A010000", "0A000002", "FFFF0000"),
        route("eth0", "0A014B00", "0A000002", "FFFFFF00"),
        route("eth0", "00000000", "0A000002", "00000000"),
    ]
    assert in_the_way(read(ENV, "subnet.env", {}, ip_masq=True), "".join(routes)) is None
    assert in_the_way(read("", "subnet.env", {}, ip_masq=True), "".join(routes)) is None
