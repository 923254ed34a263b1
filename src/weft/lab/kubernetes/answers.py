"""What a lab reads of the API's answers: how nodes are, and the pods that weft runs in."""

from weft.model.value import Value


class _Condition(Value):
    type: str
    status: str
    message: str = ""


class _NodeStatus(Value):
    conditions: tuple[_Condition, ...] = ()


class _Meta(Value):
    name: str


class Node(Value):
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


class Nodes(Value):
    """A list of them."""

    items: list[Node]


class _Waiting(Value):
    reason: str = ""
    message: str = ""


class _Terminated(Value, rename="camel"):
    reason: str = ""
    exit_code: int = 0


class _ContainerState(Value):
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


class _Container(Value, rename="camel"):
    name: str
    ready: bool = False
    restart_count: int = 0
    state: _ContainerState = _ContainerState()


class PodStatus(Value, rename="camel"):
    """How a pod is."""

    phase: str = ""
    init_container_statuses: tuple[_Container, ...] = ()
    container_statuses: tuple[_Container, ...] = ()

    @property
    def words(self) -> str:
        """What its kubelet says of its containers."""
        containers = [*self.init_container_statuses, *self.container_statuses]
        return "; ".join(f"{each.name}: {each.state.words}" for each in containers) or self.phase


class _PodSpec(Value, rename="camel"):
    node_name: str = ""


class Pod(Value):
    """A pod."""

    spec: _PodSpec
    status: PodStatus = PodStatus()


class Pods(Value):
    """A list of them."""

    items: list[Pod]
