"""The Helm chart: rendered with the engine that Helm uses, and checked against the schemas of Kubernetes."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from conftest import BINARY, KEY, ROOT, run

CHART = ROOT / "deploy/helm/amalgam"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
KUBERNETES = "1.31"

CASES = {
    "defaults": {},
    "postgres": {"replicas": 3, "store": {"kind": "postgres"}},
    "everything": {
        "replicas": 2,
        "store": {"kind": "postgres"},
        "image": {"repository": "registry.example.com/amalgam", "tag": "1.2.3"},
        "imagePullSecrets": [{"name": "pull"}],
        "config": '[upstreams.openai]\nkind = "responses"\nbase_url = "https://api.openai.com/v1"\napi_key = "env:OPENAI_API_KEY"\n',
        "server": {"trustedProxies": ["10.0.0.0/8"], "publicUrl": "https://models.example.com/a&b", "drainSeconds": 60},
        "ingress": {"enabled": True, "host": "models.example.com", "tlsSecret": "certificate"},
        "podAnnotations": {"example.com/team": "models"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    },
}


def merged(values: dict, changes: dict) -> dict:
    both = {
        key: merged(values[key], value) if isinstance(values.get(key), dict) else value
        for key, value in changes.items()
    }
    return {**values, **both}


def render(changes: dict, folder: Path) -> dict[str, list[dict]]:
    """The objects of each template."""
    values = merged(VALUES, changes)
    if shutil.which("helm"):
        file = folder / "values.json"
        file.write_text(json.dumps(values))
        text = run("helm", "template", "test", CHART, "--values", file)
        parts = re.split(r"^---\n# Source: amalgam/templates/(.*)\n", text, flags=re.MULTILINE)[1:]
        rendered = dict(zip(parts[::2], parts[1::2], strict=True))
    else:
        rendered = rendered_by_go(values)
    return {
        name: [object for object in yaml.safe_load_all(text) if object]
        for name, text in rendered.items()
        if name.endswith(".yaml")
    }


def rendered_by_go(values: dict) -> dict[str, str]:
    if not shutil.which("go") or not Path("/usr/share/gocode/src/github.com/Masterminds/sprig").is_dir():
        pytest.skip("neither helm nor go with sprig is installed")
    job = {
        "folder": str(CHART),
        "values": values,
        "release": {"Name": "test", "Namespace": "default", "Service": "Helm"},
    }
    command, place = ["go", "run", "./render"], ROOT / "tests/packages"
    done = subprocess.run(command, cwd=place, input=json.dumps(job), capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise ValueError(done.stderr)
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CASES)
def test_the_objects_of_the_chart_are_valid(name, tmp_path):
    jsonschema.validate(merged(VALUES, CASES[name]), SCHEMA)
    objects = [object for objects in render(CASES[name], tmp_path).values() for object in objects]
    kinds = [object["kind"] for object in objects]
    for object in objects:
        kubernetes_validate.validate(object, KUBERNETES, strict=True)
        assert object["metadata"]["labels"]["app.kubernetes.io/instance"] == "test"
    expected = {"ConfigMap", "Deployment", "Service"}
    expected |= {"PersistentVolumeClaim"} if name == "defaults" else {"PodDisruptionBudget"}
    expected |= {"Ingress"} if name == "everything" else set()
    assert sorted(kinds) == sorted(expected)


@pytest.mark.parametrize("name", CASES)
def test_the_configuration_of_the_chart_is_one_that_the_server_takes(name, tmp_path):
    (config,) = render(CASES[name], tmp_path)["configmap.yaml"]
    file = tmp_path / "amalgam.toml"
    file.write_text(config["data"]["amalgam.toml"])
    environment = {"AMALGAM_BOOTSTRAP_KEY": KEY, "OPENAI_API_KEY": "x"}
    shown = run(BINARY, "check", "--json", "--config", file, env=environment)
    assert "0.0.0.0:8080" in shown
    if name == "everything":
        assert all(text in shown for text in ("https://models.example.com/", "10.0.0.0/8", "api.openai.com"))


def test_pods_are_selected_by_their_labels_and_stop_after_the_server(tmp_path):
    objects = render(CASES["everything"], tmp_path)
    (deployment,), (service,) = objects["deployment.yaml"], objects["service.yaml"]
    template = deployment["spec"]["template"]
    for selector in (deployment["spec"]["selector"]["matchLabels"], service["spec"]["selector"]):
        assert selector.items() <= template["metadata"]["labels"].items()
    assert template["spec"]["terminationGracePeriodSeconds"] > 60
    (container,) = template["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True


def test_several_servers_on_sqlite_are_refused(tmp_path):
    changes = {"replicas": 2}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged(VALUES, changes), SCHEMA)
    with pytest.raises((AssertionError, ValueError), match="postgres"):
        render(changes, tmp_path)


@pytest.mark.parametrize("changes", [{"replica": 1}, {"store": {"kind": "mysql"}}, {"server": {"publicUrl": "models"}}])
def test_values_that_are_misspelt_are_refused(changes):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged(VALUES, changes), SCHEMA)


def test_the_chart_has_the_version_of_the_server():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == run(BINARY, "version").split()[1]
