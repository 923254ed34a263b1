"""The JSON Schema of a lab file in the docs.

`python -m tests.support.labschema` writes docs/reference/lab.schema.json.
"""

from pathlib import Path

from weft.lab.files import labkeys
from weft.screen.documents import document

PUBLISHED = Path(__file__).parents[2] / "docs" / "reference" / "lab.schema.json"


def made() -> str:
    return document("json", labkeys.schema())


if __name__ == "__main__":
    PUBLISHED.write_text(made())
