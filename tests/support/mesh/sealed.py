"""The wire in a simulated mesh: each message is encoded, sealed, opened and decoded, and has to come out as it was."""

from weft.model.mesh.messages import Hello, Message
from weft.wire import noise
from weft.wire.meshlink import End


class Sealed:
    """One link, by which the messages of all links go."""

    def __init__(self) -> None:
        self._ends = [
            End(
                initiator=number == 0,
                static=bytes((number,)) * 32,
                ephemeral=bytes((number + 2,)) * 32,
                shared=(b"s" * 32,),
                hello=lambda number=number: Hello(
                    key=noise.public(bytes((number,)) * 32), run=number, name="node", ring=None
                ),
            )
            for number in range(2)
        ]
        while not all(end.peer for end in self._ends):
            for one, other in (self._ends, self._ends[::-1]):
                other.feed(self._taken(one))
        self.largest = 0

    def __call__(self, message: Message) -> Message:
        one, other = self._ends
        one.say(message)
        data = self._taken(one)
        self.largest = max(self.largest, len(data))
        [heard] = other.feed(data)
        assert heard == message
        return heard

    @staticmethod
    def _taken(end: End) -> bytes:
        data = bytes(end.unsent)
        end.unsent.clear()
        return data
