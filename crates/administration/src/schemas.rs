//! Schemas of the OpenAPI document that are derived from the types of `/admin`.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, transform::RecursiveTransform};
use serde_json::{Map, Value, json};

use super::{
    List, agent_sessions, approvals, audit, configs, console, conversations, courses, diagnosis, keys, knowledge,
    limits, modes, overview, profiles, reload, sessions, system, tenants, tool_bank, turn_list, turns, usage, webhooks,
};

/// The schemas of all objects of the administration, by name.
pub fn schemas() -> Map<String, Value> {
    let mut answers = settings().for_serialize().into_generator();
    list::<tenants::TenantView, i64>(&mut answers, "TenantList", "Tenants, ordered by number.");
    list::<keys::KeyView, &str>(&mut answers, "KeyList", "Keys, ordered by id.");
    list::<tool_bank::ToolView, &str>(&mut answers, "ToolList", "Tools, ordered by name.");
    list::<approvals::ApprovalView, &str>(&mut answers, "ApprovalList", "Approvals, newest first.");
    list::<profiles::ProfileView, &str>(&mut answers, "ProfileList", "Profiles, ordered by slug.");
    list::<profiles::ProfileView, i64>(&mut answers, "ProfileVersionList", "Versions of a profile, newest first.");
    list::<modes::ModeView, &str>(&mut answers, "ModeList", "Modes, ordered by name.");
    list::<sessions::SessionView, i64>(&mut answers, "SessionList", "Threads, newest first.");
    list::<knowledge::CollectionView, &str>(&mut answers, "KnowledgeCollectionList", "Collections, ordered by name.");
    list::<knowledge::DocumentView, &str>(
        &mut answers,
        "KnowledgeDocumentList",
        "Documents, ordered by source and path.",
    );
    list::<courses::CourseView, i64>(
        &mut answers,
        "CatalogueCourseList",
        "Courses, ordered by number, or the best first.",
    );
    list::<courses::LearnerCourseView, &str>(
        &mut answers,
        "LearnerCourseList",
        "Values of learners, ordered by user and course.",
    );
    list::<agent_sessions::AgentSessionView, &str>(
        &mut answers,
        "ExecuteSessionList",
        "Sessions of the execute contract, newest first.",
    );
    list::<conversations::ConversationView, &str>(&mut answers, "ConversationList", "Conversations, by id downwards.");
    list::<turn_list::TurnRow, &str>(&mut answers, "TurnList", "Turns without their content, newest first.");
    list::<turns::TurnEventView, u64>(&mut answers, "TurnEventList", "Stored events of a turn, in order.");
    list::<audit::AuditEntryView, &str>(&mut answers, "AuditList", "Entries of the audit, newest first.");
    list::<webhooks::EndpointView, &str>(&mut answers, "WebhookEndpointList", "Webhook endpoints, ordered by id.");
    list::<webhooks::DeliveryView, &str>(&mut answers, "WebhookDeliveryList", "Deliveries, newest first.");
    list::<limits::LimitView, &str>(&mut answers, "LimitList", "Limits, ordered by kind, tenant and id.");
    list::<console::ConsoleSessionView, &str>(&mut answers, "ConsoleSessionList", "Browser sessions, ordered by id.");
    answers.subschema_for::<console::ConsoleStatus>();
    answers.subschema_for::<console::CurrentConsoleSession>();
    answers.subschema_for::<console::SingleSignOn>();
    answers.subschema_for::<console::NewConsoleSession>();
    answers.subschema_for::<console::DeletedConsoleSession>();
    answers.subschema_for::<usage::UsageReport>();
    answers.subschema_for::<webhooks::NewEndpointView>();
    answers.subschema_for::<configs::ConfigView>();
    answers.subschema_for::<keys::NewKeyView>();
    answers.subschema_for::<tool_bank::Trial>();
    answers.subschema_for::<tool_bank::ToolStatisticsView>();
    answers.subschema_for::<tool_bank::ToolUsage>();
    answers.subschema_for::<profiles::ProfileDiff>();
    answers.subschema_for::<sessions::SessionMessages>();
    answers.subschema_for::<turns::TurnView>();
    answers.subschema_for::<turns::ModelCallView>();
    answers.subschema_for::<turns::TurnContextView>();
    answers.subschema_for::<overview::OverviewView>();
    answers.subschema_for::<diagnosis::Diagnosis>();
    answers.subschema_for::<reload::ReloadReport>();
    answers.subschema_for::<reload::ConfigurationView>();
    answers.subschema_for::<system::SystemView>();
    answers.subschema_for::<system::UpstreamCheckView>();
    answers.subschema_for::<knowledge::KnowledgeSearchResult>();
    answers.subschema_for::<courses::CourseChanges>();
    answers.subschema_for::<courses::LearnerChanges>();
    answers.subschema_for::<agent_sessions::AgentSessionTurns>();
    answers.subschema_for::<conversations::ConversationPage>();

    let mut requests = settings().for_deserialize().into_generator();
    requests.subschema_for::<tenants::CreateTenant>();
    requests.subschema_for::<tenants::ChangeTenant>();
    requests.subschema_for::<keys::CreateKey>();
    requests.subschema_for::<configs::ChangeConfig>();
    requests.subschema_for::<console::RedeemConsoleLink>();
    requests.subschema_for::<tool_bank::PutTool>();
    requests.subschema_for::<tool_bank::TryTool>();
    requests.subschema_for::<approvals::Decide>();
    requests.subschema_for::<profiles::PutProfile>();
    requests.subschema_for::<modes::PutMode>();
    requests.subschema_for::<limits::PutLimit>();
    requests.subschema_for::<knowledge::SearchKnowledge>();
    requests.subschema_for::<courses::PutCourse>();
    requests.subschema_for::<courses::ChangeCourses>();
    requests.subschema_for::<courses::PutLearnerCourse>();
    requests.subschema_for::<courses::ChangeLearnerCourses>();
    requests.subschema_for::<webhooks::CreateEndpoint>();
    requests.subschema_for::<webhooks::ChangeEndpoint>();

    let mut all = answers.take_definitions(true);
    all.append(&mut requests.take_definitions(true));
    all
}

fn settings() -> SchemaSettings {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.with_transform(RecursiveTransform(plain))
}

/// Removes what the rest of the document does not have either: Rust's number formats, and `type` beside `enum` and `const`.
fn plain(schema: &mut Schema) {
    schema.remove("format");
    if schema.get("const").is_some() || schema.get("enum").is_some() {
        schema.remove("type");
    }
    // Doc comments are wrapped; descriptions must not be.
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }
}

/// Adds the schema of a list of `T`, and that of `T`.
fn list<T: JsonSchema, Id: JsonSchema>(generator: &mut SchemaGenerator, name: &str, description: &str) {
    let mut schema = List::<T, Id>::json_schema(generator);
    schema.insert("description".to_owned(), json!(description));
    generator.definitions_mut().insert(name.to_owned(), schema.into());
}
