"""One real etcd for all tests here; each test has a prefix of its own."""

from __future__ import annotations

import uuid

import pytest

from plimsoll.store.etcd.location import Location, location
from tests.e2e.etcd_process import NoEtcdError, running_etcd


@pytest.fixture
def where() -> Location:
    try:
        url = running_etcd()
    except NoEtcdError as error:
        pytest.skip(str(error))
    return location(f"{url}?prefix=/{uuid.uuid4().hex}&compact=off")
