"""Makes a valid instance of a JSON Schema, as a model with structured output does."""


def instance_of(schema: dict, root: dict | None = None, name: str = "value"):
    """Returns an instance that fulfils `schema`, with every property present."""
    root = schema if root is None else root
    if "$ref" in schema:
        return instance_of(_resolve(schema["$ref"], root), root, name)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return instance_of(schema[union][0], root, name)
    if "allOf" in schema:
        merged = {key: value for part in schema["allOf"] for key, value in part.items()}
        return instance_of(merged, root, name)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        properties = schema.get("properties", {})
        return {key: instance_of(value, root, key) for key, value in properties.items()}
    if kind == "array":
        return [instance_of(schema.get("items", {}), root, name) for _ in range(max(1, schema.get("minItems", 1)))]
    if kind == "integer":
        return int(schema.get("minimum", 7))
    if kind == "number":
        return float(schema.get("minimum", 7.5))
    if kind == "boolean":
        return True
    if kind == "null":
        return None
    return f"some {name}"


def _resolve(reference: str, root: dict) -> dict:
    target = root
    for step in reference.removeprefix("#/").split("/"):
        target = target[step]
    return target
