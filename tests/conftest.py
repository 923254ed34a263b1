"""For all tests: carries the ids of @pytest.mark.spec into the report, where tests.support.report reads them."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("spec"):
            item.user_properties.extend(("spec", str(name)) for name in marker.args)
