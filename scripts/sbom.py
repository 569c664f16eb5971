#!/usr/bin/env python3
"""Writes the software bill of materials of the server: every crate that is linked into it or runs while it is built.

scripts/sbom.py [--target TRIPLE] >sbom.cdx.json

CycloneDX 1.6 as JSON, made from `cargo metadata` and Cargo.lock. The same sources give the same bytes: the time is
SOURCE_DATE_EPOCH, the serial number is derived from the content.
"""

import argparse
import json
import os
import subprocess
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BINARY = "amalgam"


def metadata(target: str | None) -> dict:
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--format-version", "1", "--locked"]
    if target:
        command += ["--filter-platform", target]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def checksums() -> dict[tuple[str, str], str]:
    """The hashes of the crates' archives, by name and version."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(one["name"], one["version"]): one["checksum"] for one in lock["package"] if "checksum" in one}


def listed(target: str | None, edges: str) -> set[tuple[str, str]]:
    """Names and versions of the crates that the binary depends on by these edges, with the features that it uses.

    `cargo metadata` would add those that no enabled feature asks for.
    """
    command = [os.environ.get("CARGO", "cargo"), "tree", "--locked", "--package", BINARY, "--edges", edges]
    command += ["--prefix", "none", "--format", "{p}", "--target", target or "all"]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return {(name, version.removeprefix("v")) for name, version, *_ in map(str.split, filter(None, lines))}


def component(package: dict, linked: bool, hashes: dict[tuple[str, str], str]) -> dict:
    name, version = package["name"], package["version"]
    entry = {
        "type": "library",
        "bom-ref": reference(package),
        "name": name,
        "version": version,
        "scope": "required" if linked else "excluded",
        "purl": reference(package),
    }
    if package.get("description"):
        entry["description"] = " ".join(package["description"].split())
    if package.get("license"):
        # Older manifests separate licences by a slash.
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum := hashes.get((name, version)):
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package.get("repository"):
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


def reference(package: dict) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def bill(target: str | None) -> dict:
    data, hashes = metadata(target), checksums()
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    (root,) = [id for id in data["workspace_members"] if packages[id]["name"] == BINARY]
    ids = {(package["name"], package["version"]): id for id, package in packages.items()}
    linked, used = ({ids[one] for one in listed(target, edges)} for edges in ("normal", "normal,build"))
    order = sorted(used - {root}, key=lambda id: reference(packages[id]))
    components = [component(packages[id], id in linked, hashes) for id in order]
    dependencies = [
        {
            "ref": reference(packages[id]),
            "dependsOn": sorted({reference(packages[one["pkg"]]) for one in nodes[id]["deps"] if one["pkg"] in used}),
        }
        for id in [root, *order]
    ]
    made_at = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    application = {**component(packages[root], True, hashes), "type": "application"}
    application.pop("scope")
    content = json.dumps([application, components, dependencies], sort_keys=True)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {
            "timestamp": made_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "tools": {"components": [{"type": "application", "name": "scripts/sbom.py"}]},
            "component": application,
        },
        "components": components,
        "dependencies": dependencies,
    }


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Writes the software bill of materials of the server.")
    arguments.add_argument("--target", help="the platform; by default dependencies of all platforms are listed")
    print(json.dumps(bill(arguments.parse_args().target), indent=1, ensure_ascii=False))
