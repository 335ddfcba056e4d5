from __future__ import annotations

import pytest

from nncftools.session.model import Host
from nncftools.session.readings import rss_error


def linux(release: str, cpus: int | None = 128, machine: str = "x86_64") -> Host:
    """Return a machine with Linux."""
    return Host(name="box", system="Linux", release=release, machine=machine, cpus=cpus)


@pytest.mark.parametrize(
    ("host", "error"),
    [
        (linux("6.1.0-28-amd64"), 0),
        (linux("6.2.0"), 256 * 128 * 4096),
        (linux("6.8.0-45-generic"), 256 * 128 * 4096),
        (linux("6.8.0-45-generic", 4), 32 * 4 * 4096),
        (linux("6.8.0-45-generic-64k", machine="aarch64"), 256 * 128 * 65536),
        (linux("6.8.0", machine="ppc64le"), 256 * 128 * 65536),
        (linux("6.6.98"), 256 * 128 * 4096),
        (linux("6.6.99"), 0),
        (linux("6.12.38"), 256 * 128 * 4096),
        (linux("6.12.39-1.el10"), 0),
        (linux("6.15.7"), 0),
        (linux("6.16.0"), 0),
        (linux("6.16"), 0),
        (linux("7.0.1"), 0),
        (linux("5.14.0"), 0),
        (linux("6.8.0", None), 0),
        (linux("strange"), 0),
        (Host(), 0),
        (Host(system="Darwin", release="6.8.0", cpus=128), 0),
    ],
)
def test_rss_error(host: Host, error: int) -> None:
    """RSS is off by a batch of pages for each CPU, from Linux 6.2 to where /proc was made exact again."""
    assert rss_error(host) == error
