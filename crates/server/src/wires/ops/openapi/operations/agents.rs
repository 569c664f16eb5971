//! `/admin/configs`, `/admin/profiles`, `/admin/sessions` and `/admin/diagnose`

use serde_json::{Value, json};

use super::{
    admin::{LARGE, LATE, UNDECLARED, WRONG, body, named_tenant, path},
    parameter, success, with_failures,
};

const ADMINS: &str = "The key lacks the right `admin`, or another tenant was named without the right `operator`.";
const NO_TENANT: &str = "No such tenant.";
const NO_PROFILE: &str = "No such profile in the tenant.";
const NO_VERSION: &str = "No such profile in the tenant, or no such version of it.";
const NO_SESSION: &str = "No such thread in the tenant.";
const TAG: &str = "Assistants";

/// `GET /admin/configs/{tenant_id}`
pub(crate) fn get_config() -> Value {
    json!({
        "operationId": "getConfig",
        "tags": [TAG],
        "summary": "Get what a tenant has set about its assistant",
        "description": "Every setting by its name, null where it is not set, and under `resolved` what counts and whose word \
            it is.",
        "parameters": [tenant_id(), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("The settings.", "AgentConfig")}),
            &[("403", ADMINS), ("404", NO_TENANT)],
        ),
    })
}

/// `PATCH /admin/configs/{tenant_id}`
pub(crate) fn change_config() -> Value {
    let example = json!({"model": "gpt-4o-mini", "temperature": 0.3, "top_p": null, "api_key": "the tenant's own key"});
    json!({
        "operationId": "changeConfig",
        "tags": [TAG],
        "summary": "Change what a tenant has set about its assistant",
        "description": "What is named is set, null or an empty text unsets it, everything else stays, also what others set at \
            the same time. The next turn follows it.",
        "parameters": [tenant_id(), parameter("RequestId")],
        "requestBody": body("ChangeConfig", example),
        "responses": with_failures(
            json!({"200": success("The settings as they are now.", "AgentConfig")}),
            &[
                ("400", WRONG),
                ("403", ADMINS),
                ("404", NO_TENANT),
                ("408", LATE),
                ("409", "Too many others change these settings."),
                ("413", LARGE),
                ("415", UNDECLARED),
            ],
        ),
    })
}

/// `GET /admin/profiles`
pub(crate) fn list_profiles() -> Value {
    json!({
        "operationId": "listProfiles",
        "tags": [TAG],
        "summary": "List the profiles of a tenant",
        "parameters": [named_tenant(), parameter("Limit"), parameter("After"), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("One page, by slug.", "ProfileList")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_TENANT)],
        ),
    })
}

/// `GET /admin/profiles/{slug}`
pub(crate) fn get_profile() -> Value {
    json!({
        "operationId": "getProfile",
        "tags": [TAG],
        "summary": "Get a profile",
        "parameters": [slug(), named_tenant(), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("The profile.", "Profile")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_PROFILE)],
        ),
    })
}

/// `PUT /admin/profiles/{slug}`
pub(crate) fn put_profile() -> Value {
    let example = json!({
        "prompt": "You help people on the start page find a course.",
        "tools": ["get_course_recommendation"],
        "active": true,
    });
    json!({
        "operationId": "putProfile",
        "tags": [TAG],
        "summary": "Keep a profile",
        "description": "Replaces the profile of this slug as a whole: what is not said is as it usually is. The version before \
            is kept; the same again makes no version. Tools that no bank has are taken, and told in `unknown_tools`.",
        "parameters": [slug(), named_tenant(), parameter("RequestId")],
        "requestBody": body("PutProfile", example),
        "responses": with_failures(
            json!({
                "200": success("The profile, in the place of the one before.", "Profile"),
                "201": success("The profile, which is new.", "Profile"),
            }),
            &[
                ("400", WRONG),
                ("403", ADMINS),
                ("404", NO_TENANT),
                ("408", LATE),
                ("413", LARGE),
                ("415", UNDECLARED),
            ],
        ),
    })
}

/// `DELETE /admin/profiles/{slug}`
pub(crate) fn delete_profile() -> Value {
    json!({
        "operationId": "deleteProfile",
        "tags": [TAG],
        "summary": "Forget a profile with all of its versions",
        "parameters": [slug(), named_tenant(), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("It is gone.", "DeletedProfile")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_PROFILE)],
        ),
    })
}

/// `GET /admin/profiles/{slug}/versions`
pub(crate) fn list_profile_versions() -> Value {
    json!({
        "operationId": "listProfileVersions",
        "tags": [TAG],
        "summary": "List the versions of a profile",
        "parameters": [slug(), named_tenant(), parameter("Limit"), parameter("After"), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("One page, the newest first, with the one that is in force.", "ProfileVersionList")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_PROFILE)],
        ),
    })
}

/// `GET /admin/profiles/{slug}/versions/{version}/diff`
pub(crate) fn compare_profile_versions() -> Value {
    let against = json!({
        "name": "against",
        "in": "query",
        "description": "The version to compare with; the one before where none is named.",
        "schema": {"type": "integer", "minimum": 1},
    });
    json!({
        "operationId": "compareProfileVersions",
        "tags": [TAG],
        "summary": "See what a version of a profile changed",
        "parameters": [
            slug(),
            path("version", "The version, by its number.", "integer"),
            against,
            named_tenant(),
            parameter("RequestId"),
        ],
        "responses": with_failures(
            json!({"200": success("What changed.", "ProfileDiff")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_VERSION)],
        ),
    })
}

/// `GET /admin/sessions`
pub(crate) fn list_sessions() -> Value {
    let user = json!({
        "name": "user",
        "in": "query",
        "description": "Only the threads of this user.",
        "schema": {"type": "string"},
    });
    json!({
        "operationId": "listSessions",
        "tags": [TAG],
        "summary": "List the threads of a tenant's users",
        "parameters": [user, named_tenant(), parameter("Limit"), parameter("After"), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("One page, the newest first.", "SessionList")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_TENANT)],
        ),
    })
}

/// `GET /admin/sessions/{session_id}`
pub(crate) fn get_session() -> Value {
    json!({
        "operationId": "getSession",
        "tags": [TAG],
        "summary": "Get a thread with its messages",
        "description": "Messages are paged, the newest first. What a turn asked its model is in `/admin/turns` under the \
            message's `response_id`.",
        "parameters": [
            path("session_id", "The thread, by its number.", "integer"),
            named_tenant(),
            parameter("Limit"),
            parameter("After"),
            parameter("RequestId"),
        ],
        "responses": with_failures(
            json!({"200": success("The thread with one page of its messages.", "Session")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_SESSION)],
        ),
    })
}

/// `GET /admin/diagnose`
pub(crate) fn diagnose() -> Value {
    let named = |name: &str, description: &str, example: &str| json!({"name": name, "in": "query", "description": description, "schema": {"type": "string"}, "example": example});
    json!({
        "operationId": "diagnose",
        "tags": [TAG],
        "summary": "Find out why an assistant does not answer, or not with its tools",
        "description": "Nothing is changed, and no model is asked.",
        "parameters": [
            named("agent", "The profile that is asked for.", "home-assistant"),
            named("tool", "The tool that is missed.", "get_course_recommendation"),
            named_tenant(),
            parameter("RequestId"),
        ],
        "responses": with_failures(
            json!({"200": success("What was found, and what to do about it.", "Diagnosis")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_TENANT)],
        ),
    })
}

fn tenant_id() -> Value {
    path("tenant_id", "The tenant, by its number: the caller's own, or any for operators.", "integer")
}

fn slug() -> Value {
    path("slug", "The profile, by its slug.", "string")
}
