//! Which door a path belongs to.

use amalgam_core::Door;

/// The door of a path.
pub(crate) fn of_path(path: &str) -> Door {
    let Some((_, rest)) = path.split_once('/') else { return Door::Other };
    let (first, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let second = || rest.split('/').next().unwrap_or_default();
    match first {
        "v1" => match second() {
            "responses" => Door::Responses,
            "chat" => Door::ChatCompletions,
            "embeddings" => Door::Embeddings,
            "messages" => Door::Messages,
            "conversations" => Door::Conversations,
            "files" => Door::Files,
            "models" => Door::Models,
            "webhook_endpoints" => Door::Admin,
            _ => Door::Other,
        },
        "api" => match second() {
            "v2" => Door::Assistant,
            "agent" => Door::Execute,
            _ => Door::Other,
        },
        "admin" => Door::Admin,
        "" | "console" | "docs" | "healthz" | "llms.txt" | "metrics" | "openapi.json" | "readyz" | "widget.js"
        | "widget.json" => Door::Operations,
        _ => Door::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_belongs_to_a_door() {
        for route in crate::wires::ROUTES {
            assert_ne!(of_path(route.path), Door::Other, "{}", route.path);
        }
        for (path, door) in [
            ("/v1/responses/resp_1/cancel", Door::Responses),
            ("/v1/chat/completions/chatcmpl-1/messages", Door::ChatCompletions),
            ("/v1/embeddings", Door::Embeddings),
            ("/api/v2/ai-agent/respond/", Door::Assistant),
            ("/api/agent/execute", Door::Execute),
            ("/metrics", Door::Operations),
            ("/", Door::Operations),
            ("/docs/clients.md", Door::Operations),
            ("*", Door::Other),
            ("/v1", Door::Other),
            ("/wp-login.php", Door::Other),
        ] {
            assert_eq!(of_path(path), door, "{path}");
        }
    }
}
