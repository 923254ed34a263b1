"""What a lab reads of the API's answers: how nodes are, and the pods that weft runs in."""

import msgspec


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str
    message: str = ""


class _NodeStatus(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Meta(msgspec.Struct, frozen=True):
    name: str


class Node(msgspec.Struct, frozen=True):
    """A node."""

    metadata: _Meta
    status: _NodeStatus = _NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether Kubernetes calls it ready."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    @property
    def words(self) -> str:
        """What its kubelet says of that."""
        return next((each.message for each in self.status.conditions if each.type == "Ready"), "")


class Nodes(msgspec.Struct, frozen=True):
    """A list of them."""

    items: list[Node]


class _Waiting(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Terminated(msgspec.Struct, frozen=True, rename="camel"):
    reason: str = ""
    exit_code: int = 0


class _ContainerState(msgspec.Struct, frozen=True):
    waiting: _Waiting | None = None
    running: dict[str, str] | None = None
    terminated: _Terminated | None = None

    @property
    def words(self) -> str:
        if self.waiting is not None:
            return f"{self.waiting.reason}: {self.waiting.message}".rstrip(": ")
        if self.terminated is not None:
            return f"{self.terminated.reason}, status {self.terminated.exit_code}"
        return "runs" if self.running is not None else "not started"


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    ready: bool = False
    restart_count: int = 0
    state: _ContainerState = _ContainerState()


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """How a pod is."""

    phase: str = ""
    init_container_statuses: tuple[_Container, ...] = ()
    container_statuses: tuple[_Container, ...] = ()

    @property
    def words(self) -> str:
        """What its kubelet says of its containers."""
        containers = [*self.init_container_statuses, *self.container_statuses]
        return "; ".join(f"{each.name}: {each.state.words}" for each in containers) or self.phase


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class Pod(msgspec.Struct, frozen=True):
    """A pod."""

    spec: _PodSpec
    status: PodStatus = PodStatus()


class Pods(msgspec.Struct, frozen=True):
    """A list of them."""

    items: list[Pod]
